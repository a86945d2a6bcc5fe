//! How a request can fail: told so, or not told at all. What is not known is an answer of its own.

use std::fmt;
use std::sync::Arc;

use crate::Error;
use crate::holder::{Ask, Given, Handle, Said, Told};

/// Why there is no answer that was hoped for.
#[derive(Debug)]
pub enum Failure<T> {
    /// It was refused, or it never left: nothing happened beyond what the error says.
    Told(Error),
    /// The request left and no answer came in time. It may have happened (X3).
    Unknown(Unresolved<T>),
}

impl<T> Failure<T> {
    /// The same as an error; what is still unknown is given up.
    pub fn into_error(self) -> Error {
        match self {
            Self::Told(error) => error,
            Self::Unknown(open) => {
                Error::indeterminate("the answer did not come in time, and it may have happened", Some(open.id.clone()))
            }
        }
    }
}

impl<T> From<Error> for Failure<T> {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl<T> From<Failure<T>> for Error {
    fn from(failure: Failure<T>) -> Self {
        failure.into_error()
    }
}

impl<T> fmt::Display for Failure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told(error) => error.fmt(f),
            Self::Unknown(open) => {
                write!(f, "INDETERMINATE{{{}}}: the answer did not come in time; resolve it, or look", open.id)
            }
        }
    }
}

impl<T: fmt::Debug> std::error::Error for Failure<T> {}

/// A request whose outcome is not known yet. The client goes on asking under the same request id, so that it happens once
/// at most. Dropping this gives up: a lease that was granted after all is given back.
pub struct Unresolved<T> {
    asked: Asked<T>,
    id: String,
}

impl<T> Unresolved<T> {
    /// The request's id, as `<session>:<sequence>`.
    pub fn request_id(&self) -> &str {
        &self.id
    }

    /// Waits for the outcome once more, as long as the client is patient.
    pub async fn resolve(self) -> Result<T, Failure<T>> {
        self.asked.handle.put(Ask::Again(self.asked.key));
        self.asked.outcome().await
    }
}

impl<T> fmt::Debug for Unresolved<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unresolved").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A request on its way. Dropping it takes it back, as far as that is possible.
pub(crate) struct Asked<T> {
    pub(crate) handle: Arc<Handle>,
    pub(crate) key: u64,
    pub(crate) told: Told<Given>,
    pub(crate) read: fn(Given) -> Result<T, Error>,
    pub(crate) settled: bool,
}

impl<T> Asked<T> {
    pub(crate) async fn outcome(mut self) -> Result<T, Failure<T>> {
        match (&mut self.told).await {
            Said::Done(answer) => {
                self.settled = true;
                answer.and_then(self.read).map_err(Failure::Told)
            }
            Said::Unknown(id) => Err(Failure::Unknown(Unresolved { asked: self, id })),
        }
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        if !self.settled {
            self.handle.put(Ask::Dropped(self.key));
        }
    }
}
