//! A TCP connection with deadlines for silent and slow peers.

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

use super::limits::TransportLimits;
use crate::metrics::Metrics;

/// First bytes of HTTP/2. Until they have arrived, no other timeout applies.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with read and write deadlines.
pub struct Connection {
    stream: TcpStream,
    /// Bytes of the preface that have arrived, while nothing else has, and the deadline for the rest.
    preface: Option<(usize, Pin<Box<Sleep>>)>,
    /// Deadline for the peer to read, while a write is blocked.
    write_deadline: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
    peer: Arc<PeerStats>,
}

/// Counts timeouts and malformed requests of a peer.
pub struct PeerStats {
    metrics: Arc<Metrics>,
    /// Whether the peer has sent bytes since the last response.
    in_request: AtomicBool,
}

impl PeerStats {
    /// Counts the error that ended a connection. An idle timeout between two requests is not an error of the peer.
    pub fn connection_failed(&self, error: &(dyn Error + 'static)) {
        let Some(error) = error.downcast_ref::<hyper::Error>() else { return };
        if error.is_timeout() && self.in_request.load(Ordering::Relaxed) {
            self.timed_out("head");
        } else if error.is_parse() || error.is_parse_too_large() {
            self.metrics.rejections().problem(&v1::Problem::of(Code::FrameError, "malformed request"));
        }
    }

    fn timed_out(&self, field: &str) {
        let problem = v1::Problem { field: field.into(), ..v1::Problem::of(Code::Timeout, "timed out") };
        self.metrics.rejections().problem(&problem);
    }
}

impl Connection {
    /// Starts the deadline for the first bytes.
    pub fn new(stream: TcpStream, limits: TransportLimits, metrics: Arc<Metrics>) -> Self {
        // Replies are small, and callers wait for them.
        let _ = stream.set_nodelay(true);
        let preface = Some((0, Box::pin(sleep(limits.header_timeout))));
        let peer = Arc::new(PeerStats { metrics, in_request: AtomicBool::new(false) });
        Self { stream, preface, write_deadline: None, write_timeout: limits.write_timeout, peer }
    }

    /// Statistics of the peer, for use after the connection was moved.
    pub fn peer_stats(&self) -> Arc<PeerStats> {
        self.peer.clone()
    }

    /// Tracks the preface as it arrives.
    fn received(&mut self, bytes: &[u8]) {
        self.peer.in_request.fetch_or(!bytes.is_empty(), Ordering::Relaxed);
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
            self.peer.in_request.store(false, Ordering::Relaxed);
            return written;
        }
        let timeout = self.write_timeout;
        let deadline =
            self.write_deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        ready!(deadline.as_mut().poll(cx));
        self.peer.timed_out("unread");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.received(&buf.filled()[before..]);
                Poll::Ready(read)
            }
            Poll::Pending => {
                if let Some((_, deadline)) = &mut self.preface {
                    ready!(deadline.as_mut().poll(cx));
                    self.preface = None;
                    self.peer.timed_out("head");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer sends no request")));
                }
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Connection {
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
