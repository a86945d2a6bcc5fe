//! The attempts of one call: pauses between them, the time limit, and the error to return if all of them failed.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use super::failure::Failure;
use crate::Error;

/// Pause after a conflict, and the first pause after other failures. That one doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(640);
/// How long one request waits for its reply, unless less time is left.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one request waits at least, also if less time is left.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request whose outcome is unknown is repeated. DynamoDB remembers its request token for ten minutes.
const REPEAT_LIMIT: Duration = Duration::from_secs(300);

/// All attempts of one call.
#[derive(Debug)]
pub(super) struct Attempts {
    began: Instant,
    /// The monotonic clock stops while a machine is suspended, and DynamoDB's does not.
    wall: SystemTime,
    timeout: Duration,
    pause: Duration,
    /// The failure of an attempt that may have been applied.
    unconfirmed: Option<Error>,
    /// The last failure that was not a conflict with other writers.
    last: Option<Error>,
}

impl Attempts {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            began: Instant::now(),
            wall: SystemTime::now(),
            timeout,
            pause: FIRST_PAUSE,
            unconfirmed: None,
            last: None,
        }
    }

    /// Sends a request and waits for its reply within the time limit.
    pub(super) async fn send<T>(&self, request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let left = self.timeout.saturating_sub(self.began.elapsed());
        let limit = left.clamp(MIN_REQUEST_TIMEOUT, REQUEST_TIMEOUT);
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(Failure::no_reply(limit)))
    }

    /// Sends a request that changes nothing, until it has a reply.
    pub(super) async fn read<T, F>(&mut self, request: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        loop {
            match self.send(request()).await {
                Ok(reply) => return Ok(reply),
                Err(Failure::Unknown(error)) => self.last = Some(error),
                Err(failure) => self.note(failure)?,
            }
            self.pause().await?;
        }
    }

    /// Notes why an attempt failed. Returns the error if a retry is useless.
    pub(super) fn note(&mut self, failure: Failure) -> Result<(), Error> {
        match failure {
            Failure::Condition | Failure::Conflict => {
                self.last = None;
                self.pause = FIRST_PAUSE;
            }
            Failure::Throttled(reason) => {
                let waited = self.began.elapsed();
                let message =
                    format!("DynamoDB had no capacity for {waited:?}: {reason}; raise the capacity, then retry");
                self.last = Some(Error::Rejected { code: "UNAVAILABLE", message });
            }
            Failure::Unknown(error) => self.unconfirmed = Some(error),
            Failure::Rejected(error) => return Err(self.unconfirmed.take().unwrap_or(error)),
        }
        Ok(())
    }

    /// Waits before the next attempt. Returns an error if the time limit has passed.
    pub(super) async fn pause(&mut self) -> Result<(), Error> {
        let waited = self.began.elapsed();
        let repeatable = waited.max(self.wall.elapsed().unwrap_or_default()) < REPEAT_LIMIT;
        if waited >= self.timeout || (self.unconfirmed.is_some() && !repeatable) {
            let error = self.unconfirmed.take().or(self.last.take());
            return Err(error.unwrap_or(Error::Blocked { waited, blockers: Vec::new() }));
        }
        tokio::time::sleep(self.pause.min(self.timeout - waited)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// The error of an attempt that may have been applied, instead of one that would deny it.
    pub(super) fn unconfirmed_or(&mut self, error: Error) -> Error {
        self.unconfirmed.take().unwrap_or(error)
    }
}
