//! Leader election: one candidate leads, the others wait, and everyone can observe the leader. A leader that shuts down hands
//! off without waiting for an expiry.

mod observe;

pub use observe::{Leader, LeaderUpdates};

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, select};
use leasehold_core::holder::NextStep;
use leasehold_core::limits::WAIT_MAX;

use crate::{Client, Code, Error, Guard, HandoffOptions, LeaseHandle, Lock, RequestError, RunError};

/// An election: the holder of its resource leads.
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until `campaign` or `lead`"]
pub struct Election {
    client: Client,
    resource: String,
    lock: Lock,
}

impl Client {
    /// An election on a resource.
    pub fn election(&self, resource: impl Into<String>) -> Election {
        let resource = resource.into();
        let lock = self.lock(resource.as_str()).wait(Duration::from_millis(WAIT_MAX));
        Election { client: self.clone(), resource, lock }
    }
}

impl Election {
    /// Ttl of the leader's lease: how long there is no leader if the leader disappears.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Candidates with a higher priority are elected first.
    pub fn priority(mut self, priority: u8) -> Self {
        self.lock = self.lock.priority(priority);
        self
    }

    /// Metadata that observers see while this candidate leads, for example its address.
    pub fn metadata(mut self, text: &str) -> Self {
        self.lock = self.lock.metadata(text);
        self
    }

    /// Waits until this client leads, without a time limit. Dropping the future withdraws the candidacy.
    pub async fn campaign(&self) -> Result<LeaderGuard, Error> {
        loop {
            match self.lock.acquire().await.map_err(RequestError::into_error) {
                Ok(guard) => return Ok(LeaderGuard { guard }),
                Err(error) if error.code() == Some(Code::Timeout) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Campaigns and leads, again and again, until the work is finished or `stop` completes. After a revocation it does not
    /// campaign again.
    ///
    /// On `stop` it hands off: the work sees [`LeaseHandle::draining`] and finishes, and the successor starts as soon as it has.
    /// Returns none if no work was running.
    pub async fn lead<T, F, W>(&self, stop: impl Future<Output = ()>, mut work: F) -> Result<Option<T>, Error>
    where
        F: FnMut(LeaseHandle) -> W,
        W: Future<Output = T>,
    {
        let mut stop = pin!(stop);
        loop {
            let elected = match select(stop.as_mut(), pin!(self.campaign())).await {
                Either::Left(_) => return Ok(None),
                Either::Right((elected, _)) => elected?,
            };
            let handle = elected.handle().clone();
            let leading = pin!(elected.guard.run(&mut work));
            match select(stop.as_mut(), leading).await {
                Either::Left(((), leading)) => {
                    // If the handoff cannot start, the lease is released when the work returns.
                    let (_, result) = join(handle.handoff(HandoffOptions::new()), leading).await;
                    return Ok(result.ok());
                }
                Either::Right((Ok(output), _)) => return Ok(Some(output)),
                Either::Right((Err(stopped), _)) if stopped.next_step() == NextStep::AcquireAgain => {}
                Either::Right((Err(stopped), _)) => return Err(stopped.into()),
            }
        }
    }
}

/// The leadership of this client. The leader presents its token with every write. Dropping it resigns without waiting.
#[must_use = "dropping a leadership resigns"]
pub struct LeaderGuard {
    guard: Guard,
}

impl LeaderGuard {
    /// Resigns and waits for the confirmation. The next candidate leads immediately.
    pub async fn resign(self) -> Result<(), RequestError<()>> {
        self.guard.release().await
    }

    /// Hands off as planned: starts the handoff, runs `finish`, and then lets the successor lead. In an overlap the successor is
    /// elected immediately, and claims when `finish` is done. What does not finish within the drain period is stopped.
    pub async fn handoff<W: Future>(self, options: HandoffOptions, finish: W) -> Result<W::Output, RunError> {
        // If the handoff cannot start, the lease is released after `finish`.
        let _ = self.guard.handoff(options).await;
        self.guard.run(|_| finish).await
    }

    /// Converts into the guard of the lease.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// A handle for the work, which can be cloned.
    pub const fn handle(&self) -> &LeaseHandle {
        self.guard.handle()
    }
}

impl Deref for LeaderGuard {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.guard.handle()
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaderGuard").field(self.guard.handle()).finish()
    }
}

#[cfg(test)]
mod tests;
