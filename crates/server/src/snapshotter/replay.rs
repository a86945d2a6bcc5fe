//! Replay of the journal for the snapshotter: it rebuilds the state and writes the audit log of every batch.

use std::ops::ControlFlow;

use leasehold_core::grantor::{AuditChange, CorruptionError, JournalInfo};
use leasehold_core::lease::Validity;
use leasehold_core::record::BatchHeader;
use leasehold_core::token::Cluster;

use super::{SnapshotError, SnapshotHandle};
use crate::audit::{self, AuditHead, AuditQuery, AuditWriter, BatchStep};
use crate::journal::{AuditFiles, Replay, SnapshotStore};
use crate::recovery::{Backlog, StateReplay};
use crate::snapshot_file::SnapshotFile;

/// The state after a durable batch.
#[derive(Debug)]
pub struct StateSnapshot {
    /// The batch.
    pub sequence: u64,
    /// The encoded state.
    pub bytes: Vec<u8>,
    /// Cluster, incarnation and counters of the state.
    pub about: JournalInfo,
    /// Number of audit entries and the hash of the last one.
    pub audit: (u64, [u8; 32]),
}

/// A replay that writes the audit log.
pub(super) struct AuditedReplay {
    // A snapshot does not contain the validity, so any value does.
    replay: StateReplay,
}

impl AuditedReplay {
    /// Starts at the newest snapshot.
    pub async fn load<S: SnapshotStore>(store: &S) -> Result<Self, SnapshotError> {
        let mut replay = StateReplay::new(Validity::Session);
        if let Some((sequence, bytes)) = store.newest().await? {
            replay.snapshot(sequence, &bytes).map_err(|error| corrupt(sequence, error))?;
        }
        Ok(Self { replay })
    }

    /// Replays what is durable now and writes the audit log of it. Ends early when the server shuts down.
    ///
    /// `signed` is the newest signed head. Entries up to it that are missing are derived again if the journal still has their batches.
    pub async fn catch_up<S: SnapshotStore>(
        &mut self,
        store: &S,
        handle: &SnapshotHandle,
        writer: &mut AuditWriter,
        mut signed: Option<AuditHead>,
    ) -> Result<(), SnapshotError> {
        let saved = self.replay.audit.take();
        let is_lost = |known: Option<AuditHead>| known.is_some_and(|known| known.entries > writer.head().entries);
        let cannot_derive = is_lost(saved) || self.replay.position() > writer.head().position;
        if cannot_derive && is_lost(signed) {
            // The later one, so that no number up to it is used again.
            let known = [saved, signed.take()].into_iter().flatten().max_by_key(|known| known.entries);
            known.map_or(Ok(()), |known| self.check_audit_log(store, writer, known))?;
        } else if let Some(known) = saved {
            self.check_audit_log(store, writer, known)?;
        }
        if self.replay.position() > writer.head().position {
            self.write_gap(store, writer, "the journal no longer contains these batches")?;
        }
        let (from, mut failure) = (self.replay.position() + 1, None);
        let mut each = |sequence: u64, batch: &[u8]| match self.step(store, handle, writer, sequence, batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        };
        store.tail(from, &mut each).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        if writer.head().position > self.replay.position() {
            self.write_gap(store, writer, "the journal ends before the audit log")?;
        }
        self.finish(store, writer)?;
        if let Some(known) = signed {
            self.check_audit_log(store, writer, known)?;
            self.finish(store, writer)?;
        }
        Ok(())
    }

    fn finish(&self, files: &dyn AuditFiles, writer: &mut AuditWriter) -> Result<(), SnapshotError> {
        let (cluster, header) = self.batch_header()?;
        let step = BatchStep { cluster, position: self.replay.position(), step: 0, header: &header };
        Ok(writer.finish(files, step, self.replay.recovered.chain())?)
    }

    /// Compares the audit log with an end that the newest snapshot or a signed head names. What is missing is not replaced, and its numbers are not
    /// used again; a gap entry says so.
    fn check_audit_log(
        &self,
        files: &dyn AuditFiles,
        writer: &mut AuditWriter,
        known: AuditHead,
    ) -> Result<(), SnapshotError> {
        let head = writer.head();
        if head.entries < known.entries {
            let cause = format!("the audit log lost entries {} to {}", head.entries + 1, known.entries);
            writer.resume_after(known);
            return self.write_gap(files, writer, &cause);
        }
        let (after, before) = (known.entries.saturating_sub(1), known.entries + 1);
        let only = AuditQuery { after, before, limit: 1, ..AuditQuery::default() };
        match audit::query(files, head, &only, None)?.entries.first() {
            Some((_, hash)) if *hash != known.hash => {
                let cause = format!("entry {} of the audit log was changed after it was written", known.entries);
                self.write_gap(files, writer, &cause)
            }
            // It matches, or the retention has removed it.
            _ => Ok(()),
        }
    }

