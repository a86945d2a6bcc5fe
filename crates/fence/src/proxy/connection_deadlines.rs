//! A TCP connection with deadlines for silent and slow clients, and a request body with one.
//!
//! The HTTP library limits only the time for the head of a request, and starts it with the first bytes.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// First bytes of HTTP/2. Until they have arrived, no other timeout applies.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Time for a client to read a part of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a client to send a further part of a request body over HTTP/1.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection with deadlines for its first bytes and for writes.
pub(super) struct ClientConnection {
    stream: TcpStream,
    /// Bytes of the preface that have arrived, while nothing else has, and the deadline for the rest.
    preface: Option<(usize, Pin<Box<Sleep>>)>,
    /// Deadline for the client to read, while a write is blocked.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl ClientConnection {
    /// Starts the deadline for the first bytes.
    pub(super) fn new(stream: TcpStream, header_timeout: Duration) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, preface: Some((0, Box::pin(sleep(header_timeout)))), write_deadline: None }
    }

    /// Tracks the preface as it arrives.
    fn received(&mut self, bytes: &[u8]) {
        if let Some((arrived, _)) = &mut self.preface {
            let expected = &PREFACE[*arrived..];
            *arrived += bytes.len();
            if bytes.len() >= expected.len() || !expected.starts_with(bytes) {
                self.preface = None;
            }
        }
    }

    /// Fails a write that has been blocked longer than the write timeout.
    fn with_write_deadline<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_deadline = None;
            return written;
        }
        ready!(self.write_deadline.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT))).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            self.received(&buf.filled()[before..]);
            return Poll::Ready(read);
        }
        let Some((_, deadline)) = &mut self.preface else { return Poll::Pending };
        ready!(deadline.as_mut().poll(cx));
        self.preface = None;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends no request")))
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.with_write_deadline(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.with_write_deadline(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A request body that fails if no part of it arrives within its timeout.
pub(super) struct TimedBody<B = Incoming> {
    inner: B,
    /// `None` for HTTP/2, where a stream may be idle and pings detect a client that is gone.
    timeout: Option<Duration>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    pub(super) const fn new(inner: B, timeout: Option<Duration>) -> Self {
        Self { inner, timeout, deadline: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TimedBody<B>
where
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(timeout) = this.timeout else { return Poll::Pending };
        ready!(this.deadline.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        Poll::Ready(Some(Err(Box::new(BodyTimeoutError))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The client stopped sending the body of its request.
#[derive(Debug)]
struct BodyTimeoutError;

impl fmt::Display for BodyTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client stopped sending the body of its request")
    }
}

impl Error for BodyTimeoutError {}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Empty, StreamBody};

    #[tokio::test(start_paused = true)]
    async fn a_body_without_progress_fails_after_its_timeout() {
        let silent = || StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>());
        let failed = TimedBody::new(silent(), Some(BODY_TIMEOUT)).collect().await.map(drop);
        assert!(failed.expect_err("no part arrives").to_string().contains("stopped sending"));
        let waiting = tokio::time::timeout(BODY_TIMEOUT * 10, TimedBody::new(silent(), None).collect());
        assert!(waiting.await.is_err(), "an HTTP/2 stream may be idle");
        assert!(TimedBody::new(Empty::new(), Some(BODY_TIMEOUT)).collect().await.is_ok());
    }
}
