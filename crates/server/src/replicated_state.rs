//! The replicated state of a standby. Queries read it as of a position, never below what the caller has seen elsewhere (E1).

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::grantor::{CorruptionError, Grantor};
use leasehold_core::journal_lineage::{LineageVerdict, SeenBatch};
use leasehold_core::lease::Validity;

use crate::journal::{Replay, ReplayedHead};
use crate::recovery::StateReplay;

/// A state that follows the leader's journal.
pub struct StandbyState {
    replay: Mutex<StateReplay>,
}

impl StandbyState {
    /// The empty state.
    pub fn new(validity: Validity) -> Self {
        Self { replay: Mutex::new(StateReplay::new(validity)) }
    }

    fn replay(&self) -> MutexGuard<'_, StateReplay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last batch that the state contains.
    pub fn position(&self) -> u64 {
        self.replay().position()
    }

    /// The result of a query and the position it is valid for; `None` while the state is empty.
    pub fn query<T>(&self, query: impl FnOnce(&Grantor) -> T) -> Option<(T, u64)> {
        let replay = self.replay();
        replay.recovered.view().map(|state| (query(state), replay.position()))
    }

    /// Takes the state for a server that is about to lead; later queries find the empty state.
    pub fn take(&self) -> StateReplay {
        let mut replay = self.replay();
        let empty = StateReplay::new(replay.validity);
        std::mem::replace(&mut *replay, empty)
    }
}

impl Replay for &StandbyState {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.replay().snapshot(sequence, bytes)
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.replay().batch(sequence, bytes)
    }

    fn head(&self) -> Option<ReplayedHead> {
        self.replay().head()
    }

    fn compare(&self, seen: &SeenBatch) -> LineageVerdict {
        self.replay().compare(seen)
    }
}
