//! The mark of one place, kept in a fenced log that one process has to itself for as long as it serves.
//!
//! Beside the mark the log remembers two things, as entries under the token that was inside: whether requests may be on
//! their way (`i`, and `o` when all outcomes were known at the end), and the last sequence that was let through (`s`) and
//! applied (`d`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::file::{Log, Reader};
use crate::{Error, Mark, blocker};

const INSIDE: u8 = b'i';
const OUT: u8 = b'o';
const SEQUENCE: u8 = b's';
const DONE: u8 = b'd';

/// An open mark file.
#[derive(Debug)]
pub(super) struct Marks {
    log: Log,
    path: PathBuf,
    /// Who was let in last, to sign the end with.
    token: Option<String>,
    /// Whether the file says that requests may be on their way.
    begun: bool,
    /// Nobody else gates by this file as long as this is open.
    _alone: File,
}

/// What a mark file said when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The process before ended with every outcome known.
    pub(super) settled: bool,
    /// The last sequence that was let through, under which number, and whether it was applied.
    pub(super) sequence: Option<(Number, u64, bool)>,
}

/// The file as it looked last. Whoever else arms it changes this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Look {
    /// Nothing was seen yet.
    pub(super) const NOTHING: Self = Self { device: 0, inode: 0, bytes: 0, changed: (0, 0) };

    /// One look at the path; what cannot be seen looks like nothing.
    pub(super) fn at(path: &Path) -> Self {
        fs::metadata(path).map_or_else(
            |_| Self::NOTHING,
            |of| Self { device: of.dev(), inode: of.ino(), bytes: of.len(), changed: (of.mtime(), of.mtime_nsec()) },
        )
    }
}

impl Marks {
    /// Opens a mark file and keeps others who would gate by it out.
    pub(super) fn open(
        path: &Path,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
        patience: Duration,
    ) -> Result<(Self, Found), Error> {
        let alone = alone(path)?;
        let log = Log::open(path, cluster, resource, slot)?.patience(patience);
        let found = found(&mut Reader::open(path, cluster, resource, slot)?.patience(patience))?;
        let marks = Self { log, path: path.to_owned(), token: None, begun: false, _alone: alone };
        Ok((marks, found))
    }

    /// The mark that stands in the file.
    pub(super) fn mark(&mut self) -> Result<Mark, Error> {
        Ok(self.log.mark()?.map_or(Mark::Fresh, Mark::Armed))
    }

    /// Raises the mark, durable when this returns.
    pub(super) fn raise(&mut self, token: &str) -> Result<Number, Error> {
        let raised = self.log.claim(token)?;
        self.token = Some(token.to_owned());
        Ok(raised)
    }

    /// Says, durably, that requests under this token may be on their way, once.
    pub(super) fn begin(&mut self, token: &str) -> Result<(), Error> {
        if !self.begun {
            self.log.append(token, &[INSIDE])?;
            self.begun = true;
        }
        self.token = Some(token.to_owned());
        Ok(())
    }

    /// Says, durably, that a request with this sequence is let through.
    pub(super) fn pass(&mut self, token: &str, sequence: u64) -> Result<(), Error> {
        self.log.append(token, &note(SEQUENCE, sequence))?;
        (self.begun, self.token) = (true, Some(token.to_owned()));
        Ok(())
    }

    /// Says, durably, that it was applied.
    pub(super) fn applied(&mut self, token: &str, sequence: u64) -> Result<(), Error> {
        self.log.append(token, &note(DONE, sequence)).map(drop)
    }

    /// Says, durably, that nothing is on its way any more.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        if let (true, Some(token)) = (self.begun, &self.token) {
            self.log.append(token, &[OUT])?;
            self.begun = false;
        }
        Ok(())
    }

    pub(super) fn look(&self) -> Look {
        Look::at(&self.path)
    }
}

fn note(kind: u8, sequence: u64) -> Vec<u8> {
    [&[kind][..], &sequence.to_le_bytes()].concat()
}

/// What the entries say.
fn found(reader: &mut Reader) -> Result<Found, Error> {
    let mut found = Found { settled: true, sequence: None };
    while let Some(entry) = reader.next()? {
        match entry.bytes.split_first() {
            Some((&OUT, [])) => found.settled = true,
            Some((&kind, rest)) if matches!(kind, SEQUENCE | DONE) => {
                found.settled = false;
                let sequence = rest.try_into().map(u64::from_le_bytes);
                found.sequence = sequence.ok().map(|sequence| (entry.number, sequence, kind == DONE));
            }
            // What this version does not know may have been on its way.
            _ => found.settled = false,
        }
    }
    Ok(found)
}

/// The kernel's lock on a file beside the mark file: the log itself is locked for each step only.
fn alone(path: &Path) -> Result<File, Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&beside)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::Blocked { waited: Duration::ZERO, by: blocker::holders(&[&beside]) }),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}
