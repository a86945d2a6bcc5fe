//! Recovery of the state: the newest snapshot, then every batch after it.
//!
//! A server replays once before it leads, a standby replays continuously, and the snapshotter replays in the background.

use leasehold_core::grantor::{ChangeSink, CorruptionError, RecoveredGrantor};
use leasehold_core::journal_lineage::{Lineage, LineageVerdict, SeenBatch, TenureStart};
use leasehold_core::lease::Validity;

use crate::audit::{self, AuditHead};
use crate::journal::{AuditFiles, FIRST, Replay, ReplayedHead};
use crate::random;
use crate::snapshot_file::SnapshotFile;

/// The part of the journal after the newest snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    /// Bytes of the snapshot.
    pub snapshot: u64,
    /// Bytes of the batches after it.
    pub bytes: u64,
    /// Number of the batches after it.
    pub batches: u64,
}

/// A state that is built from the journal.
pub struct StateReplay {
    /// The state.
    pub recovered: RecoveredGrantor,
    /// What was replayed after the newest snapshot.
    pub backlog: Backlog,
    /// What the validity of leases rests on with this journal.
    pub validity: Validity,
    /// The openings of the journal.
    pub lineage: Lineage,
    /// The end of the audit log when the newest snapshot was taken, if it contains that.
    pub audit: Option<AuditHead>,
    hash_seed: u64,
    position: u64,
}

impl StateReplay {
    /// The empty state.
    pub fn new(validity: Validity) -> Self {
        let hash_seed = u64::from_ne_bytes(random::bytes());
        let recovered = RecoveredGrantor::empty(hash_seed).with_validity(validity);
        Self {
            recovered,
            backlog: Backlog::default(),
            validity,
            lineage: Lineage::starting_at(FIRST),
            audit: None,
            hash_seed,
            position: FIRST - 1,
        }
    }

    /// The last batch that the state contains; zero if it is empty.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Applies a batch and passes its changes to `changes`.
    pub fn apply(
        &mut self,
        sequence: u64,
        batch: &[u8],
        changes: Option<ChangeSink<'_>>,
    ) -> Result<(), CorruptionError> {
        let before = self.recovered.info();
        self.recovered.apply_with_changes(batch, changes)?;
        self.backlog.bytes += batch.len() as u64;
        self.backlog.batches += 1;
        self.position = sequence;
        let after = self.recovered.info();
        if before.map(|info| info.generation) != after.map(|info| info.generation) {
            let is_new = before.map(|info| info.incarnation) != after.map(|info| info.incarnation);
            self.lineage.opened(TenureStart { sequence, digest: self.recovered.chain() }, is_new);
        }
        Ok(())
    }
}

impl Replay for StateReplay {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        let file = SnapshotFile::decode(bytes, sequence)?;
        self.recovered = RecoveredGrantor::from_snapshot(file.state, self.hash_seed)?.with_validity(self.validity);
        self.backlog = Backlog { snapshot: bytes.len() as u64, ..Backlog::default() };
        (self.lineage, self.audit) = (file.lineage, file.audit);
        self.position = sequence;
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.apply(sequence, bytes, None)
    }

    fn head(&self) -> Option<ReplayedHead> {
        let (opening, incarnation) = (self.lineage.opening(), self.lineage.incarnation());
        let digest = self.recovered.chain();
        (self.position >= FIRST).then_some(ReplayedHead { digest, opening, incarnation })
    }

    fn audited(&self, files: &dyn AuditFiles) -> Option<(u64, String)> {
        audit::proven_position(files)
    }

    fn compare(&self, seen: &SeenBatch) -> LineageVerdict {
        self.lineage.compare(seen, self.position)
    }
}
