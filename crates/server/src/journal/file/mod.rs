//! The journal in a directory of this machine: a segmented log with one write and one sync per turn.
//!
//! A data directory contains
//! - `journal`: the identity of the journal, its newest generation, and the host that opened it;
//! - `segment-N`: batches, in a file that was filled with zeros before;
//! - `spare`: the next segment, already filled with zeros;
//! - `snapshot-N`: the state after batch N; the newest two are retained, and the log since the older of them;
//! - `trail-N`: the files of the audit log;
//! - `restoring`: exists while a backup is being restored; the directory cannot be opened then;
//! - `pid`: the process that writes, for operators. The lock is the kernel's, on the directory itself.
//!
//! Unsynced sectors reach the disk in any order, so an incomplete batch is either the last one, whose append never returned, or
//! damaged. What follows it decides: a batch is written only when the previous one is durable, so a valid later batch, a later
//! segment or a snapshot proves damage, and damage is refused with file and offset (V2). An incomplete last batch is truncated,
//! with a warning. Whatever is durable beside the log proves that more of it was durable: a clean stop records where the log ends, and
//! a snapshot and the audit log name the batches that they were derived from. Then a shorter log is refused. A durable last batch that
//! was damaged later, after a crash, and that nothing of this covers, is truncated too, because the two cases look the same.
//!
//! After every sync, the directory, the identity file and the segment must still be those that were opened, of full length and with
//! what was written last (`replaced_file_checks.rs`): what is appended to a lost, replaced or truncated file would be lost. Then the end
//! of the log is recorded as at a clean stop, so that the next open refuses an older or shorter log.
//!
//! The fence is the kernel's lock, which is valid on one machine: a second open is refused while the first lives.
//!
//! **The reserve** (V4). The spare is preallocated as soon as the previous one is in use. If the disk is full then, the rest of the
//! new segment is the reserve: [`Journal::disk_space`] returns [`DiskSpace::ReserveOnly`] while at least three quarters of a
//! segment, less one batch, are left, and all of that can be written without a free block on the disk. With the default size this
//! is 24 MiB, several times the records of a turn, so that a turn that began with space never runs out of it. This holds on
//! filesystems that overwrite in place; copy-on-write filesystems may need space for an overwrite too.

mod audit_files;
mod create_for_restore;
mod disk;
mod frame;
mod header;
mod identity;
mod local_disk;
pub(super) mod names;
mod preallocate;
mod recover;
mod replaced_file_checks;
mod snapshots;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub(super) use audit_files::DiskAuditFiles;
pub use create_for_restore::{Bootstrap, bootstrap};
pub use disk::{Disk, HostIdentity};
pub use header::JournalId;
pub use local_disk::LocalDisk;
pub use names::HEADS;
pub use snapshots::FileSnapshotStore;

use super::error::is_full;
use super::{
    AppendOutcome, BATCH_BYTES, DiskSpace, Journal, JournalError, JournalLocation, OpenError, OpenedJournal, Replay,
    WriterStatus,
};
use identity::JournalIdentity;
use preallocate::PreallocatedSegment;

/// Default size of a segment.
pub const SEGMENT_BYTES: u64 = 32 << 20;

/// Options of a file journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Size of a segment, at least 4 KiB. A larger batch gets a segment of its own.
    pub segment_bytes: u64,
    /// Accept a directory that was copied or moved here; the original must never run again.
    pub accept_copy: bool,
    /// Preallocate the next segment on a background thread.
    pub background: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, accept_copy: false, background: true }
    }
}

/// A directory on this machine with a journal, or for a new one.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Its path.
    pub path: PathBuf,
    /// Options of the journal.
    pub options: FileOptions,
}

impl Directory {
    /// The directory at a path, with default options.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), options: FileOptions::default() }
    }
}

impl JournalLocation for Directory {
    type Journal = FileJournal<LocalDisk>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<OpenedJournal<Self::Journal>, OpenError> {
        FileJournal::open_on(LocalDisk::open(&self.path)?, &self.options, replay)
    }
}

/// The writer of a file journal.
#[derive(Debug)]
pub struct FileJournal<D: Disk> {
    shared: Arc<JournalShared<D>>,
    identity: JournalIdentity,
    /// The identity file, open as long as the journal is.
    identity_file: D::File,
    next: u64,
    active: ActiveSegment<D::File>,
    spare: PreallocatedSegment,
    segment_bytes: u64,
    /// The frame of the last durable batch, for a resend; empty if it is not in the active segment.
    last: Vec<u8>,
    /// Buffer for the frame of the current append.
    writing: Vec<u8>,
}

