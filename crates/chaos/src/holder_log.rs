//! Event log of a holder: one line per event, written before the holder continues, so that SIGKILL loses no line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Microseconds since the run began, on the clock that all processes share.
    pub at: u64,
    /// Index of the holder.
    pub holder: u32,
    /// The event.
    pub event: LoggedEvent,
}

/// An event that a holder observes. Tokens appear only as their numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum LoggedEvent {
    /// A request to the grantor is sent.
    Requested { op: u64, request: RequestKind },
    /// A lease is granted.
    Granted { op: u64, number: u64, lease: String, ttl: u64, remaining: u64 },
    /// The lease is current.
    Current { op: u64, number: u64, remaining: u64 },
    /// The request succeeded.
    Done { op: u64 },
    /// The request is refused.
    Refused { op: u64, code: String, reason: Option<String> },
    /// The outcome of a request is unknown.
    OutcomeUnknown { op: u64, error: String },
    /// By the holder's clock, the lease is held at a moment after this one.
    BelievedHeld { number: u64 },
    /// A write is sent to a target; without a value it is a claim.
    WriteSent { op: u64, target: u32, number: u64, value: bool },
    /// The target acknowledged the write.
    WriteAcknowledged { op: u64 },
    /// The fence refused the write.
    WriteRefused { op: u64, code: String },
    /// The outcome of the write is unknown, or nothing was sent.
    WriteUnknown { op: u64, error: String },
}

/// A request to the grantor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub enum RequestKind {
    Acquire { resource: usize, ttl: u64, wait: u64 },
    Renew { number: u64, lease: String },
    Confirm { number: u64, lease: String },
    Release { number: u64, lease: String },
}

/// The monotonic clock that all processes share, in nanoseconds.
pub fn clock() -> u64 {
    let read = clock_gettime(ClockId::Monotonic);
    u64::try_from(read.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(read.tv_nsec).unwrap_or(0)
}

/// Writer of an event log.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    origin: u64,
    holder: u32,
}

impl EventLog {
    /// Opens the holder's log for appending.
    pub fn open(path: &Path, origin: u64, holder: u32) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, origin, holder })
    }

    /// Microseconds since the run began.
    pub fn now(&self) -> u64 {
        clock().saturating_sub(self.origin) / 1_000
    }

    /// Appends an event with the current time.
    pub fn append(&mut self, event: LoggedEvent) {
        self.append_at(self.now(), event);
    }

    /// Appends an event with an earlier time.
    pub fn append_at(&mut self, at: u64, event: LoggedEvent) {
        let entry = LogEntry { at, holder: self.holder, event };
        let mut line = serde_json::to_vec(&entry).expect("plain values");
        line.push(b'\n');
        // One write call per line. Without a complete log a run proves nothing, so a failed write panics.
        self.file.write_all(&line).expect("the run's directory is writable");
    }
}

/// Reads all entries of a log. SIGKILL may have cut the last line, which is skipped.
pub fn read(path: &Path) -> io::Result<Vec<LogEntry>> {
    let text = std::fs::read(path)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}
