//! The guard: whoever has it holds the lease, and whoever drops it gives the lease back.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use futures::future::{Either, select};
use leasehold_core::holder::{Loss, NextStep};
use leasehold_core::lease::Reason;

use crate::failure::Asked;
use crate::hold::lost;
use crate::holder::{Ask, reply};
use crate::{Error, Failure, Hold, State};

/// A lease that is held. It is renewed from a thread of its own for as long as this lives. Not `Clone`: one hold, one guard.
///
/// Dropping it gives the lease back without waiting for that; [`Guard::release`] waits.
#[must_use = "a guard that is dropped gives its lease back"]
pub struct Guard {
    hold: Hold,
    /// Whether dropping must give back.
    kept: bool,
}

/// Why work under a lease was stopped before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The local deadline passed before the grantor renewed. A successor may begin at any moment.
    Suspended,
    /// The grantor said that it is over.
    Lost(Loss),
}

impl Stopped {
    /// What may follow by itself. Whoever was suspended has given the lease back and may ask for it again; what this program
    /// gave back itself, by closing its client, it does not.
    pub const fn next_step(self) -> NextStep {
        match self {
            Self::Suspended => NextStep::AcquireAgain,
            Self::Lost(Loss::Ended(Reason::Released)) => NextStep::LeaveToCaller,
            Self::Lost(loss) => loss.next_step(),
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("the lease was not renewed in time and the work was stopped; acquire again"),
            Self::Lost(loss) => loss.fmt(f),
        }
    }
}

impl std::error::Error for Stopped {}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Suspended => Self::unavailable(stopped.to_string()).then("Acquire again."),
            Stopped::Lost(loss) => lost(loss),
        }
    }
}

impl Guard {
    pub(crate) const fn new(hold: Hold) -> Self {
        Self { hold, kept: true }
    }

    /// Runs work that stops when the lease does: it is dropped at the local deadline, and the lease is given back only after
    /// the work has returned or was dropped. Work that blocks its thread cannot be stopped; it looks at [`Hold::state`].
    pub async fn run<T, F, W>(self, work: F) -> Result<T, Stopped>
    where
        F: FnOnce(Hold) -> W,
        W: Future<Output = T>,
    {
        let hold = self.hold.clone();
        let before = hold.cell.view().suspensions;
        let ended = {
            let stopped = std::pin::pin!(hold.stopped_since(before));
            let work = std::pin::pin!(work(hold.clone()));
            // Stopping is looked at first, so that work is not polled once more after its time.
            match select(stopped, work).await {
                Either::Left((State::Lost(loss), _)) => Err(Stopped::Lost(loss)),
                Either::Left(_) => Err(Stopped::Suspended),
                Either::Right((done, _)) => Ok(done),
            }
        };
        if ended.is_ok() {
            // The work is done whatever becomes of the release; at the latest the lease ends by its ttl.
            let _ = self.release().await;
        }
        ended
    }

    /// Gives the lease back and waits until that is on record. Everything written under it must have been answered.
    pub async fn release(mut self) -> Result<(), Failure<()>> {
        self.kept = false;
        let (tell, told) = reply();
        let handle = self.hold.handle.clone();
        let key = handle.key();
        handle.put(Ask::Release { key, cell: self.hold.cell.clone(), tell: Some(tell) });
        // A release is never taken back.
        Asked { handle, key, told, read: |_| Ok(()), settled: true }.outcome().await
    }

    /// The lease as the work sees it.
    pub const fn hold(&self) -> &Hold {
        &self.hold
    }
}

impl Deref for Guard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.kept {
            self.hold.handle.put(Ask::Release { key: 0, cell: self.hold.cell.clone(), tell: None });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.hold).finish()
    }
}