/// The segment that is appended to.
#[derive(Debug)]
struct ActiveSegment<F> {
    file: F,
    number: u64,
    salt: u32,
    /// Offset of the next frame.
    at: u64,
    /// Size of the segment.
    end: u64,
}

impl<F> ActiveSegment<F> {
    /// Whether a frame and a seal after it fit.
    fn fits(&self, frame: u64) -> bool {
        frame + frame::HEAD as u64 <= self.left()
    }

    fn left(&self) -> u64 {
        self.end - self.at
    }
}

/// Shared by the journal and its snapshots.
#[derive(Debug)]
struct JournalShared<D> {
    disk: D,
    journal: JournalId,
    /// The sequence after the last durable batch.
    durable: AtomicU64,
    /// Number and first sequence of each segment, oldest first.
    segments: Mutex<Vec<(u64, u64)>>,
    /// Sequences of the snapshots, oldest first. Locked while one is written or read.
    snapshots: Mutex<Vec<u64>>,
    failed: OnceLock<String>,
}

impl<D: Disk> JournalShared<D> {
    /// Fails permanently after a failed sync, because the content of the disk is unknown (V3).
    fn check_failed(&self) -> Result<(), JournalError> {
        self.failed.get().map_or(Ok(()), |reason| Err(JournalError::Failed { reason: reason.clone() }))
    }

    fn fail(&self, name: &str, error: &io::Error) -> JournalError {
        let reason = format!("{}: {error}", self.disk.path(name).display());
        JournalError::Failed { reason: self.failed.get_or_init(|| reason).clone() }
    }

    /// A full disk is not a failure as long as no sync was attempted.
    fn write_error(&self, name: &str, error: &io::Error) -> JournalError {
        if is_full(error) { JournalError::Full } else { self.fail(name, error) }
    }
}

impl<D: Disk> FileJournal<D> {
    /// Opens the journal on a disk for writing and replays it.
    pub fn open_on(disk: D, options: &FileOptions, replay: &mut dyn Replay) -> Result<OpenedJournal<Self>, OpenError> {
        assert!(options.segment_bytes >= 4_096, "a segment has at least 4 KiB");
        let segment_bytes = options.segment_bytes.next_multiple_of(frame::ALIGN as u64);
        let mut warnings = disk.warnings();
        let found = recover::recover(&disk, segment_bytes, options.accept_copy, replay, &mut warnings)?;
        let identity_file =
            disk.open(names::IDENTITY).map_err(|error| OpenError::from_io(&disk.path(names::IDENTITY), &error))?;
        let shared = Arc::new(JournalShared {
            disk,
            journal: found.identity.journal,
            durable: AtomicU64::new(found.identity.next),
            segments: Mutex::new(found.segments),
            snapshots: Mutex::new(found.snapshots),
            failed: OnceLock::new(),
        });
        let mut spare = PreallocatedSegment::new(segment_bytes, found.spare, options.background);
        spare.begin(&shared).map_err(|error| OpenError::from_io(&shared.disk.path(names::SPARE), &error))?;
        let journal = Self {
            shared,
            next: found.identity.next,
            identity: found.identity,
            identity_file,
            active: found.active,
            spare,
            segment_bytes,
            last: found.last,
            writing: Vec::new(),
        };
        Ok(OpenedJournal { journal, warnings })
    }

    fn append_now(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.shared.check_failed()?;
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch is not empty and within its limit");
        if sequence + 1 == self.next {
            frame::encode(self.active.salt, sequence, batch, &mut self.writing);
            // A rotation since then changed the salt, so the checksums are not compared.
            let same = self.writing.len() == self.last.len() && self.writing[8..] == self.last[8..];
            return Ok(if same { AppendOutcome::Durable } else { AppendOutcome::Fenced });
        }
        assert_eq!(sequence, self.next, "batches are appended in order");
        let size = frame::size(batch.len()) as u64;
        if !self.active.fits(size) {
            // The segment is not checked again after this.
            self.check_files()?;
            self.rotate(size)?;
        }
        let ActiveSegment { file, number, salt, at, .. } = &mut self.active;
        frame::encode(*salt, sequence, batch, &mut self.writing);
        let shared = &self.shared;
        shared
            .disk
            .write(file, *at, &self.writing)
            .map_err(|error| shared.write_error(&names::segment(*number), &error))?;
        shared.disk.sync(file).map_err(|error| shared.fail(&names::segment(*number), &error))?;
        self.check_files()?;
        let shared = &self.shared;
        self.active.at += size;
        self.next += 1;
        std::mem::swap(&mut self.last, &mut self.writing);
        shared.durable.store(self.next, Ordering::Release);
        Ok(AppendOutcome::Durable)
    }

