//! An append log in a file that refuses the zombie: its marks are entries of the log itself.
//!
//! Every append takes the kernel's lock on the file, reads what others appended, asks the rule, writes one entry and syncs
//! it, all before the lock is let go. So a claim is one step against appends of every process of this machine.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use leasehold_core::{name::Name, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("events.log");
//! # let cluster = Cluster(*b"examples");
//! # let name = Name::parse("jobs/settle")?;
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: leasehold_core::name::resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::file::{Log, Reader};
//!
//! Log::create(&path, cluster, name, 0)?; // once
//! let mut log = Log::open(&path, cluster, name, 0)?;
//! log.claim(&token)?; // a new holder's first act, before it reads
//! log.append(&token, b"invoice 7 paid")?;
//!
//! let mut reader = Reader::open(&path, cluster, name, 0)?;
//! assert_eq!(reader.next()?.unwrap().bytes, b"invoice 7 paid");
//! # Ok(())
//! # }
//! ```

mod format;
mod known;
mod operator;
mod reader;
mod replace;
mod shelf;
mod stand;
mod survey;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::limits::LOG_ENTRY_BYTES;
use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};

use crate::observer::Watch;
use crate::place::{Passed, Place, Shown, Standing};
use crate::{Act, Counters, Error, Lost, Mark, Observer, Once};
use format::{Head, Header, Kind};
use known::Known;
pub use reader::{Checkpoint, Entry, Reader};
pub use replace::Replace;
use shelf::{Found, Hold, Shelf};
pub use survey::survey;

/// How long an append or a claim waits for others to leave, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// A fenced log, open for appending. Any number of processes may have it open.
#[derive(Debug)]
pub struct Log {
    place: Place,
    shelf: Shelf,
    known: Known,
    patience: Duration,
    watch: Watch,
    /// A sync failed here: what the kernel shows is no longer what the disk has.
    failed: bool,
}

impl Log {
    /// Makes a new log, armed as fresh: its first token sets the mark. A file that is there already is left alone.
    pub fn create(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32) -> Result<(), Error> {
        let place = Place::new(cluster, resource, slot);
        let salt = shelf::rand_u64()?;
        shelf::create(path, |inode| {
            let mut bytes = Header::new(&place.guarded, salt).encode().to_vec();
            let head = Head { kind: Kind::Armed { inode }, index: 0, number: 0, incarnation: 0, flags: 0 };
            bytes.extend(format::encode(salt, head, &[]));
            bytes
        })
    }

    /// Opens a log. One that is not there, or not whole, refuses: it never starts anew by itself.
    pub fn open(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32) -> Result<Self, Error> {
        let place = Place::new(cluster, resource, slot);
        let shelf = Shelf::open(path, &place)?;
        let watch = Watch::default();
        let mut log = Self { place, shelf, known: Known::NOTHING, patience: PATIENCE, watch, failed: false };
        let locked = log.shelf.lock(Hold::Beside, log.patience)?;
        log.known = caught_up(&log.shelf, log.known)?;
        drop(locked);
        Ok(log)
    }

