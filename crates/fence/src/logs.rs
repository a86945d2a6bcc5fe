//! The fence on the reader's side, for logs that cannot refuse: a reader drops what lies below the highest token it has seen.
//!
//! Every record carries a **stamp**: `write` or `claim`, a space, and the token's text, in a header or wherever the log has
//! room. A new holder's first act is a claim record in *every* partition that it writes to, before it reads. Each reader
//! passes records through a [`Sieve`], and all readers of a partition drop the same ones, because they see them in the same
//! order. The marks are part of the checkpoint: keep it together with what was made of the records, in one step.
//!
//! ```
//! use std::time::SystemTime;
//! # use leasehold_core::name::{Name, resource_hash};
//! # use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};
//! use leasehold_fence::logs::{Sieve, Sifted};
//!
//! # let cluster = Cluster(*b"payments");
//! # let token = |number| {
//! #     let (resource, number) = (resource_hash("jobs/settle"), Number::new(number).unwrap());
//! #     Token { cluster, incarnation: Incarnation(1), resource, reach: Reach::Slot(0), number }.to_string()
//! # };
//! let mut sieve = Sieve::new(cluster, Name::parse("jobs/settle")?, 0);
//! let mut read = |at, stamp: &str| sieve.sift("settled-0", at, SystemTime::now(), stamp);
//! assert!(matches!(read(0, &format!("write {}", token(33))), Sifted::Passed { .. }));
//! assert!(matches!(read(1, &format!("claim {}", token(34))), Sifted::Claimed { .. }));
//! assert!(matches!(read(2, &format!("write {}", token(33))), Sifted::Dropped(_)), "the paused holder woke up");
//! let again = Sieve::resume(cluster, Name::parse("jobs/settle")?, 0, &sieve.checkpoint())?;
//! assert_eq!(again.next("settled-0"), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::name::Name;
use leasehold_core::time::Wall;
use leasehold_core::token::{Cluster, Number, TokenError};

use crate::place::Place;
use crate::{Error, Lost, Mark, Refusal};

/// The first line of a checkpoint.
const HEAD: &str = "leasehold-sieve 1";

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sifted {
    /// It counts.
    Passed {
        /// The number of its token.
        number: Number,
    },
    /// A new holder came; there is nothing to be made of it.
    Claimed {
        /// The number of its token.
        number: Number,
    },
    /// It does not count: it came too late, or shows no token for this.
    Dropped(Refusal),
    /// It lies before the checkpoint.
    Seen,
}

/// How far a partition was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Read {
    next: u64,
    /// 0: none seen.
    mark: u64,
}

/// A reader's marks, one for each partition.
#[derive(Clone, Debug)]
pub struct Sieve {
    place: Place,
    partitions: BTreeMap<String, Read>,
    dropped: u64,
}

impl Sieve {
    /// For a reader that begins at the beginning. Begin there with every log that a fence shall hold for: a mark that was
    /// not read is not known.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { place: Place::new(cluster, resource, slot), partitions: BTreeMap::new(), dropped: 0 }
    }

    /// For a reader that goes on at a checkpoint.
    pub fn resume(cluster: Cluster, resource: Name<'_>, slot: u32, checkpoint: &str) -> Result<Self, Error> {
        let mut sieve = Self::new(cluster, resource, slot);
        let mut lines = checkpoint.lines();
        if lines.next() != Some(HEAD) || lines.next() != Some(sieve.whose().as_str()) {
            return Err(Error::Conflict("the checkpoint is of another sieve; keep it as it was given, or begin anew"));
        }
        for line in lines {
            let read = partition(line).ok_or(Refusal::Lost(Lost::Unreadable))?;
            let partition = read.0.replace("%0d", "\r").replace("%0a", "\n").replace("%25", "%");
            sieve.partitions.insert(partition, read.1);
        }
        Ok(sieve)
    }

    /// Passes or drops the record at this position of a partition. `appended` is the time that the log itself put on the
    /// record: it must not depend on who reads, or two readers would drop different records.
    pub fn sift(&mut self, partition: &str, position: u64, appended: SystemTime, stamp: &str) -> Sifted {
        let read = self.partitions.get(partition).copied().unwrap_or_default();
        if position < read.next {
            return Sifted::Seen;
        }
        let (sifted, mark) = match self.judge(read.mark, appended, stamp) {
            Ok((sifted, mark)) => (sifted, mark.get()),
            Err(refusal) => {
                self.dropped += 1;
                (Sifted::Dropped(refusal), read.mark)
            }
        };
        self.partitions.insert(partition.to_owned(), Read { next: position.saturating_add(1), mark });
        sifted
    }

    fn judge(&self, mark: u64, appended: SystemTime, stamp: &str) -> Result<(Sifted, Number), Refusal> {
        let (kind, text) = stamp.split_once(' ').unwrap_or(("", stamp));
        if !matches!(kind, "write" | "claim") {
            return Err(if stamp.is_empty() { TokenError::Absent } else { TokenError::Shape }.into());
        }
        let since = appended.duration_since(UNIX_EPOCH).unwrap_or_default();
        let shown = self.place.read_at(text, Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))?;
        let mark = Number::new(mark).map_or(Mark::Fresh, Mark::Armed);
        let number = match shown.against(mark, Lost::Unreadable) {
            Ok(number) => number,
            Err(Error::Refused(refusal)) => return Err(refusal),
            Err(_) => return Err(Refusal::Lost(Lost::Unreadable)),
        };
        Ok((if kind == "claim" { Sifted::Claimed { number } } else { Sifted::Passed { number } }, number))
    }

    /// Where to go on reading a partition.
    pub fn next(&self, partition: &str) -> u64 {
        self.partitions.get(partition).map_or(0, |read| read.next)
    }

    /// The highest number seen in a partition.
    pub fn mark(&self, partition: &str) -> Option<Number> {
        self.partitions.get(partition).and_then(|read| Number::new(read.mark))
    }

    /// How many records were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How far everything was read, with the marks: a text to be kept with what was made of the records.
    pub fn checkpoint(&self) -> String {
        let mut text = format!("{HEAD}\n{}\n", self.whose());
        for (partition, Read { next, mark }) in &self.partitions {
            let partition = partition.replace('%', "%25").replace('\n', "%0a").replace('\r', "%0d");
            text.push_str(&format!("{next} {mark} {partition}\n"));
        }
        text
    }

    fn whose(&self) -> String {
        format!("{} {} {}", self.place.guarded.cluster, self.place.resource(), self.place.guarded.slot)
    }
}

fn partition(line: &str) -> Option<(&str, Read)> {
    let (next, rest) = line.split_once(' ')?;
    let (mark, partition) = rest.split_once(' ')?;
    Some((partition, Read { next: next.parse().ok()?, mark: mark.parse().ok()? }))
}
