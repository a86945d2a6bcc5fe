//! The mark file of one fence id: a fenced log that one process owns while it serves.
//!
//! Besides the mark the log stores two facts, as entries under the current token: whether requests may be in flight (`i`, and
//! `o` once all outcomes are known), and the last sequence that was forwarded (`s`) and applied (`d`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::token::Number;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::file::{FencedLog, LogReader, OWNER_ONLY, restrict_access};
use crate::{Error, FenceId, Mark, SealVerifier, lock_holders};

const IN_FLIGHT: u8 = b'i';
const SETTLED: u8 = b'o';
const SEQUENCE: u8 = b's';
const APPLIED: u8 = b'd';

/// An open mark file.
#[derive(Debug)]
pub(super) struct MarkLog {
    log: FencedLog,
    path: PathBuf,
    /// The token admitted last; the final entry is appended under it.
    token: Option<String>,
    /// Whether the log states that requests may be in flight.
    begun: bool,
}

/// The lock of the process that gates by a mark file. While it is held, no other process does.
#[derive(Debug)]
pub(super) struct OwnerLock {
    file: File,
    path: PathBuf,
}

impl OwnerLock {
    /// Locks a file next to the mark file. The log itself is locked only during each operation.
    fn acquire(marks: &Path) -> Result<Self, Error> {
        let mut path = marks.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(&path)?;
        restrict_access(&file)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path }),
            Err(Errno::WOULDBLOCK) => {
                Err(Error::Blocked { waited: Duration::ZERO, blockers: lock_holders::pids(&[&path]) })
            }
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Fails if the lock file was removed or replaced: another process can have locked a new one.
    pub(super) fn check(&self) -> Result<(), Error> {
        let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let current = fs::metadata(&self.path).map(id).ok();
        if current.is_some() && current == self.file.metadata().map(id).ok() {
            return Ok(());
        }
        Err(Error::Conflict("the lock file next to the marks was removed or replaced; restart this process"))
    }
}

/// What the log of an earlier process states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecoveredState {
    /// The earlier process ended with all outcomes known.
    pub(super) settled: bool,
    /// The last sequence that was forwarded: token number, sequence, and whether it was applied.
    pub(super) sequence: Option<(Number, u64, bool)>,
}

/// Identity, size and time of the mark file. It changes when another process writes, for example to re-arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// No file was read yet.
    pub(super) const NONE: Self = Self { device: 0, inode: 0, bytes: 0, modified: (0, 0) };

    /// Reads the stamp of the file at `path`; [`FileStamp::NONE`] if that fails.
    pub(super) fn at(path: &Path) -> Self {
        fs::metadata(path).map_or_else(
            |_| Self::NONE,
            |meta| Self {
                device: meta.dev(),
                inode: meta.ino(),
                bytes: meta.len(),
                modified: (meta.mtime(), meta.mtime_nsec()),
            },
        )
    }
}

impl MarkLog {
    /// Opens a mark file and locks out other processes.
    pub(super) fn open(
        path: &Path,
        id: &FenceId,
        claim_timeout: Duration,
    ) -> Result<(Self, OwnerLock, RecoveredState), Error> {
        let lock = OwnerLock::acquire(path)?;
        let log = FencedLog::open(path, id)?.with_claim_timeout(claim_timeout);
        let recovered = recover(&mut LogReader::open(path, id)?.with_lock_timeout(claim_timeout))?;
        let marks = Self { log, path: path.to_owned(), token: None, begun: false };
        Ok((marks, lock, recovered))
    }

    /// Verifies the tokens of all later entries.
    pub(super) fn set_seal_verifier(&mut self, verifier: &SealVerifier) {
        self.log.set_seal_verifier(verifier);
    }

    /// The stored mark, and whether it is sealed.
    pub(super) fn mark(&mut self) -> (Result<Mark, Error>, bool) {
        let mark = self.log.mark().map(|mark| mark.map_or(Mark::Fresh, Mark::Armed));
        (mark, self.log.was_sealed())
    }

    /// Raises the mark. It is durable when this returns.
    pub(super) fn raise(&mut self, token: &str) -> Result<Number, Error> {
        let raised = self.log.claim(token)?;
        self.token = Some(token.to_owned());
        Ok(raised)
    }

    /// Records durably, once, that requests under this token may be in flight.
    pub(super) fn record_begun(&mut self, token: &str) -> Result<(), Error> {
        if !self.begun {
            self.log.append(token, [IN_FLIGHT])?;
            self.begun = true;
        }
        self.token = Some(token.to_owned());
        Ok(())
    }

    /// Records durably that a request with this sequence is forwarded.
    pub(super) fn record_forwarded(&mut self, token: &str, sequence: u64) -> Result<(), Error> {
        self.log.append(token, sequence_note(SEQUENCE, sequence))?;
        (self.begun, self.token) = (true, Some(token.to_owned()));
        Ok(())
    }

    /// Records durably that the request was applied.
    pub(super) fn record_applied(&mut self, token: &str, sequence: u64) -> Result<(), Error> {
        self.log.append(token, sequence_note(APPLIED, sequence)).map(drop)
    }

    /// Records durably that no request is in flight.
    pub(super) fn record_settled(&mut self) -> Result<(), Error> {
        if let (true, Some(token)) = (self.begun, &self.token) {
            self.log.append(token, [SETTLED])?;
            self.begun = false;
        }
        Ok(())
    }

    pub(super) fn stamp(&self) -> FileStamp {
        FileStamp::at(&self.path)
    }
}

fn sequence_note(kind: u8, sequence: u64) -> Vec<u8> {
    [&[kind][..], &sequence.to_le_bytes()].concat()
}

/// Replays the entries.
fn recover(reader: &mut LogReader) -> Result<RecoveredState, Error> {
    let mut recovered = RecoveredState { settled: true, sequence: None };
    while let Some(entry) = reader.next()? {
        match entry.bytes.split_first() {
            Some((&SETTLED, [])) => recovered.settled = true,
            Some((&kind, rest)) if matches!(kind, SEQUENCE | APPLIED) => {
                recovered.settled = false;
                let sequence = rest.try_into().map(u64::from_le_bytes);
                recovered.sequence = sequence.ok().map(|sequence| (entry.number, sequence, kind == APPLIED));
            }
            // An unknown entry, of a newer version, may mean that requests were in flight.
            _ => recovered.settled = false,
        }
    }
    Ok(recovered)
}