    /// Starts the next segment. Its header and its name are durable before a batch is written to it, and the old segment is sealed
    /// only after that: a seal proves that the next segment existed.
    fn rotate(&mut self, frame: u64) -> Result<(), JournalError> {
        let min = header::BYTES as u64 + frame + frame::HEAD as u64;
        let size = self.spare.ensure(&self.shared, min.max(self.segment_bytes));
        let size = size.map_err(|error| self.spare_error(&error))?;
        let shared = &self.shared;
        let number = self.active.number + 1;
        let (file, salt) =
            begin_segment(&shared.disk, shared.journal, number, self.next, size).map_err(|(name, error, sync)| {
                if sync { shared.fail(&name, &error) } else { shared.write_error(&name, &error) }
            })?;
        self.spare.used();
        shared.segments.lock().expect("no panic under this lock").push((number, self.next));
        let mut seal = Vec::new();
        frame::encode(self.active.salt, self.next, &[], &mut seal);
        // A full disk is ignored: the seal only helps to detect a missing next segment.
        match shared.disk.write(&self.active.file, self.active.at, &seal) {
            Err(error) if !is_full(&error) => return Err(shared.fail(&names::segment(self.active.number), &error)),
            _ => {}
        }
        self.active = ActiveSegment { file, number, salt, at: header::BYTES as u64, end: size };
        self.spare.begin(&self.shared).map_err(|error| self.spare_error(&error))
    }

    /// Why the next segment could not be preallocated: first that the directory was deleted or moved, if it was.
    fn spare_error(&mut self, error: &io::Error) -> JournalError {
        if is_full(error) {
            return JournalError::Full;
        }
        self.check_files().err().unwrap_or_else(|| self.shared.fail(names::SPARE, error))
    }

    fn space_left(&mut self) -> Result<DiskSpace, JournalError> {
        self.shared.check_failed()?;
        let used = self.active.at * 4 > self.active.end;
        let available = self.spare.is_available(&self.shared, used);
        if available.map_err(|error| self.spare_error(&error))? {
            return Ok(DiskSpace::Plenty);
        }
        Ok(if self.active.left() < MIN_SPACE { DiskSpace::None } else { DiskSpace::ReserveOnly })
    }
}

/// Bytes of a segment below which a turn does not fit.
const MIN_SPACE: u64 = 1_024;

/// Turns the spare into a segment. An error names the file, and whether a sync failed.
fn begin_segment<D: Disk>(
    disk: &D,
    journal: JournalId,
    number: u64,
    first: u64,
    size: u64,
) -> Result<(D::File, u32), (String, io::Error, bool)> {
    let spare = |sync| move |error| (names::SPARE.to_owned(), error, sync);
    let bytes = header::SegmentHeader { journal, number, first, size }.encode();
    let salt = u32::from_le_bytes(*bytes.last_chunk().expect("a header ends with a checksum"));
    let file = disk.open(names::SPARE).map_err(spare(false))?;
    disk.write(&file, 0, &bytes).map_err(spare(false))?;
    disk.sync(&file).map_err(spare(true))?;
    disk.rename(names::SPARE, &names::segment(number)).map_err(spare(false))?;
    disk.sync_names().map_err(|error| (names::segment(number), error, true))?;
    Ok((file, salt))
}

impl<D: Disk> Journal for FileJournal<D> {
    type Snapshots = FileSnapshotStore<D>;

    fn generation(&self) -> u64 {
        self.identity.generation
    }

    fn next(&self) -> u64 {
        self.next
    }

    /// Blocks until the batch is durable; the driver has a thread of its own.
    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<AppendOutcome, JournalError> {
        self.append_now(sequence, batch)
    }

    /// The kernel's lock lives as long as this process.
    async fn confirm(&mut self) -> Result<WriterStatus, JournalError> {
        self.shared.check_failed()?;
        Ok(WriterStatus::Current)
    }

    fn disk_space(&mut self) -> Result<DiskSpace, JournalError> {
        self.space_left()
    }

    /// Records where the log ends, so that the next open refuses a shorter one (V2).
    fn close(&mut self) {
        if self.shared.check_failed().is_ok() {
            self.record_end();
        }
    }

    fn snapshots(&self) -> FileSnapshotStore<D> {
        FileSnapshotStore::new(&self.shared)
    }
}
