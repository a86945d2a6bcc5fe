//! Whether a connection waits for a request, serves requests or is idle. An idle connection can be closed without losing anything.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The activity of one connection.
#[derive(Debug)]
pub struct ConnectionActivity {
    phase: Mutex<Phase>,
    /// Whether the peer has not yet read what it was sent.
    is_blocked: AtomicBool,
    /// Whether the peer proved who it is, or a request of it was admitted. Before that it is sent nothing but refusals.
    is_known: AtomicBool,
    /// The reader of an HTTP/1 connection, which sets its deadline again when the last request has ended.
    reader: AtomicWaker,
    closed: Notify,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The head of a request is expected since then, or has begun to arrive.
    Head(Instant),
    /// The last response was sent then.
    Idle(Instant),
    /// This many requests are served.
    Busy(usize),
    /// It serves no further request.
    Closed,
}

impl ConnectionActivity {
    /// A new connection, on which no byte has arrived.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: Mutex::new(Phase::Head(Instant::now())),
            is_blocked: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            closed: Notify::new(),
        })
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.lock()
    }

    /// Since when the connection could be closed without losing a response; `None` if it could not.
    pub fn idle_since(&self) -> Option<Instant> {
        match self.phase() {
            Phase::Head(since) | Phase::Idle(since) => Some(since).filter(|_| !self.is_unread()),
            Phase::Busy(_) | Phase::Closed => None,
        }
    }

    /// Whether a response to a known peer is not sent yet.
    fn is_unread(&self) -> bool {
        self.is_known() && self.is_blocked.load(Ordering::Relaxed)
    }

    /// Whether the peer is known. Connections of strangers are closed first.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// The peer proved who it is, or a request of it was admitted.
    pub fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Wakes this task when the connection becomes idle.
    pub fn register_reader(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// Whether a write is blocked because the peer does not read.
    pub fn set_blocked(&self, blocked: bool) {
        self.is_blocked.store(blocked, Ordering::Relaxed);
    }

    /// Bytes arrived on an HTTP/1 connection: between two requests they begin a head.
    pub fn received(&self) {
        let mut phase = self.lock();
        if let Phase::Idle(_) = *phase {
            *phase = Phase::Head(Instant::now());
        }
    }

    /// The connection is HTTP/2, which has no deadline for heads.
    pub fn is_http2(&self) {
        let mut phase = self.lock();
        if let Phase::Head(since) = *phase {
            *phase = Phase::Idle(since);
        }
    }

    /// Begins a request; `None` if the connection is closed.
    pub fn begin(self: &Arc<Self>) -> Option<RequestGuard> {
        let mut phase = self.lock();
        *phase = match *phase {
            Phase::Head(_) | Phase::Idle(_) => Phase::Busy(1),
            Phase::Busy(requests) => Phase::Busy(requests + 1),
            Phase::Closed => return None,
        };
        Some(RequestGuard(self.clone()))
    }

    /// Closes the connection if it serves no request.
    pub fn close_if_idle(&self) -> bool {
        let mut phase = self.lock();
        let idle = matches!(*phase, Phase::Head(_) | Phase::Idle(_));
        if idle {
            *phase = Phase::Closed;
            self.closed.notify_one();
        }
        idle
    }

    /// Resolves when the connection was closed for being idle.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A request in progress, until its response was sent or given up.
#[derive(Debug)]
pub struct RequestGuard(Arc<ConnectionActivity>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut phase = self.0.lock();
        *phase = match *phase {
            Phase::Busy(requests) if requests > 1 => Phase::Busy(requests - 1),
            Phase::Closed => Phase::Closed,
            _ => Phase::Idle(Instant::now()),
        };
        drop(phase);
        self.0.reader.wake();
    }
}

/// The body of a response. Its request ends with it.
pub struct GuardedBody<G> {
    /// The body.
    pub body: Body,
    /// Ends the request when it is dropped.
    pub _guard: G,
}

impl<G: Unpin> HttpBody for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_the_last_of_its_requests_has_ended() {
        let activity = ConnectionActivity::new();
        activity.set_known();
        assert!(matches!(activity.phase(), Phase::Head(_)));
        let first = activity.begin().expect("the connection is open");
        let second = activity.begin().expect("the connection is open");
        drop(first);
        activity.received();
        assert_eq!(activity.phase(), Phase::Busy(1));
        assert!(!activity.close_if_idle(), "a request is served");
        assert_eq!(activity.idle_since(), None);
        activity.set_blocked(true);
        drop(second);
        assert_eq!(activity.idle_since(), None, "its response is not sent yet");
        activity.set_blocked(false);
        assert!(activity.idle_since().is_some());
        assert!(matches!(activity.phase(), Phase::Idle(_)));
        activity.received();
        assert!(matches!(activity.phase(), Phase::Head(_)));
    }

    #[test]
    fn a_closed_connection_begins_no_request() {
        let activity = ConnectionActivity::new();
        assert!(activity.close_if_idle());
        assert!(activity.begin().is_none());
        assert!(!activity.close_if_idle(), "it is closed only once");
    }

    #[test]
    fn a_stranger_keeps_no_connection_open_by_reading_nothing() {
        let activity = ConnectionActivity::new();
        activity.set_blocked(true);
        assert!(activity.idle_since().is_some(), "it is sent nothing but refusals");
        activity.set_known();
        assert!(activity.idle_since().is_none(), "a reply to a known peer is not lost");
    }
}