    fn step(
        &mut self,
        files: &dyn AuditFiles,
        handle: &SnapshotHandle,
        writer: &mut AuditWriter,
        sequence: u64,
        batch: &[u8],
    ) -> Result<(), SnapshotError> {
        if handle.is_stopping() {
            return Err(SnapshotError::Stopping);
        }
        let head = writer.head();
        if sequence > head.position {
            self.apply_and_audit(files, writer, sequence, batch)?;
        } else {
            self.replay.apply(sequence, batch, None).map_err(|error| corrupt(sequence, error))?;
        }
        let differs = writer.batch_hash().is_some_and(|hash| hash != self.replay.recovered.chain());
        if sequence == head.position && differs {
            self.write_gap(files, writer, "the journal contains another batch than the audit log")?;
        }
        Ok(())
    }

    fn apply_and_audit(
        &mut self,
        files: &dyn AuditFiles,
        writer: &mut AuditWriter,
        position: u64,
        batch: &[u8],
    ) -> Result<(), SnapshotError> {
        let cluster = match self.replay.recovered.cluster() {
            Some(cluster) => cluster,
            // The first batch of a journal names the cluster.
            None => {
                let mut first = StateReplay::new(Validity::Session);
                first.batch(position, batch).map_err(|error| corrupt(position, error))?;
                first.recovered.cluster().ok_or_else(|| no_cluster(position))?
            }
        };
        let (mut step, mut written) = (0, Ok(()));
        let mut each = |header: &BatchHeader, change: &AuditChange<'_>| {
            if written.is_ok() {
                written = writer.write(files, BatchStep { cluster, position, step, header }, change);
                step += 1;
            }
        };
        let applied = self.replay.apply(position, batch, Some(&mut each));
        applied.map_err(|error| corrupt(position, error))?;
        Ok(written?)
    }

    fn write_gap(&self, files: &dyn AuditFiles, writer: &mut AuditWriter, cause: &str) -> Result<(), SnapshotError> {
        let (cluster, header) = self.batch_header()?;
        let step = BatchStep { cluster, position: self.replay.position(), step: 0, header: &header };
        Ok(writer.skip_to(files, step, cause)?)
    }

    fn batch_header(&self) -> Result<(Cluster, BatchHeader), SnapshotError> {
        let about = self.info()?;
        let header = BatchHeader { chain: self.replay.recovered.chain(), time: about.time, wall: about.wall };
        Ok((about.cluster, header))
    }

    fn info(&self) -> Result<JournalInfo, SnapshotError> {
        self.replay.recovered.info().ok_or_else(|| no_cluster(self.replay.position()))
    }

    /// What was replayed after the newest snapshot.
    pub fn backlog(&self) -> Backlog {
        self.replay.backlog
    }

    /// The state was saved as a snapshot of `bytes` bytes.
    pub fn saved(&mut self, bytes: u64) {
        self.replay.backlog = Backlog { snapshot: bytes, ..Backlog::default() };
    }

    /// Whether the state takes about `bytes` bytes or fewer.
    pub fn is_small(&self, bytes: u64) -> bool {
        self.replay.backlog.snapshot + self.replay.backlog.bytes <= bytes
    }

    /// The content of the snapshot's file. The end of the audit log belongs to it only if the log is stored with the journal.
    pub fn snapshot_file(&self, snapshot: &StateSnapshot, audit: Option<AuditHead>) -> Vec<u8> {
        SnapshotFile { lineage: self.replay.lineage.clone(), audit, state: &snapshot.bytes }.encode()
    }

    /// The encoded state.
    pub fn snapshot(&self, head: AuditHead) -> Result<StateSnapshot, SnapshotError> {
        let (about, audit) = (self.info()?, (head.entries, head.hash));
        Ok(StateSnapshot { sequence: self.replay.position(), about, audit, bytes: self.replay.recovered.snapshot() })
    }
}

fn no_cluster(sequence: u64) -> SnapshotError {
    SnapshotError::Corrupt { sequence, reason: "no record creates a cluster".to_owned() }
}

fn corrupt(sequence: u64, error: CorruptionError) -> SnapshotError {
    SnapshotError::Corrupt { sequence, reason: error.to_string() }
}
