//! A connection with deadlines for silent and slow peers.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold_wire::{Code, v1};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, sleep_until};

use super::connection_activity::{ConnectionActivity, Phase};
use super::limits::TransportLimits;
use super::peer_stream::PeerStream;
use crate::metrics::Metrics;

/// First bytes of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with read and write deadlines.
pub struct Connection {
    stream: PeerStream,
    /// Bytes of the preface that have arrived, while nothing else has.
    preface: Option<usize>,
    /// Whether the peer speaks HTTP/2, which has pings and no deadline for heads.
    is_http2: bool,
    activity: Arc<ConnectionActivity>,
    /// Deadline for the peer to send, between two requests and within a head.
    read_deadline: Option<Pin<Box<Sleep>>>,
    /// Deadline for the peer to read, while a write is blocked.
    write_deadline: Option<Pin<Box<Sleep>>>,
    limits: TransportLimits,
    idle_timeout: Arc<IdleTimeout>,
    peer: Arc<PeerStats>,
}

/// Time for the next request on an HTTP/1 connection. It can be changed while connections are open.
#[derive(Debug)]
pub struct IdleTimeout(AtomicU64);

impl IdleTimeout {
    /// The initial timeout.
    pub fn new(timeout: Duration) -> Arc<Self> {
        let this = Arc::new(Self(AtomicU64::new(0)));
        this.set(timeout);
        this
    }

    /// Changes the timeout, also of open connections.
    pub fn set(&self, timeout: Duration) {
        self.0.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Counts timeouts and malformed requests of a peer.
pub struct PeerStats {
    metrics: Arc<Metrics>,
}

impl PeerStats {
    /// Counts the error that ended a connection.
    pub fn connection_failed(&self, error: &(dyn Error + 'static)) {
        let Some(error) = error.downcast_ref::<hyper::Error>() else { return };
        if error.is_parse() || error.is_parse_too_large() {
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
    pub fn new(
        stream: PeerStream,
        limits: TransportLimits,
        idle_timeout: Arc<IdleTimeout>,
        metrics: Arc<Metrics>,
    ) -> Self {
        stream.set_nodelay();
        Self {
            stream,
            preface: Some(0),
            is_http2: false,
            activity: ConnectionActivity::new(),
            read_deadline: None,
            write_deadline: None,
            limits,
            idle_timeout,
            peer: Arc::new(PeerStats { metrics }),
        }
    }

    /// Statistics of the peer, for use after the connection was moved.
    pub fn peer_stats(&self) -> Arc<PeerStats> {
        self.peer.clone()
    }

    /// What the connection does.
    pub fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }

    /// Tracks the preface as it arrives, and the start of heads.
    fn received(&mut self, bytes: &[u8]) {
        if let Some(arrived) = self.preface {
            let expected = &PREFACE[arrived..];
            let begun = &bytes[..bytes.len().min(expected.len())];
            self.preface =
                (expected.starts_with(begun) && begun.len() < expected.len()).then_some(arrived + begun.len());
            self.is_http2 = begun == expected;
            if self.is_http2 {
                self.activity.is_http2();
            }
        }
        if !self.is_http2 && !bytes.is_empty() {
            self.activity.received();
        }
    }

    /// Ends the connection if the peer has sent nothing for too long.
    fn with_read_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_http2 {
            // The library does not read again by itself when a response is sent.
            self.activity.register_reader(cx.waker());
        }
        let phase = self.activity.phase();
        let deadline = match phase {
            Phase::Head(since) => since.checked_add(self.limits.header_timeout),
            Phase::Idle(since) if !self.is_http2 => since.checked_add(self.idle_timeout.get()),
            Phase::Idle(_) | Phase::Busy(_) | Phase::Closed => None,
        };
        let Some(deadline) = deadline else { return Poll::Pending };
        let timer = self.read_deadline.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        if !self.activity.close_if_idle() {
            return Poll::Pending;
        }
        match phase {
            Phase::Head(_) => {
                self.peer.timed_out("head");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer sends no request")))
            }
            // The end of the stream, as if the peer had closed it.
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Fails a write that has been blocked longer than the write timeout.
    fn with_write_deadline<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.set_blocked(written.is_pending());
        if written.is_ready() {
            self.write_deadline = None;
            return written;
        }
        let timeout = self.limits.write_timeout;
        let deadline = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
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
            Poll::Pending => self.with_read_deadline(cx),
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
