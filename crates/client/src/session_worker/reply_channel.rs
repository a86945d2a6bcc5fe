//! One-shot channel from the worker's thread to a waiting task, on any async runtime or none.
//!
//! Unlike a usual one-shot channel, it can report an unknown outcome first and the final reply later.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Error;

/// What the waiting task receives.
#[derive(Debug)]
pub(crate) enum ReplyOutcome<T> {
    /// The final reply.
    Final(Result<T, Error>),
    /// The request was sent and timed out; a reply may still arrive. Carries the request id.
    Indeterminate(String),
}

/// The sending half, owned by the worker.
#[derive(Debug)]
pub(crate) struct ReplySender<T>(Arc<Mutex<ReplyState<T>>>);

/// The receiving half. It can be awaited again after an indeterminate outcome.
#[derive(Debug)]
pub(crate) struct ReplyReceiver<T>(Arc<Mutex<ReplyState<T>>>);

#[derive(Debug)]
struct ReplyState<T> {
    outcome: Option<ReplyOutcome<T>>,
    waker: Option<Waker>,
    receiver_dropped: bool,
    sender_dropped: bool,
}

pub(crate) fn reply_channel<T>() -> (ReplySender<T>, ReplyReceiver<T>) {
    let state = ReplyState { outcome: None, waker: None, receiver_dropped: false, sender_dropped: false };
    let state = Arc::new(Mutex::new(state));
    (ReplySender(state.clone()), ReplyReceiver(state))
}

impl<T> ReplySender<T> {
    /// Sends the final reply. If the receiver is gone, the reply is dropped here, and a dropped lease releases itself.
    pub(crate) fn send(self, reply: Result<T, Error>) {
        self.put(ReplyOutcome::Final(reply));
    }

    /// Reports that the request timed out after it was sent.
    pub(crate) fn send_indeterminate(&self, request_id: String) {
        self.put(ReplyOutcome::Indeterminate(request_id));
    }

    fn put(&self, outcome: ReplyOutcome<T>) {
        let mut state = lock(&self.0);
        let unused = if state.receiver_dropped { Some(outcome) } else { state.outcome.replace(outcome) };
        let waker = state.waker.take();
        drop(state);
        // Outside of the lock: dropping a lease submits its release.
        drop(unused);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.sender_dropped = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for ReplyReceiver<T> {
    type Output = ReplyOutcome<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ReplyOutcome<T>> {
        let mut state = lock(&self.0);
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        if state.sender_dropped {
            return Poll::Ready(ReplyOutcome::Final(Err(client_closed())));
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for ReplyReceiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.receiver_dropped = true;
        let unused = state.outcome.take();
        drop(state);
        drop(unused);
    }
}

fn lock<T>(state: &Mutex<ReplyState<T>>) -> MutexGuard<'_, ReplyState<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Error of every request after the worker has stopped.
pub(crate) fn client_closed() -> Error {
    Error::unavailable("this client was closed").with_next_step("Create a new client.")
}
