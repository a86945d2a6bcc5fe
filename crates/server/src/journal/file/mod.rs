//! The journal in a directory of this machine: a segmented log, one write and one sync a turn.
//!
//! A data directory holds
//! - `journal`: which journal this is, its newest generation, and where it was opened;
//! - `segment-N`: batches, one after the other, in a file that was full of zeros before;
//! - `spare`: the next segment, already full of zeros;
//! - `snapshot-N`: the state after batch N; the newest two are kept, and the log since the older of them;
//! - `trail-N`: the audit trail, in parts;
//! - `restoring`, while a backup is being restored into it; nobody opens it then;
//! - `pid`: who writes, for people. The lock is the kernel's, on the directory itself.
//!
//! Unsynced sectors reach the disk in any order, so a batch that is not whole is either the last one, never answered,
//! or damaged. Only what comes later can tell: a batch is written when the one before it is durable, so a valid later
//! batch, a later segment or a snapshot proves damage, and damage is refused with file and offset (V2). A last batch
//! that is not whole is cut, with a warning. A batch that was durable and last and then damaged is cut too, unless the
//! journal was opened after it: nothing tells the two apart.
//!
//! The fence is the kernel's lock, so it holds on one machine: a second open is refused while the first lives.
//!
//! **The reserve** (V4). The spare is made ready as soon as the one before it is taken. If the disk is full then, what is
//! left of the segment just begun is the reserve: [`Journal::room`] turns to [`Room::ReserveOnly`] when at least three
//! quarters of a segment, less one batch, are left, and all of that can be written with no free block on the disk.
//! With the default size that is 24 MiB, several times what a turn puts on record, so that a turn that was begun with room
//! never finds none. It holds on filesystems that overwrite in place; those that copy on write may
//! need space for an overwrite too.

mod disk;
mod frame;
mod header;
mod identity;
mod local;
pub(super) mod names;
mod plant;
mod rack;
mod recover;
mod shelf;
mod spare;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub use disk::{Disk, Whereabouts};
pub use header::JournalId;
pub use local::LocalDisk;
pub use plant::{Planted, plant};
pub(super) use rack::Trail;
pub use shelf::FileShelf;

use super::error::is_full;
use super::{BATCH_BYTES, Confirmed, Fault, Journal, Kept, OpenError, Opened, Place, Replay, Room};
use spare::Spare;

/// How long a segment is, unless chosen otherwise.
pub const SEGMENT_BYTES: u64 = 32 << 20;

/// How a file journal is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a segment is, at least 4 KiB. A larger batch gets a segment of its own.
    pub segment_bytes: u64,
    /// The directory may have been copied or moved here, and the original will never run again.
    pub accept_copy: bool,
    /// The next segment is made ready by a thread of its own.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, accept_copy: false, background: true }
    }
}

/// A directory of this machine, where a journal is or will be.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Its path.
    pub path: PathBuf,
    /// How its journal is kept.
    pub options: Options,
}

impl Directory {
    /// The directory at a path, with the usual options.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), options: Options::default() }
    }
}

impl Place for Directory {
    type Journal = FileJournal<LocalDisk>;

    async fn open(&self, replay: &mut (dyn Replay + Send)) -> Result<Opened<Self::Journal>, OpenError> {
        FileJournal::open_on(LocalDisk::open(&self.path)?, &self.options, replay)
    }
}

/// The file journal, on a disk.
#[derive(Debug)]
pub struct FileJournal<D: Disk> {
    shared: Arc<Shared<D>>,
    generation: u64,
    next: u64,
    active: Active<D::File>,
    spare: Spare,
    segment_bytes: u64,
    /// The frame of the last durable batch, for a resend; empty if it is not at hand.
    last: Vec<u8>,
    /// The frame that is being written.
    writing: Vec<u8>,
}

