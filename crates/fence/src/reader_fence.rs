//! A fence on the reader's side, for logs that cannot reject a write: readers drop records of stale holders.
//!
//! Every record carries a **stamp**: `write` or `claim`, a space, and the token's text, in a header or in the record itself.
//! A new holder first appends a claim record to *every* partition that it writes to, before it reads. Each reader passes
//! its records through a [`ReaderFence`], which drops those below the highest token so far. All readers of a partition drop
//! the same records, because they read them in the same order.
//!
//! The marks are part of the checkpoint: store it in one step with the results of processing the records.
//!
//! ```
//! use std::time::SystemTime;
//! use leasehold_fence::reader_fence::{ReaderFence, RecordVerdict};
//! use leasehold_fence::FenceId;
//! # use leasehold_fence::{Cluster, Incarnation, Number, Token, TokenScope, resource_hash};
//!
//! # let cluster = Cluster(*b"payments");
//! # let token = |number| {
//! #     let (resource, number) = (resource_hash("jobs/settle"), Number::new(number).unwrap());
//! #     Token { cluster, incarnation: Incarnation(1), resource, scope: TokenScope::Slot(0), number }.to_string()
//! # };
//! let id = FenceId::new(cluster, "jobs/settle")?;
//! let mut fence = ReaderFence::new(&id);
//! let mut check = |position, stamp: &str| fence.check("settled-0", position, SystemTime::now(), stamp);
//! assert!(matches!(check(0, &format!("write {}", token(33))), RecordVerdict::Accepted { .. }));
//! assert!(matches!(check(1, &format!("claim {}", token(34))), RecordVerdict::Claimed { .. }));
//! assert!(matches!(check(2, &format!("write {}", token(33))), RecordVerdict::Dropped(_)), "a zombie wrote it");
//! let resumed = ReaderFence::resume(&id, &fence.checkpoint())?;
//! assert_eq!(resumed.next_position("settled-0"), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::time::WallClock;
use leasehold_core::token::{Number, TokenError};

use crate::{Error, FenceId, FenceRefusal, Mark, MarkLoss};

/// The first line of a checkpoint. The text is stored by users and must not change.
const HEADER: &str = "leasehold-sieve 1";

/// What a reader must do with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordVerdict {
    /// Process it.
    Accepted {
        /// The number of its token.
        number: Number,
    },
    /// A new holder claimed; there is nothing to process.
    Claimed {
        /// The number of its token.
        number: Number,
    },
    /// Skip it: its token is stale, or not valid for this resource.
    Dropped(FenceRefusal),
    /// Skip it: it is before the checkpoint.
    AlreadyRead,
}

/// Read position and mark of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PartitionState {
    next: u64,
    /// 0 if no token was read.
    mark: u64,
}

/// The marks of one reader, one for each partition.
#[derive(Clone, Debug)]
pub struct ReaderFence {
    id: FenceId,
    partitions: BTreeMap<String, PartitionState>,
    dropped: u64,
}

impl ReaderFence {
    /// Creates a fence for a reader that starts at the beginning of every partition. A reader that starts later does not
    /// know the marks before its start, and would accept stale records.
    pub fn new(id: &FenceId) -> Self {
        Self { id: id.clone(), partitions: BTreeMap::new(), dropped: 0 }
    }

    /// Resumes from a [`checkpoint`](Self::checkpoint). It must be of the same cluster, resource and slot.
    pub fn resume(id: &FenceId, checkpoint: &str) -> Result<Self, Error> {
        let mut fence = Self::new(id);
        let mut lines = checkpoint.lines();
        if lines.next() != Some(HEADER) || lines.next() != Some(fence.identity_line().as_str()) {
            return Err(Error::Conflict(
                "the checkpoint is of another resource; use it unchanged, or read from the beginning",
            ));
        }
        for line in lines {
            let read = parse_partition(line).ok_or(FenceRefusal::MarkLost(MarkLoss::Unreadable))?;
            let partition = read.0.replace("%0d", "\r").replace("%0a", "\n").replace("%25", "%");
            fence.partitions.insert(partition, read.1);
        }
        Ok(fence)
    }

    /// Decides about the record at `position` of a partition. `appended` is the time that the log itself stored with the
    /// record: it must not depend on the reader, or two readers would drop different records.
    pub fn check(&mut self, partition: &str, position: u64, appended: SystemTime, stamp: &str) -> RecordVerdict {
        let read = self.partitions.get(partition).copied().unwrap_or_default();
        if position < read.next {
            return RecordVerdict::AlreadyRead;
        }
        let (verdict, mark) = match self.judge(read.mark, appended, stamp) {
            Ok((verdict, mark)) => (verdict, mark.get()),
            Err(refusal) => {
                self.dropped += 1;
                (RecordVerdict::Dropped(refusal), read.mark)
            }
        };
        self.partitions.insert(partition.to_owned(), PartitionState { next: position.saturating_add(1), mark });
        verdict
    }

    fn judge(&self, mark: u64, appended: SystemTime, stamp: &str) -> Result<(RecordVerdict, Number), FenceRefusal> {
        let (kind, text) = stamp.split_once(' ').unwrap_or(("", stamp));
        if !matches!(kind, "write" | "claim") {
            return Err(if stamp.is_empty() { TokenError::Absent } else { TokenError::Shape }.into());
        }
        let since = appended.duration_since(UNIX_EPOCH).unwrap_or_default();
        let presented =
            self.id.parse_token_at(text, WallClock(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))?;
        let mark = Number::new(mark).map_or(Mark::Fresh, Mark::Armed);
        let number = match presented.check_mark(mark, MarkLoss::Unreadable) {
            Ok(number) => number,
            Err(Error::Refused(refusal)) => return Err(refusal),
            Err(_) => return Err(FenceRefusal::MarkLost(MarkLoss::Unreadable)),
        };
        Ok((
            if kind == "claim" { RecordVerdict::Claimed { number } } else { RecordVerdict::Accepted { number } },
            number,
        ))
    }

    /// The position at which to continue reading a partition.
    pub fn next_position(&self, partition: &str) -> u64 {
        self.partitions.get(partition).map_or(0, |read| read.next)
    }

    /// The highest token number read from a partition.
    pub fn mark(&self, partition: &str) -> Option<Number> {
        self.partitions.get(partition).and_then(|read| Number::new(read.mark))
    }

    /// Number of records dropped since this value was created.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The positions and marks of all partitions, as a text. Store it in one step with the results of processing.
    pub fn checkpoint(&self) -> String {
        let mut text = format!("{HEADER}\n{}\n", self.identity_line());
        for (partition, PartitionState { next, mark }) in &self.partitions {
            let partition = partition.replace('%', "%25").replace('\n', "%0a").replace('\r', "%0d");
            text.push_str(&format!("{next} {mark} {partition}\n"));
        }
        text
    }

    fn identity_line(&self) -> String {
        format!("{} {} {}", self.id.cluster(), self.id.resource_hash(), self.id.slot())
    }
}

fn parse_partition(line: &str) -> Option<(&str, PartitionState)> {
    let (next, rest) = line.split_once(' ')?;
    let (mark, partition) = rest.split_once(' ')?;
    let mark = mark.parse().ok().filter(|mark| *mark <= Number::MAX.get())?;
    Some((partition, PartitionState { next: next.parse().ok()?, mark }))
}
