//! Durable storage of records: the [`Journal`] trait, its obligations, and its implementations in files, in etcd and in memory.

pub mod conformance;
mod error;
pub mod etcd;
pub mod file;
pub mod memory;

use std::future::Future;
use std::ops::ControlFlow;

use leasehold_core::grantor::CorruptionError;
use leasehold_core::journal_lineage::{LineageVerdict, SeenBatch, TenureStart};

pub use error::{EtcdOpenError, JournalError, KeyMismatch, OpenError, ReadError};

/// Largest batch in bytes. A turn stays far below it.
pub const BATCH_BYTES: usize = 128 << 20;

/// Sequence of a journal's first batch.
pub const FIRST: u64 = 1;

/// One writer's authority over a journal. The grantor is the holder, the journal its target.
///
/// Obligations of every journal, checked by [`conformance::run`]:
///
/// 1. **Opening fences.** [`JournalLocation::open`] ends the authority of every earlier writer, or is refused while one lives.
/// 2. **Generations rise.** Every open has a higher generation than all before it, and that is durable when it returns.
/// 3. **Replay is complete and in order.** An open replays the newest snapshot, then every batch after it, each once, by
///    rising sequence without a gap; [`next`](Self::next) is the sequence after the last.
/// 4. **Durable batches are replayed.** A batch that returned [`AppendOutcome::Durable`] is in every later replay, byte for byte,
///    after a kill and after a power loss, until a durable snapshot covers it.
/// 5. **Only appended batches are replayed.** A replay contains only batches that were passed to `append`, and none that returned
///    [`AppendOutcome::Fenced`]. At most the last batch may be one whose append never returned.
/// 6. **A resend is harmless.** The last batch again, with the same bytes, is durable and stored once; other bytes
///    under its sequence return [`AppendOutcome::Fenced`] and change nothing.
/// 7. **A fenced writer changes nothing.** Its `append`, `confirm`, `save` and `trim` return fenced, permanently.
/// 8. **Confirm is linearizable.** [`WriterStatus::Current`] means that no other open had returned when the call was made.
/// 9. **Snapshots replace batches.** After `save(n)` was durable, an open replays that snapshot or a later one, and no
///    batch up to it.
/// 10. **Trim removes only covered batches.** It removes no batch that a durable snapshot does not cover.
/// 11. **Tail reads durable batches** from a sequence on, in order; it fails if the sequence was trimmed.
/// 12. **Snapshots are independent of appends.** Saving, trimming and reading on another thread neither stop nor reorder appends.
/// 13. **A full journal has changed nothing**, and accepts the same batch when there is space again.
/// 14. **A failed sync is final.** It is never retried: after [`JournalError::Failed`] every call fails, and the process
///     must stop (V3).
/// 15. **Synced audit files are durable.** Bytes for which [`AuditFiles::sync`] or [`AuditFiles::create`] returned durable are read
///     back, byte for byte, after a kill and a power loss, until the file is removed.
///
/// A wrong sequence, an empty batch and a batch above [`BATCH_BYTES`] are bugs of the caller and panic.
pub trait Journal: Send + Sized {
    /// Snapshots and audit files, usable from any thread, concurrently with appends.
    type Snapshots: SnapshotStore;

    /// Generation of this writer, higher than that of every writer before it.
    fn generation(&self) -> u64;

    /// Sequence of the next append.
    fn next(&self) -> u64;

    /// Makes the batch durable under its sequence, unless this writer is fenced.
    fn append(
        &mut self,
        sequence: u64,
        batch: &[u8],
    ) -> impl Future<Output = Result<AppendOutcome, JournalError>> + Send;

    /// Confirms this writer's authority, for a turn that has nothing to append.
    fn confirm(&mut self) -> impl Future<Output = Result<WriterStatus, JournalError>> + Send;

    /// Space left. Checked at the start of a turn, so that new grants are refused in time (V4).
    fn disk_space(&mut self) -> Result<DiskSpace, JournalError>;

    /// Access to snapshots, batches and audit files.
    fn snapshots(&self) -> Self::Snapshots;

    /// Records that nothing more is appended. Called once, after the last append of a clean stop.
    fn close(&mut self) {}
}

