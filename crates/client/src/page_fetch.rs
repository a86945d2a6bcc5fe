//! Shared part of the streams that fetch one page after the other.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Error;

type FetchFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The page that is being fetched, if any. Dropping a pending `next` of the stream loses nothing: the fetch continues with the
/// next poll.
pub(crate) struct PageFetch<T>(Option<FetchFuture<T>>);

impl<T> PageFetch<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Polls the current fetch; `start` begins one if there is none.
    pub(crate) fn poll<F>(&mut self, context: &mut Context<'_>, start: impl FnOnce() -> F) -> Poll<Result<T, Error>>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let fetch = self.0.get_or_insert_with(|| Box::pin(start()));
        let page = ready!(fetch.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(page)
    }
}

impl<T> fmt::Debug for PageFetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PageFetch").field(&self.0.is_some()).finish()
    }
}
