//! The guard: owns a held lease, keeps it renewed, and releases it when dropped.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use futures::future::{Either, select};
use leasehold_core::command::{Command, LeaseRef};
use leasehold_core::holder::{Loss, NextStep};
use leasehold_core::lease::EndReason;

use crate::session_worker::OwnedLease;
use crate::{Error, GuardState, LeaseHandle, RequestError};

/// A held lease. A background thread renews it while the guard lives. Not `Clone`: a lease has one guard; clone its
/// [`LeaseHandle`] instead.
///
/// Dropping the guard releases the lease without waiting; [`Guard::release`] waits.
#[must_use = "dropping a guard releases its lease"]
pub struct Guard {
    owned: OwnedLease,
    handle: LeaseHandle,
}

/// Why work under a lease was stopped before it finished.
///
/// Exhaustive on purpose: a new state would change what work may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The local deadline passed before the grantor renewed the lease. A successor may start at any moment.
    Suspended,
    /// The grantor ended the lease.
    Lost(Loss),
}

impl RunError {
    /// What the program may do by itself. After a suspension the lease is released and may be acquired again; a lease that this
    /// program released by closing its client is not.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Suspended => NextStep::AcquireAgain,
            Self::Lost(Loss::Ended(EndReason::Released)) => NextStep::LeaveToCaller,
            Self::Lost(loss) => loss.next_step(),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("the lease was not renewed in time and the work was stopped; acquire again"),
            Self::Lost(loss) => loss.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Suspended => Self::unavailable(error.to_string()).with_next_step("Acquire again."),
            RunError::Lost(loss) => loss.into(),
        }
    }
}

impl Guard {
    pub(crate) fn new(owned: OwnedLease) -> Self {
        let handle = LeaseHandle { lease: owned.lease.clone(), worker: owned.worker.clone() };
        Self { owned, handle }
    }

    /// Runs work that stops when the lease does: the future is dropped at the local deadline. The lease is released only after
    /// the work has returned or was dropped. Work that blocks its thread cannot be stopped; let it check
    /// [`LeaseHandle::state`].
    ///
    /// For work that returns a `Result`, see [`Guard::run_try`].
    pub async fn run<T, F, W>(self, work: F) -> Result<T, RunError>
    where
        F: FnOnce(LeaseHandle) -> W,
        W: Future<Output = T>,
    {
        let handle = self.handle.clone();
        let before = handle.lease.view().suspensions;
        let result = {
            let stopped = std::pin::pin!(handle.wait_stopped_since(before));
            let work = std::pin::pin!(work(handle.clone()));
            // The stop is polled first, so that the work is not polled after its time.
            match select(stopped, work).await {
                Either::Left((GuardState::Lost(loss), _)) => Err(RunError::Lost(loss)),
                Either::Left(_) => Err(RunError::Suspended),
                Either::Right((output, _)) => Ok(output),
            }
        };
        match result {
            Ok(output) => {
                // The work is finished whatever the release replies; at the latest, the lease expires by its ttl.
                let _ = self.release().await;
                Ok(output)
            }
            // The local deadline of an announced end comes before the end. It may be a revocation, after which the program does
            // not acquire again by itself (L6): only the grantor knows.
            Err(RunError::Suspended) if handle.draining().is_some() => Err(match self.release_with_reason().await {
                Ok(EndReason::Released) => RunError::Suspended,
                Ok(reason) => RunError::Lost(Loss::Ended(reason)),
                Err(_) => RunError::Lost(Loss::NotCurrent),
            }),
            Err(stopped) => Err(stopped),
        }
    }

    /// Like [`Guard::run`], for work that can fail. The caller's error type receives both kinds of errors:
    ///
    /// ```no_run
    /// # async fn write(_token: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(client: leasehold::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = client.lock("jobs/settle").acquire().await?;
    /// guard.run_try(|lease| async move { Ok::<_, Box<dyn std::error::Error>>(write(&lease.token()).await?) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_try<T, E, F, W>(self, work: F) -> Result<T, E>
    where
        E: From<RunError>,
        F: FnOnce(LeaseHandle) -> W,
        W: Future<Output = Result<T, E>>,
    {
        self.run(work).await?
    }

    /// Releases the lease and waits for the confirmation. All writes under it must have been acknowledged.
    ///
    /// The release is sent even if this future is dropped.
    pub async fn release(mut self) -> Result<(), RequestError<()>> {
        self.owned.disarm();
        self.owned.worker.release(self.owned.lease.clone()).outcome().await
    }

    /// Releases the lease like [`Guard::release`], and returns how it ended according to the grantor: a release does not change
    /// the reason of an end that was announced before, such as a revocation with a grace period (L6).
    pub async fn release_with_reason(self) -> Result<EndReason, Error> {
        let (worker, lease) = (self.owned.worker.clone(), LeaseRef::by_id(self.lease_id(), self.token_number()));
        if let Err(error) = self.release().await.map_err(RequestError::into_error) {
            return error.end_reason().ok_or(error);
        }
        match worker.session_call(&Command::Confirm(lease)).await.map_err(RequestError::into_error) {
            Ok(_) => Err(Error::invalid_reply("a released lease that is still held")),
            Err(error) => error.end_reason().ok_or(error),
        }
    }

    /// A handle for the work, which can be cloned.
    pub const fn handle(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl Deref for Guard {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.handle).finish()
    }
}
