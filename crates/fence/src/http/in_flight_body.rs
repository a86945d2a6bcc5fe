//! Request and response bodies that keep their request in flight until they are complete, up to the time limit.

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

use super::gate::InFlight;
use super::gate_state::RequestOutcome;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a forwarded request. The request is in flight while the service reads it.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        in_flight: Option<Arc<InFlight>>,
    }
}

impl<B> RequestBody<B> {
    pub(super) const fn new(inner: B, in_flight: Option<Arc<InFlight>>) -> Self {
        Self { inner, in_flight }
    }

    /// The body of a request that passes no gate.
    #[cfg(feature = "proxy")]
    pub(crate) const fn ungated(inner: B) -> Self {
        Self::new(inner, None)
    }
}

impl<B: Body> Body for RequestBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if this.in_flight.as_ref().is_some_and(|in_flight| Instant::now() >= in_flight.until) {
            return Poll::Ready(Some(Err(Box::new(RequestTooLongError))));
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
    /// The body of a response: of the service, whose end is the end of the request, or of the fence.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: ResponseSource<B>,
        tracker: Option<OutcomeTracker>,
    }
}

pin_project! {
    #[project = SourceView]
    #[derive(Debug)]
    enum ResponseSource<B> {
        Service { #[pin] body: B },
        Fence { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
    }
}

/// Follows a response until the outcome of the request is known.
#[derive(Debug)]
pub(super) struct OutcomeTracker {
    pub(super) in_flight: Arc<InFlight>,
    /// Bytes still to come, if the response has a length.
    pub(super) remaining: Option<u64>,
    /// The outcome once the body is complete; trailers may override it.
    pub(super) outcome: RequestOutcome,
    pub(super) deadline: Pin<Box<Sleep>>,
}

impl OutcomeTracker {
    pub(super) fn new(in_flight: Arc<InFlight>, remaining: Option<u64>, outcome: RequestOutcome) -> Self {
        let deadline = Box::pin(sleep_until(in_flight.until));
        Self { in_flight, remaining, outcome, deadline }
    }
}

impl<B> ResponseBody<B> {
    /// A response of the service. Without `tracker` the request is exempt, or its outcome is already known.
    pub(super) const fn from_service(body: B, tracker: Option<OutcomeTracker>) -> Self {
        Self { source: ResponseSource::Service { body }, tracker }
    }

    /// A response of the fence.
    pub(super) const fn from_fence(bytes: Option<Bytes>, trailers: Option<HeaderMap>) -> Self {
        Self { source: ResponseSource::Fence { bytes, trailers }, tracker: None }
    }
}

impl<B: Body> Body for ResponseBody<B>
where
    B::Data: From<Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        let mut body = match this.source.as_mut().project() {
            SourceView::Service { body } => body,
            SourceView::Fence { bytes, trailers } => {
                let data = bytes.take().map(|bytes| Frame::data(bytes.into()));
                return Poll::Ready(data.or_else(|| trailers.take().map(Frame::trailers)).map(Ok));
            }
        };
        let polled = body.as_mut().poll_frame(cx);
        let Some(tracker) = this.tracker else { return polled.map_err(Into::into) };
        let complete = match &polled {
            Poll::Pending => {
                if tracker.deadline.as_mut().poll(cx).is_ready() {
                    // Dropped without an outcome: it is unknown.
                    *this.tracker = None;
                    return Poll::Ready(Some(Err(Box::new(RequestTooLongError))));
                }
                false
            }
            Poll::Ready(None) => true,
            Poll::Ready(Some(Err(_))) => {
                *this.tracker = None;
                false
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    tracker.outcome = outcome_from_trailers(trailers, tracker.outcome);
                }
                let received = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                tracker.remaining = tracker.remaining.map(|remaining| remaining.saturating_sub(received));
                // The server may not poll again after the announced length.
                frame.is_trailers() || tracker.remaining == Some(0) || body.is_end_stream()
            }
        };
        if complete && let Some(tracker) = this.tracker.take() {
            tracker.in_flight.set_outcome(tracker.outcome);
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            ResponseSource::Service { body } => body.is_end_stream(),
            ResponseSource::Fence { bytes, trailers } => bytes.is_none() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            ResponseSource::Service { body } => body.size_hint(),
            ResponseSource::Fence { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

/// In gRPC the status in the trailers shows whether the request was applied. With CANCELLED (1) and DEADLINE_EXCEEDED (4) it may
/// have been.
pub(super) fn outcome_from_trailers(trailers: &HeaderMap, outcome: RequestOutcome) -> RequestOutcome {
    match trailers.get("grpc-status").map(|status| status.as_bytes()) {
        Some(b"0") => RequestOutcome::Applied,
        Some(b"1" | b"4") => RequestOutcome::Unknown,
        Some(_) => RequestOutcome::NotApplied,
        None => outcome,
    }
}

/// The request exceeded its maximum time.
#[derive(Debug)]
struct RequestTooLongError;

impl fmt::Display for RequestTooLongError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request exceeded its maximum time and was aborted; its outcome is unknown")
    }
}

impl Error for RequestTooLongError {}