/// Snapshots and the batches after them, usable from any thread, concurrently with appends.
pub trait SnapshotStore: AuditFiles + Clone + Send + Sync + 'static {
    /// Makes a snapshot durable: the state after the batch of this sequence, which must be durable. A snapshot that is not newer
    /// than the newest one changes nothing.
    fn save(&self, sequence: u64, snapshot: &[u8]) -> impl Future<Output = Result<AppendOutcome, JournalError>> + Send;

    /// Removes batches up to a sequence, as far as durable snapshots cover them. A journal may retain more.
    fn trim(&self, up_to: u64) -> impl Future<Output = Result<AppendOutcome, JournalError>> + Send;

    /// The newest durable snapshot and its sequence.
    fn newest(&self) -> impl Future<Output = Result<Option<(u64, Vec<u8>)>, ReadError>> + Send;

    /// Passes the durable batches from a sequence on to `each`, until the end or until it breaks. Returns the next sequence.
    fn tail(&self, from: u64, each: BatchVisitor<'_>) -> impl Future<Output = Result<u64, ReadError>> + Send;
}

/// Numbered files of the audit log. They are appended to and removed as a whole. One thread writes; any thread reads.
pub trait AuditFiles: Send + Sync {
    /// Numbers and lengths of the files, in order.
    fn files(&self) -> Result<Vec<(u64, u64)>, ReadError>;

    /// Fills the buffer from an offset of a file, or as much of it as the file has.
    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, ReadError>;

    /// Creates a file with these bytes, durable under its number; replaces an existing one.
    fn create(&self, number: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError>;

    /// Writes at an offset of an existing file.
    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<AppendOutcome, JournalError>;

    /// Makes the writes to a file durable.
    fn sync(&self, number: u64) -> Result<AppendOutcome, JournalError>;

    /// Removes a file.
    fn remove(&self, number: u64) -> Result<AppendOutcome, JournalError>;

    /// Name of a file in messages.
    fn label(&self, number: u64) -> String;

    /// The stored heads of the audit log, as they were put; empty if there are none.
    fn heads(&self) -> Result<Vec<u8>, ReadError>;

    /// Replaces the stored heads as a whole, durably.
    fn put_heads(&self, bytes: &[u8]) -> Result<AppendOutcome, JournalError>;

    /// Whether the files are stored with the journal and its snapshots; otherwise every server has its own.
    fn is_local(&self) -> bool {
        true
    }

    /// Limit on the bytes of all files, regardless of the configured retention.
    fn max_bytes(&self) -> u64;
}

/// Receives sequence and bytes of each batch of [`SnapshotStore::tail`].
pub type BatchVisitor<'a> = &'a mut (dyn FnMut(u64, &[u8]) -> ControlFlow<()> + Send);

/// Location of a journal: a directory, a prefix in etcd, or memory.
pub trait JournalLocation {
    /// The journal at this location.
    type Journal: Journal;

    /// Opens the journal for writing and replays it to `replay`.
    fn open(
        &self,
        replay: &mut (dyn Replay + Send),
    ) -> impl Future<Output = Result<OpenedJournal<Self::Journal>, OpenError>> + Send;
}

/// Receives the content of a journal, once and in order. An error is reported with file and offset.
pub trait Replay {
    /// The state after the batch of this sequence. It is first, if there is one.
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError>;

    /// The next batch.
    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError>;

    /// What identifies the last batch by content; `None` if nothing was replayed, or if the state is not kept.
    fn head(&self) -> Option<ReplayedHead> {
        None
    }

    /// The last batch that the audit log was derived from, and the file that proves it: that batch was durable.
    fn audited(&self, _files: &dyn AuditFiles) -> Option<(u64, String)> {
        None
    }

    /// Compares a batch that a server has seen with what was replayed.
    fn compare(&self, _seen: &SeenBatch) -> LineageVerdict {
        LineageVerdict::Unknown
    }
}

/// The last replayed batch, by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedHead {
    /// Digest of the batch.
    pub digest: [u8; 32],
    /// The opening of its tenure, if it is known.
    pub opening: Option<TenureStart>,
    /// The first opening of its incarnation, if it is known.
    pub incarnation: Option<TenureStart>,
}

/// An open journal.
#[derive(Debug)]
pub struct OpenedJournal<J> {
    /// The journal.
    pub journal: J,
    /// Warnings for the operator, one line each.
    pub warnings: Vec<String>,
}

/// Outcome of a write to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AppendOutcome {
    /// It survives a kill and a power loss.
    Durable,
    /// Another writer owns the journal: stop.
    Fenced,
}

/// Authority of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriterStatus {
    /// It was the current writer when the call was made.
    Current,
    /// Another writer owns the journal: stop.
    Fenced,
}

/// Space left for a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskSpace {
    /// Not enough for a turn.
    None,
    /// Only the reserve: refuse new grants, allow renewals and releases.
    ReserveOnly,
    /// Enough.
    Plenty,
}