/// The segment that is written.
#[derive(Debug)]
struct Active<F> {
    file: F,
    number: u64,
    salt: u32,
    /// Where the next frame goes.
    at: u64,
    /// Where the segment is over.
    end: u64,
}

impl<F> Active<F> {
    /// Is there room for a frame, and for the seal after it?
    fn fits(&self, frame: u64) -> bool {
        frame + frame::HEAD as u64 <= self.left()
    }

    fn left(&self) -> u64 {
        self.end - self.at
    }
}

/// What the writer and the shelf both know.
#[derive(Debug)]
struct Shared<D> {
    disk: D,
    journal: JournalId,
    /// The sequence after the last durable batch.
    durable: AtomicU64,
    /// Number and first sequence of each segment, oldest first.
    segments: Mutex<Vec<(u64, u64)>>,
    /// The sequences of the snapshots, oldest first. Locked for as long as one is written or read.
    snapshots: Mutex<Vec<u64>>,
    failed: OnceLock<String>,
}

impl<D: Disk> Shared<D> {
    /// Once failed, always failed: what a failed sync left on the disk is not known (V3).
    fn unless_failed(&self) -> Result<(), Fault> {
        self.failed.get().map_or(Ok(()), |why| Err(Fault::Failed { why: why.clone() }))
    }

    fn fail(&self, name: &str, error: &io::Error) -> Fault {
        let why = format!("{}: {error}", self.disk.path(name).display());
        Fault::Failed { why: self.failed.get_or_init(|| why).clone() }
    }

    /// No room is no harm as long as nothing was to be synced.
    fn fault(&self, name: &str, error: &io::Error) -> Fault {
        if is_full(error) { Fault::Full } else { self.fail(name, error) }
    }
}

impl<D: Disk> FileJournal<D> {
    /// Takes the journal on a disk for writing and tells what is on record.
    pub fn open_on(disk: D, options: &Options, replay: &mut dyn Replay) -> Result<Opened<Self>, OpenError> {
        assert!(options.segment_bytes >= 4_096, "a segment has at least 4 KiB");
        let segment_bytes = options.segment_bytes.next_multiple_of(frame::ALIGN as u64);
        let mut warnings = disk.warnings();
        let found = recover::recover(&disk, segment_bytes, options.accept_copy, replay, &mut warnings)?;
        let shared = Arc::new(Shared {
            disk,
            journal: found.identity.journal,
            durable: AtomicU64::new(found.identity.next),
            segments: Mutex::new(found.segments),
            snapshots: Mutex::new(found.snapshots),
            failed: OnceLock::new(),
        });
        let mut spare = Spare::new(segment_bytes, found.spare, options.background);
        spare.begin(&shared);
        let journal = Self {
            shared,
            generation: found.identity.generation,
            next: found.identity.next,
            active: found.active,
            spare,
            segment_bytes,
            last: found.last,
            writing: Vec::new(),
        };
        Ok(Opened { journal, warnings })
    }

    fn append_now(&mut self, sequence: u64, batch: &[u8]) -> Result<Kept, Fault> {
        self.shared.unless_failed()?;
        assert!(!batch.is_empty() && batch.len() <= BATCH_BYTES, "a batch has bytes, and not too many");
        if sequence + 1 == self.next {
            frame::encode(self.active.salt, sequence, batch, &mut self.writing);
            // A rotation since then changed the salt, so the checksum is left out.
            let same = self.writing.len() == self.last.len() && self.writing[8..] == self.last[8..];
            return Ok(if same { Kept::Durable } else { Kept::Fenced });
        }
        assert_eq!(sequence, self.next, "batches are appended in order");
        let size = frame::size(batch.len()) as u64;
        if !self.active.fits(size) {
            self.rotate(size)?;
        }
        let Active { file, number, salt, at, .. } = &mut self.active;
        frame::encode(*salt, sequence, batch, &mut self.writing);
        let shared = &self.shared;
        shared.disk.write(file, *at, &self.writing).map_err(|error| shared.fault(&names::segment(*number), &error))?;
        shared.disk.sync(file).map_err(|error| shared.fail(&names::segment(*number), &error))?;
        *at += size;
        self.next += 1;
        std::mem::swap(&mut self.last, &mut self.writing);
        shared.durable.store(self.next, Ordering::Release);
        Ok(Kept::Durable)
    }

