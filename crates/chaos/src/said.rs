//! What a process saw, one line each, written before anything else happens: a kill takes no line back.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// Microseconds since the run began, on the clock that all processes of the machine share.
    pub at: u64,
    /// Which holder.
    pub who: u32,
    /// What it saw.
    pub what: What,
}

/// What a holder may be heard to say. Tokens appear by their number alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum What {
    /// It asks a grantor.
    Asks { op: u64, ask: Asks },
    /// It was granted a lease.
    Granted { op: u64, number: u64, lease: String, ttl: u64, remaining: u64 },
    /// Its lease is current.
    Current { op: u64, number: u64, remaining: u64 },
    /// It is done.
    Done { op: u64 },
    /// It was refused.
    Refused { op: u64, code: String, reason: Option<String> },
    /// It goes on without an answer.
    Unknown { op: u64, why: String },
    /// By its own clock it holds, at a moment after this one.
    Believes { number: u64 },
    /// It sends a write to a target; without a value it is a claim.
    Sends { op: u64, target: u32, number: u64, value: bool },
    /// The write is in.
    Written { op: u64 },
    /// A fence refused it.
    Stopped { op: u64, code: String },
    /// Nobody knows whether it is in, or nothing was sent.
    Lost { op: u64, why: String },
}

/// What a holder asks a grantor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub enum Asks {
    Acquire { resource: usize, ttl: u64, wait: u64 },
    Renew { number: u64, lease: String },
    Confirm { number: u64, lease: String },
    Release { number: u64, lease: String },
}

/// The clock that all processes share, in nanoseconds.
pub fn clock() -> u64 {
    let read = clock_gettime(ClockId::Monotonic);
    u64::try_from(read.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0)
}

/// Where a process writes what it sees.
#[derive(Debug)]
pub struct Voice {
    file: File,
    origin: u64,
    who: u32,
}

impl Voice {
    /// Appends to a file of its own.
    pub fn open(path: &Path, origin: u64, who: u32) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, origin, who })
    }

    /// Microseconds since the run began.
    pub fn now(&self) -> u64 {
        clock().saturating_sub(self.origin) / 1_000
    }

    /// Says what it sees now.
    pub fn say(&mut self, what: What) {
        self.say_at(self.now(), what);
    }

    /// Says what it saw then.
    pub fn say_at(&mut self, at: u64, what: What) {
        let said = Said { at, who: self.who, what };
        let mut line = serde_json::to_vec(&said).expect("plain values");
        line.push(b'\n');
        // One write for each line. A history that cannot be written is a run that proves nothing.
        self.file.write_all(&line).expect("the run's own directory has room");
    }
}

/// Everything that was said into a file. The last line may be cut by a kill.
pub fn read(path: &Path) -> io::Result<Vec<Said>> {
    let text = std::fs::read(path)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
