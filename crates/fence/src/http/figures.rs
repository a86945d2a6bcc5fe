//! What is counted beside the fence's answers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is neither admitted nor refused.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) free: AtomicU64,
    pub(super) blocked: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) malformed: AtomicU64,
}

/// The figures as they stood at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Requests that no rule fences.
    pub free: u64,
    /// Requests that others kept out for longer than the bound.
    pub blocked: u64,
    /// Late duplicates, by their sequence.
    pub duplicates: u64,
    /// Requests whose outcome was unknown when the fence answered.
    pub unknown: u64,
    /// Requests with two tokens, a sequence that is none, or a path that winds.
    pub malformed: u64,
}

impl Figures {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Seen {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Seen {
            free: read(&self.free),
            blocked: read(&self.blocked),
            duplicates: read(&self.duplicates),
            unknown: read(&self.unknown),
            malformed: read(&self.malformed),
        }
    }
}
