//! Reads a fenced log and drops what lies below what it has seen: for logs to which somebody wrote past the fence, too.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::{Cluster, Number};

use super::format::{HEADER, Kind};
use super::shelf::{Found, Hold, Shelf};
use crate::place::Place;
use crate::{Error, Mark, Verdict, admit};

/// How much is read under one lock, in bytes.
const BATCH: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// What was appended, under which token, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log; claims and armings have places too.
    pub index: u64,
    /// The number of the token it was appended under.
    pub number: Number,
    /// What was appended.
    pub bytes: Vec<u8>,
}

/// How far a reader came. Keep it with what was made of the entries, in one step: the mark is part of it, so that a reader
/// which starts again does not let in what it has dropped before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log: its own random number.
    pub log: u64,
    /// Where the next entry begins.
    pub offset: u64,
    /// Its index.
    pub index: u64,
    /// The highest number seen; 0 if none.
    pub mark: u64,
}

/// A reader of a fenced log. What it passes on is on disk, and no token of it is below an earlier one.
#[derive(Debug)]
pub struct Reader {
    shelf: Shelf,
    /// Up to where was read from the file.
    offset: u64,
    index: u64,
    /// Read, and not passed on yet: the entry's head, its bytes, and where the next one begins.
    read: VecDeque<(super::format::Head, Vec<u8>, u64)>,
    passed: Checkpoint,
    dropped: u64,
    patience: Duration,
}

impl Reader {
    /// Reads from the beginning.
    pub fn open(path: &Path, cluster: Cluster, resource: Name<'_>, slot: u32) -> Result<Self, Error> {
        let shelf = Shelf::open(path, &Place::new(cluster, resource, slot))?;
        let passed = Checkpoint { log: shelf.salt, offset: HEADER as u64, index: 0, mark: 0 };
        Ok(Self::at(shelf, passed))
    }

    /// Goes on where an earlier reader stopped.
    pub fn resume(
        path: &Path,
        cluster: Cluster,
        resource: Name<'_>,
        slot: u32,
        from: Checkpoint,
    ) -> Result<Self, Error> {
        let shelf = Shelf::open(path, &Place::new(cluster, resource, slot))?;
        if from.log != shelf.salt {
            return Err(Error::Conflict("the checkpoint is of another log; read this one from its beginning"));
        }
        if from.offset < HEADER as u64 {
            return Err(Error::Misplaced("the checkpoint begins inside the header; keep it as it was given"));
        }
        Ok(Self::at(shelf, from))
    }

    const fn at(shelf: Shelf, passed: Checkpoint) -> Self {
        let (offset, index) = (passed.offset, passed.index);
        Self { shelf, offset, index, read: VecDeque::new(), passed, dropped: 0, patience: PATIENCE }
    }

    /// How long to wait for one who is appending; 5 s unless set.
    pub const fn patience(mut self, bound: Duration) -> Self {
        self.patience = bound;
        self
    }

    /// The next entry, if there is one by now.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and after `None` more may come")]
    pub fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if self.read.is_empty() {
                self.fill()?;
            }
            let Some((head, bytes, next)) = self.read.pop_front() else { return Ok(None) };
            self.passed = Checkpoint { offset: next, index: head.index + 1, ..self.passed };
            let Some(number) = Number::new(head.number) else { continue };
            let mark = Number::new(self.passed.mark).map_or(Mark::Fresh, Mark::Armed);
            match (admit(mark, number), head.kind) {
                (Verdict::Admitted { mark }, kind) => {
                    self.passed.mark = mark.get();
                    if kind == Kind::Entry {
                        return Ok(Some(Entry { index: head.index, number, bytes }));
                    }
                }
                (Verdict::Stale { .. } | Verdict::Lost, _) => self.dropped += 1,
            }
        }
    }

    /// How far this reader came: behind the entry that [`Reader::next`] gave last.
    pub const fn checkpoint(&self) -> Checkpoint {
        self.passed
    }

    /// How many entries lay below the mark and were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Reads what is complete, beside other readers and never beside one who appends.
    fn fill(&mut self) -> Result<(), Error> {
        let locked = self.shelf.lock(Hold::Beside, self.patience)?;
        // Whoever appended it may have died before its own sync.
        self.shelf.file.sync_data()?;
        let mut bytes_read = 0;
        while bytes_read < BATCH {
            let Found::Entry(head, bytes, next) = self.shelf.at(self.offset, self.index)? else { break };
            bytes_read += bytes.len() + 1;
            (self.offset, self.index) = (next, self.index + 1);
            self.read.push_back((head, bytes, next));
        }
        drop(locked);
        Ok(())
    }
}
