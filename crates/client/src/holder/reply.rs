//! How an answer gets from the holder's thread to whoever waits for it, on any runtime or none.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Error;

/// What is said to whoever waits.
#[derive(Debug)]
pub(crate) enum Said<T> {
    /// The answer.
    Done(Result<T, Error>),
    /// Patience is over and the request had left; an answer may still come. The request's id.
    Unknown(String),
}

/// The half that answers.
#[derive(Debug)]
pub(crate) struct Reply<T>(Arc<Mutex<State<T>>>);

/// The half that waits. It can be waited for again after an unknown outcome.
#[derive(Debug)]
pub(crate) struct Told<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    said: Option<Said<T>>,
    waker: Option<Waker>,
    /// Nobody waits any more.
    left: bool,
    /// Nobody answers any more.
    over: bool,
}

pub(crate) fn reply<T>() -> (Reply<T>, Told<T>) {
    let state = Arc::new(Mutex::new(State { said: None, waker: None, left: false, over: false }));
    (Reply(state.clone()), Told(state))
}

impl<T> Reply<T> {
    /// Answers. What nobody waits for is dropped here, and what is dropped gives itself back.
    pub(crate) fn done(self, answer: Result<T, Error>) {
        self.say(Said::Done(answer));
    }

    /// Says that patience is over.
    pub(crate) fn unknown(&self, request_id: String) {
        self.say(Said::Unknown(request_id));
    }

    fn say(&self, said: Said<T>) {
        let mut state = lock(&self.0);
        let unheard = if state.left { Some(said) } else { state.said.replace(said) };
        let waker = state.waker.take();
        drop(state);
        // Outside of the lock: dropping a guard asks for its release.
        drop(unheard);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.over = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Told<T> {
    type Output = Said<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Said<T>> {
        let mut state = lock(&self.0);
        if let Some(said) = state.said.take() {
            return Poll::Ready(said);
        }
        if state.over {
            return Poll::Ready(Said::Done(Err(gone())));
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.left = true;
        let unheard = state.said.take();
        drop(state);
        drop(unheard);
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is told when the holder's thread has ended before it could answer.
pub(crate) fn gone() -> Error {
    Error::unavailable("this client was closed").then("Make a new client.")
}
