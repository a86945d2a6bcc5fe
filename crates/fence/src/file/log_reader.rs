//! Reader of a fenced log. It drops stale entries, in case a writer bypassed the fence.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use leasehold_core::token::Number;

use super::log_file::{EntryAt, LockMode, LogFile};
use super::log_format::{EntryKind, HEADER_LEN};
use crate::{Error, FenceId, Mark, Verdict, admit};

/// Number of bytes read under one lock.
const BATCH: usize = 1 << 20;
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRecord {
    /// Index in the log. Claims and armings have an index too.
    pub index: u64,
    /// The number of the token under which it was appended.
    pub number: Number,
    /// The payload.
    pub bytes: Vec<u8>,
}

/// The position of a reader. Store it in one step with the results of processing the entries. It contains the mark, so that
/// a restarted reader drops the same entries as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The random number that identifies the log.
    pub log: u64,
    /// Offset of the next entry.
    pub offset: u64,
    /// Index of the next entry.
    pub index: u64,
    /// The highest token number read; 0 if none.
    pub mark: u64,
}

/// Reads a fenced log. The entries it returns are durable, and their token numbers never decrease.
#[derive(Debug)]
pub struct LogReader {
    file: LogFile,
    /// Offset up to which the file was read.
    offset: u64,
    index: u64,
    /// Entries read and not returned yet: head, payload, and the offset of the next entry.
    buffered: VecDeque<(super::log_format::EntryHead, Vec<u8>, u64)>,
    position: Checkpoint,
    dropped: u64,
    lock_timeout: Duration,
}

impl LogReader {
    /// Opens a reader at the beginning of the log.
    pub fn open(path: &Path, id: &FenceId) -> Result<Self, Error> {
        let file = LogFile::open(path, id)?;
        let position = Checkpoint { log: file.salt, offset: HEADER_LEN as u64, index: 0, mark: 0 };
        Ok(Self::at(file, position))
    }

    /// Opens a reader at a checkpoint of an earlier reader.
    pub fn resume(path: &Path, id: &FenceId, from: Checkpoint) -> Result<Self, Error> {
        let file = LogFile::open(path, id)?;
        if from.log != file.salt {
            return Err(Error::Conflict("the checkpoint is of another log; read this log from its beginning"));
        }
        if from.offset < HEADER_LEN as u64 {
            return Err(Error::InvalidArgument("the checkpoint points into the header; use it unchanged"));
        }
        if from.mark > Number::MAX.get() {
            return Err(Error::InvalidArgument(
                "the mark of the checkpoint is above every token number; use it unchanged",
            ));
        }
        Ok(Self::at(file, from))
    }

    const fn at(file: LogFile, position: Checkpoint) -> Self {
        let (offset, index) = (position.offset, position.index);
        Self { file, offset, index, buffered: VecDeque::new(), position, dropped: 0, lock_timeout: LOCK_TIMEOUT }
    }

    /// Sets how long to wait for a writer that holds the lock. The default is 5 s.
    pub const fn with_lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// The next entry; `None` at the current end of the log.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and entries may follow after `None`")]
    pub fn next(&mut self) -> Result<Option<LogRecord>, Error> {
        loop {
            if self.buffered.is_empty() {
                self.fill()?;
            }
            let Some((head, bytes, next)) = self.buffered.pop_front() else { return Ok(None) };
            self.position = Checkpoint { offset: next, index: head.index + 1, ..self.position };
            let Some(number) = Number::new(head.number) else { continue };
            let mark = Number::new(self.position.mark).map_or(Mark::Fresh, Mark::Armed);
            match (admit(mark, number), head.kind) {
                (Verdict::Admitted { mark }, kind) => {
                    self.position.mark = mark.get();
                    if kind == EntryKind::Entry {
                        return Ok(Some(LogRecord { index: head.index, number, bytes }));
                    }
                }
                (Verdict::Stale { .. } | Verdict::Lost, _) => self.dropped += 1,
            }
        }
    }

    /// The position after the entry that [`LogReader::next`] returned last.
    pub const fn checkpoint(&self) -> Checkpoint {
        self.position
    }

    /// Number of stale entries dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads complete entries. Excludes writers, but not other readers.
    fn fill(&mut self) -> Result<(), Error> {
        let locked = self.file.lock(LockMode::Shared, self.lock_timeout)?;
        // The writer may have died before its sync.
        self.file.file.sync_data()?;
        let mut bytes_read = 0;
        while bytes_read < BATCH {
            let EntryAt::Entry(head, bytes, next) = self.file.read_entry(self.offset, self.index)? else { break };
            bytes_read += bytes.len() + 1;
            (self.offset, self.index) = (next, self.index + 1);
            self.buffered.push_back((head, bytes, next));
        }
        drop(locked);
        Ok(())
    }
}