    /// Begins the next segment. Its header and its name are durable before a batch goes into it, and the old segment is
    /// sealed only after that: whoever finds a seal may ask for the next segment.
    fn rotate(&mut self, frame: u64) -> Result<(), Fault> {
        let shared = &self.shared;
        let least = header::BYTES as u64 + frame + frame::HEAD as u64;
        let size = self.spare.take(shared, least.max(self.segment_bytes))?;
        let number = self.active.number + 1;
        let (file, salt) =
            begin_segment(&shared.disk, shared.journal, number, self.next, size).map_err(|(name, error, sync)| {
                if sync { shared.fail(&name, &error) } else { shared.fault(&name, &error) }
            })?;
        self.spare.taken();
        shared.segments.lock().expect("no panic under this lock").push((number, self.next));
        let mut seal = Vec::new();
        frame::encode(self.active.salt, self.next, &[], &mut seal);
        // The next segment proves the same; a seal only lets a missing one be told.
        match shared.disk.write(&self.active.file, self.active.at, &seal) {
            Err(error) if !is_full(&error) => return Err(shared.fail(&names::segment(self.active.number), &error)),
            _ => {}
        }
        self.active = Active { file, number, salt, at: header::BYTES as u64, end: size };
        self.spare.begin(shared);
        Ok(())
    }

    fn room_now(&mut self) -> Result<Room, Fault> {
        self.shared.unless_failed()?;
        let used = self.active.at * 4 > self.active.end;
        if self.spare.is_coming(&self.shared, used)? {
            return Ok(Room::Plenty);
        }
        Ok(if self.active.left() < LEAST_LEFT { Room::None } else { Room::ReserveOnly })
    }
}

/// Below this a segment without a spare has no room for a turn.
const LEAST_LEFT: u64 = 1_024;

/// Turns the spare into a segment. An error tells the file, and whether what is on the disk is known.
fn begin_segment<D: Disk>(
    disk: &D,
    journal: JournalId,
    number: u64,
    first: u64,
    size: u64,
) -> Result<(D::File, u32), (String, io::Error, bool)> {
    let spare = |sync| move |error| (names::SPARE.to_owned(), error, sync);
    let bytes = header::Segment { journal, number, first, size }.encode();
    let salt = u32::from_le_bytes(*bytes.last_chunk().expect("a header has a checksum"));
    let file = disk.open(names::SPARE).map_err(spare(false))?;
    disk.write(&file, 0, &bytes).map_err(spare(false))?;
    disk.sync(&file).map_err(spare(true))?;
    disk.rename(names::SPARE, &names::segment(number)).map_err(spare(false))?;
    disk.sync_names().map_err(|error| (names::segment(number), error, true))?;
    Ok((file, salt))
}

impl<D: Disk> Journal for FileJournal<D> {
    type Shelf = FileShelf<D>;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn next(&self) -> u64 {
        self.next
    }

    /// Blocks until the batch is on the disk: the driver has a thread of its own.
    async fn append(&mut self, sequence: u64, batch: &[u8]) -> Result<Kept, Fault> {
        self.append_now(sequence, batch)
    }

    /// The kernel's lock ends with this process, not before.
    async fn confirm(&mut self) -> Result<Confirmed, Fault> {
        self.shared.unless_failed()?;
        Ok(Confirmed::StillMine)
    }

    fn room(&mut self) -> Result<Room, Fault> {
        self.room_now()
    }

    fn shelf(&self) -> FileShelf<D> {
        FileShelf::new(&self.shared)
    }
}
