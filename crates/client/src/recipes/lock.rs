//! The plain lock: exclusive, shared, one of N slots, several at once. [`Client::lock`](crate::Client::lock) builds it; here
//! is what it lacks: to try, and to work under several.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};

use crate::{Code, Error, Failure, Guard, Hold, Lock, State, Stopped};

impl Lock {
    /// Takes the lease if it is free now: none if others have it.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Failure<Guard>> {
        match self.clone().wait(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(Failure::Told(error)) if error.code() == Some(Code::Busy) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Takes all of them in one step and runs the work under all: it is dropped as soon as one of them cannot be kept, and
    /// then all are given back.
    pub async fn run_all<T, F, W>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Vec<Hold>) -> W,
        W: Future<Output = T>,
    {
        let guards = self.acquire_all().await.map_err(Failure::into_error)?;
        let holds: Vec<Hold> = guards.iter().map(|guard| guard.hold().clone()).collect();
        let ended = {
            let stopped = holds.iter().map(|hold| Box::pin(hold.stopped_since(hold.cell.view().suspensions)));
            let stopped = select_all(stopped);
            let work = pin!(work(holds.clone()));
            // Stopping is looked at first, so that work is not polled once more after its time.
            match select(stopped, work).await {
                Either::Left(((State::Lost(loss), ..), _)) => Err(Stopped::Lost(loss)),
                Either::Left(_) => Err(Stopped::Suspended),
                Either::Right((done, _)) => Ok(done),
            }
        };
        // The work is over whatever becomes of the releases; at the latest the leases end by their ttl.
        join_all(guards.into_iter().map(Guard::release)).await;
        Ok(ended?)
    }
}

#[cfg(test)]
mod tests;