    /// How long a claim or an append may wait for others to leave (F8); 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// Who is told every answer.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch.observer = Some(observer);
        self
    }

    /// What this handle answered.
    pub fn counters(&self) -> &Counters {
        &self.watch.counters
    }

    /// A new holder's first act, before it reads: raises the mark, durable when this returns.
    pub fn claim(&mut self, token: &str) -> Result<Number, Error> {
        let answer = self.put(token, Kind::Claim, None, &[]);
        self.told(Act::Claim, answer).map(|(passed, _)| passed.number)
    }

    /// Appends one entry under this token, durable when this returns.
    pub fn append(&mut self, token: &str, bytes: &[u8]) -> Result<Number, Error> {
        self.appended(token, None, bytes).map(|(passed, _)| passed.number)
    }

    /// Appends one entry that carries its sequence inside the hold, rising from entry to entry: one that arrives a second time
    /// is told as already applied, and is not appended again.
    pub fn append_once(&mut self, token: &str, sequence: u64, bytes: &[u8]) -> Result<Once, Error> {
        if sequence == u64::MAX {
            return Err(Error::Misplaced("the sequence is 2^64 - 1; number the entries from 0"));
        }
        self.appended(token, Some(sequence), bytes).map(|(_, once)| once)
    }

    fn appended(&mut self, token: &str, sequence: Option<u64>, bytes: &[u8]) -> Result<(Passed, Once), Error> {
        let answer = if bytes.len() > LOG_ENTRY_BYTES {
            Err(Error::Misplaced("the entry is larger than 16 MiB; append it in parts"))
        } else {
            self.put(token, Kind::Entry, sequence, bytes)
        };
        self.told(Act::Write, answer)
    }

    fn told(&self, act: Act, answer: Result<(Passed, Once), Error>) -> Result<(Passed, Once), Error> {
        let told = answer.as_ref().map(|(passed, _)| passed);
        self.watch.told(&self.place.name, self.place.guarded.slot, act, told);
        answer
    }

    fn put(&mut self, token: &str, kind: Kind, sequence: Option<u64>, bytes: &[u8]) -> Result<(Passed, Once), Error> {
        let shown = self.place.read(token)?;
        self.usable()?;
        let locked = self.shelf.lock(Hold::Alone, self.patience)?;
        let kept = check(&self.shelf, &mut self.known, shown, sequence).and_then(|(passed, once)| {
            let stands =
                self.known.mark == Mark::Armed(passed.number) && self.known.incarnation == Some(shown.incarnation);
            if once != Once::Applied || (kind == Kind::Claim && stands) {
                // Whoever wrote it may have died before its sync.
                self.shelf.file.sync_data().map_err(Failed::Sync)?;
                return Ok((passed, once));
            }
            let (number, incarnation) = (passed.number.get(), shown.incarnation.0);
            let flags = sequence.map_or(0, |sequence| sequence + 1);
            let head = Head { kind, index: self.known.index, number, incarnation, flags };
            keep(&self.shelf, &mut self.known, head, bytes)?;
            Ok((passed, once))
        });
        drop(locked);
        self.noted(kept)
    }

    fn usable(&self) -> Result<(), Error> {
        if self.failed {
            return Err(io::Error::other("an earlier sync of this log failed; open it again").into());
        }
        Ok(())
    }

    fn noted<T>(&mut self, kept: Result<T, Failed>) -> Result<T, Error> {
        kept.map_err(|failed| match failed {
            Failed::Sync(error) => {
                self.failed = true;
                error.into()
            }
            Failed::Other(error) => error,
        })
    }
}

/// Why nothing was kept, and whether the handle can go on.
enum Failed {
    /// Nobody knows what the disk has.
    Sync(io::Error),
    Other(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Reads what others appended, and asks the rule. The lock is held.
fn check(shelf: &Shelf, known: &mut Known, shown: Shown, sequence: Option<u64>) -> Result<(Passed, Once), Failed> {
    *known = caught_up(shelf, *known)?;
    Ok(shown.pass(&standing(shelf, known)?, sequence)?)
}

/// The log up to its end.
fn caught_up(shelf: &Shelf, mut known: Known) -> Result<Known, Error> {
    while let Found::Entry(head, _, next) = shelf.at(known.end, known.index)? {
        known.apply(head, next);
    }
    Ok(known)
}

/// What counts: no mark, if this is not the file that was armed.
fn standing(shelf: &Shelf, known: &Known) -> Result<Standing, Error> {
    let (mark, lost) = match known.inode {
        Some(armed) if armed == shelf.inode()? => {
            (known.mark, if known.declared { Lost::Declared } else { Lost::Unreadable })
        }
        Some(_) => (Mark::Lost, Lost::Moved),
        None => (Mark::Lost, Lost::Unreadable),
    };
    Ok(Standing { mark, lost, incarnation: known.incarnation, strict: known.strict, last: known.last })
}

/// Cuts what a crash left behind the end, writes one entry there, and syncs it.
fn keep(shelf: &Shelf, known: &mut Known, head: Head, bytes: &[u8]) -> Result<(), Failed> {
    let entry = format::encode(shelf.salt, head, bytes);
    shelf.file.set_len(known.end).map_err(Error::from)?;
    if let Err(error) = shelf.file.write_all_at(&entry, known.end) {
        // A half entry may stay if this fails too; the next append cuts it.
        shelf.file.set_len(known.end).ok();
        return Err(Error::from(error).into());
    }
    if let Err(error) = shelf.file.sync_data() {
        // The kernel may now call lost pages clean. They must be written anew, by whoever comes next.
        shelf.file.set_len(known.end).ok();
        return Err(Failed::Sync(error));
    }
    known.apply(head, known.end + entry.len() as u64);
    Ok(())
}
