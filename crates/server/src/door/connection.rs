//! A connection that a silent or slow peer cannot keep for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::Bounds;

/// What HTTP/2 begins with. Until it is known whether it does, nobody else watches the time.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with its own deadlines.
pub struct Connection {
    stream: TcpStream,
    /// How much of the preface has come, while nothing else has; with the deadline for the rest.
    opening: Option<(usize, Pin<Box<Sleep>>)>,
    /// Since when the peer has read nothing of what it is sent.
    stuck: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
}

impl Connection {
    /// Begins to count.
    pub fn new(stream: TcpStream, bounds: Bounds) -> Self {
        let opening = Some((0, Box::pin(sleep(bounds.header_timeout))));
        Self { stream, opening, stuck: None, write_timeout: bounds.write_timeout }
    }

    /// Follows the preface as it comes in.
    fn has_read(&mut self, bytes: &[u8]) {
        if let Some((come, _)) = &mut self.opening {
            let expected = &PREFACE[*come..];
            *come += bytes.len();
            if bytes.len() >= expected.len() || !expected.starts_with(bytes) {
                self.opening = None;
            }
        }
    }

    /// Whatever is written must be read within the bound.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.has_read(&buf.filled()[before..]);
                Poll::Ready(read)
            }
            Poll::Pending => {
                if let Some((_, deadline)) = &mut self.opening {
                    ready!(deadline.as_mut().poll(cx));
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not ask")));
                }
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.in_time(cx, written)
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
