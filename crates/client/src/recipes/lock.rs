//! Mutual exclusion: exclusive locks, shared locks, numbered slots, and several locks at once.
//!
//! [`Client::lock`](crate::Client::lock) builds the lock; this module adds [`Lock::try_acquire`] and [`Lock::run_all`].

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};

use crate::{AcquireError, Code, Error, Guard, GuardState, LeaseHandle, Lock, RequestError, RunError};

impl Lock {
    /// Acquires the lease if it is free now; none if others hold it.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, AcquireError> {
        match self.clone().wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(RequestError::Rejected(error)) if error.code() == Some(Code::Busy) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires all leases in one step and runs the work under all of them. The work is dropped when one of them is suspended or
    /// lost, and then all are released.
    pub async fn run_all<T, F, W>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Vec<LeaseHandle>) -> W,
        W: Future<Output = T>,
    {
        let guards = self.acquire_all().await?;
        let handles: Vec<LeaseHandle> = guards.iter().map(|guard| guard.handle().clone()).collect();
        let result = {
            let stopped =
                handles.iter().map(|handle| Box::pin(handle.wait_stopped_since(handle.lease.view().suspensions)));
            let stopped = select_all(stopped);
            let work = pin!(work(handles.clone()));
            // The stop is polled first, so that the work is not polled after its time.
            match select(stopped, work).await {
                Either::Left(((GuardState::Lost(loss), ..), _)) => Err(RunError::Lost(loss)),
                Either::Left(_) => Err(RunError::Suspended),
                Either::Right((output, _)) => Ok(output),
            }
        };
        // The work is finished whatever the releases reply; at the latest, the leases expire by their ttl.
        join_all(guards.into_iter().map(Guard::release)).await;
        Ok(result?)
    }
}

#[cfg(test)]
mod tests;
