//! The state that a server keeps warm while it stands by, and looks at it: each as of a position, and none below what its
//! reader has seen elsewhere (E1).

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::grantor::{Corrupt, Grantor};
use leasehold_core::lease::Rung;

use crate::entrance::Fold;
use crate::journal::Replay;

/// A state that follows another server's.
pub struct Following {
    followed: Mutex<Followed>,
}

struct Followed {
    fold: Fold,
    /// The batch up to which all is in it.
    position: u64,
}

impl Following {
    /// Nothing is known yet.
    pub fn new(rung: Rung) -> Self {
        Self { followed: Mutex::new(Followed { fold: Fold::over(rung), position: 0 }) }
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The batch up to which everything is known.
    pub fn position(&self) -> u64 {
        self.followed().position
    }

    /// What is seen, and of which position that is true; none if nothing is known yet.
    pub fn look<T>(&self, look: impl FnOnce(&Grantor) -> T) -> Option<(T, u64)> {
        let followed = self.followed();
        followed.fold.recovered.seen().map(|state| (look(state), followed.position))
    }

    /// The state, for whoever leads from now on. What is asked here later finds nothing.
    pub fn take(&self) -> Fold {
        let mut followed = self.followed();
        let rung = followed.fold.rung;
        followed.position = 0;
        std::mem::replace(&mut followed.fold, Fold::over(rung))
    }
}

impl Replay for &Following {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let mut followed = self.followed();
        followed.fold.snapshot(sequence, bytes)?;
        followed.position = sequence;
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let mut followed = self.followed();
        followed.fold.batch(sequence, bytes)?;
        followed.position = sequence;
        Ok(())
    }
}
