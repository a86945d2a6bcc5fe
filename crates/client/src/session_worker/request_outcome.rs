//! Outcome of a request: success, a definite rejection, or an unknown outcome that the caller can resolve.

use std::fmt;
use std::sync::Arc;

use super::WorkerHandle;
use super::job_queue::Job;
use super::job_result::Response;
use super::reply_channel::{ReplyOutcome, ReplyReceiver};
use crate::Error;

/// Why a request did not succeed.
///
/// An unknown outcome is a value of its own: it keeps the request alive and can be resolved (X3). Converting this error into
/// [`Error`], for example with `?`, drops that value. For an acquire request that is safe: a lease that was granted after all
/// is released. Match on [`RequestError::Indeterminate`] where the difference matters.
///
/// Exhaustive on purpose: a request was rejected, or its outcome is unknown.
pub enum RequestError<T> {
    /// The request was refused, or never left this process. Nothing happened beyond what the error says.
    Rejected(Error),
    /// The request was sent and no reply arrived in time. It may have happened.
    Indeterminate(PendingOutcome<T>),
}

impl<T> RequestError<T> {
    /// Converts into an [`Error`]. An unknown outcome is no longer resolved.
    pub fn into_error(self) -> Error {
        match self {
            Self::Rejected(error) => error,
            Self::Indeterminate(pending) => Error::indeterminate(
                "no reply arrived in time; the request may have been executed",
                Some(pending.request_id.clone()),
            ),
        }
    }
}

impl<T> From<Error> for RequestError<T> {
    fn from(error: Error) -> Self {
        Self::Rejected(error)
    }
}

impl<T> From<RequestError<T>> for Error {
    fn from(error: RequestError<T>) -> Self {
        error.into_error()
    }
}

impl<T> fmt::Debug for RequestError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => f.debug_tuple("Rejected").field(error).finish(),
            Self::Indeterminate(pending) => f.debug_tuple("Indeterminate").field(pending).finish(),
        }
    }
}

impl<T> fmt::Display for RequestError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => error.fmt(f),
            Self::Indeterminate(pending) => write!(
                f,
                "INDETERMINATE{{{}}}: no reply arrived in time; resolve the pending outcome or read the current state",
                pending.request_id
            ),
        }
    }
}

impl<T> std::error::Error for RequestError<T> {}

/// A request whose outcome is not known yet. The client keeps sending it under the same request id, so that it is executed at
/// most once. Dropping this gives up: a lease that was granted after all is released.
pub struct PendingOutcome<T> {
    call: PendingCall<T>,
    request_id: String,
}

impl<T> PendingOutcome<T> {
    /// The request id, as `<session>:<sequence>`.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Waits for the outcome again, for another request timeout.
    pub async fn resolve(self) -> Result<T, RequestError<T>> {
        self.call.worker.submit(Job::WaitAgain(self.call.key));
        self.call.outcome().await
    }
}

impl<T> fmt::Debug for PendingOutcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingOutcome").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

/// A submitted request. Dropping it cancels the request, as far as that is possible.
pub(crate) struct PendingCall<T> {
    worker: Arc<WorkerHandle>,
    key: u64,
    receiver: ReplyReceiver<Response>,
    decode: fn(Response) -> Result<T, Error>,
    cancel_on_drop: bool,
}

impl<T> PendingCall<T> {
    pub(super) const fn new(
        worker: Arc<WorkerHandle>,
        key: u64,
        receiver: ReplyReceiver<Response>,
        decode: fn(Response) -> Result<T, Error>,
    ) -> Self {
        Self { worker, key, receiver, decode, cancel_on_drop: true }
    }

    pub(crate) async fn outcome(mut self) -> Result<T, RequestError<T>> {
        match (&mut self.receiver).await {
            ReplyOutcome::Final(reply) => {
                self.cancel_on_drop = false;
                reply.and_then(self.decode).map_err(RequestError::Rejected)
            }
            ReplyOutcome::Indeterminate(request_id) => {
                Err(RequestError::Indeterminate(PendingOutcome { call: self, request_id }))
            }
        }
    }
}

impl PendingCall<()> {
    /// A request that is never canceled, whatever it replies.
    pub(super) const fn uncancellable(worker: Arc<WorkerHandle>, key: u64, receiver: ReplyReceiver<Response>) -> Self {
        Self { worker, key, receiver, decode: |_| Ok(()), cancel_on_drop: false }
    }
}

impl<T> Drop for PendingCall<T> {
    fn drop(&mut self) {
        if self.cancel_on_drop {
            self.worker.submit(Job::Cancel(self.key));
        }
    }
}
