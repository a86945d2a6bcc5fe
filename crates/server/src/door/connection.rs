//! A connection that a silent or slow peer cannot keep for ever.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold_wire::{Code, v1};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::Bounds;
use crate::meter::Meter;

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
    manners: Arc<Manners>,
}

/// How a peer behaves, for whoever counts it.
pub struct Manners {
    meter: Arc<Meter>,
    /// Whether it has begun to ask something since it was answered.
    asks: AtomicBool,
}

impl Manners {
    /// The library below has given the peer up. One that only stayed away between two requests did nothing wrong.
    pub fn missed(&self, error: &(dyn Error + 'static)) {
        let Some(error) = error.downcast_ref::<hyper::Error>() else { return };
        if error.is_timeout() && self.asks.load(Ordering::Relaxed) {
            self.too_slow("head");
        } else if error.is_parse() || error.is_parse_too_large() {
            self.meter.refused().at_door(&v1::Problem::of(Code::FrameError, "not a request"));
        }
    }

    fn too_slow(&self, field: &str) {
        let problem = v1::Problem { field: field.into(), ..v1::Problem::of(Code::Timeout, "too slow") };
        self.meter.refused().at_door(&problem);
    }
}

impl Connection {
    /// Begins to count.
    pub fn new(stream: TcpStream, bounds: Bounds, meter: Arc<Meter>) -> Self {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let opening = Some((0, Box::pin(sleep(bounds.header_timeout))));
        let manners = Arc::new(Manners { meter, asks: AtomicBool::new(false) });
        Self { stream, opening, stuck: None, write_timeout: bounds.write_timeout, manners }
    }

    /// How its peer behaves, also when the connection is in other hands.
    pub fn manners(&self) -> Arc<Manners> {
        self.manners.clone()
    }

    /// Follows the preface as it comes in.
    fn has_read(&mut self, bytes: &[u8]) {
        self.manners.asks.fetch_or(!bytes.is_empty(), Ordering::Relaxed);
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
            self.manners.asks.store(false, Ordering::Relaxed);
            return written;
        }
        let timeout = self.write_timeout;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        ready!(stuck.as_mut().poll(cx));
        self.manners.too_slow("unread");
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
                    self.opening = None;
                    self.manners.too_slow("head");
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
