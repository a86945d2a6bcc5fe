//! Bodies that keep their request inside the gate until they are through, and not longer than it may be there.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::gate::Inside;
use super::standing::Fate;

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// A request's body on its way to the target: as long as the target reads, the request is inside.
    #[derive(Debug)]
    pub struct Carried<B> {
        #[pin]
        inner: B,
        inside: Option<Arc<Inside>>,
    }
}

impl<B> Carried<B> {
    pub(super) const fn new(inner: B, inside: Option<Arc<Inside>>) -> Self {
        Self { inner, inside }
    }
}

impl<B: Body> Body for Carried<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if this.inside.as_ref().is_some_and(|inside| Instant::now() >= inside.until) {
            return Poll::Ready(Some(Err(Box::new(TooLong))));
        }
        this.inner.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pin_project! {
    /// An answer: the target's, whose end is the end of the request, or the fence's own.
    #[derive(Debug)]
    pub struct Answered<B> {
        #[pin]
        inner: Inner<B>,
        ends: Option<Ends>,
    }
}

pin_project! {
    #[project = InnerView]
    #[derive(Debug)]
    enum Inner<B> {
        Target { #[pin] body: B },
        Told { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
    }
}

/// What is left to hear until the outcome is known.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) inside: Arc<Inside>,
    /// Bytes that are still to come, where the answer says how many.
    pub(super) left: Option<u64>,
    /// What it means when all has come; trailers may say otherwise.
    pub(super) fate: Fate,
    pub(super) cut: Pin<Box<Sleep>>,
}

impl Ends {
    pub(super) fn new(inside: Arc<Inside>, left: Option<u64>, fate: Fate) -> Self {
        let cut = Box::pin(sleep_until(inside.until));
        Self { inside, left, fate, cut }
    }
}

impl<B> Answered<B> {
    /// The target's answer. Without `ends` it was fenced by nobody, or is over already.
    pub(super) const fn by_target(body: B, ends: Option<Ends>) -> Self {
        Self { inner: Inner::Target { body }, ends }
    }

    /// The fence's own.
    pub(super) const fn told(bytes: Option<Bytes>, trailers: Option<HeaderMap>) -> Self {
        Self { inner: Inner::Told { bytes, trailers }, ends: None }
    }
}

impl<B: Body> Body for Answered<B>
where
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let mut body = match this.inner.as_mut().project() {
            InnerView::Target { body } => body,
            InnerView::Told { bytes, trailers } => {
                let data = bytes.take().map(|bytes| Frame::data(bytes.into()));
                return Poll::Ready(data.or_else(|| trailers.take().map(Frame::trailers)).map(Ok));
            }
        };
        let polled = body.as_mut().poll_frame(cx);
        let Some(ends) = this.ends else { return polled.map_err(Into::into) };
        let over = match &polled {
            Poll::Pending => {
                if ends.cut.as_mut().poll(cx).is_ready() {
                    // Dropped without a word: its outcome is unknown.
                    *this.ends = None;
                    return Poll::Ready(Some(Err(Box::new(TooLong))));
                }
                false
            }
            Poll::Ready(None) => true,
            Poll::Ready(Some(Err(_))) => {
                *this.ends = None;
                false
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    ends.fate = by_trailers(trailers, ends.fate);
                }
                let came = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                ends.left = ends.left.map(|left| left.saturating_sub(came));
                // Whoever sends the answer may not ask again when it has sent all that it announced.
                frame.is_trailers() || ends.left == Some(0) || body.is_end_stream()
            }
        };
        if over && let Some(ends) = this.ends.take() {
            ends.inside.is(ends.fate);
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Target { body } => body.is_end_stream(),
            Inner::Told { bytes, trailers } => bytes.is_none() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Target { body } => body.size_hint(),
            Inner::Told { bytes, .. } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

/// In gRPC the status behind the answer says whether it was done.
pub(super) fn by_trailers(trailers: &HeaderMap, fate: Fate) -> Fate {
    match trailers.get("grpc-status") {
        Some(status) if status == "0" => Fate::Applied,
        Some(_) => Fate::NotApplied,
        None => fate,
    }
}

/// It was inside for longer than a request may be.
#[derive(Debug)]
struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fenced request took longer than its bound and was cut off; its outcome is unknown")
    }
}

impl Error for TooLong {}
