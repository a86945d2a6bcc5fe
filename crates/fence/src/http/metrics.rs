//! Counters of requests that are neither admitted nor rejected by the fence.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts requests that no decision of the fence covers.
#[derive(Debug, Default)]
pub(super) struct GateCounters {
    pub(super) exempt: AtomicU64,
    pub(super) blocked: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) malformed: AtomicU64,
}

/// The values of the gate's counters at one time. Decisions about tokens are counted in [`Counters`](crate::Counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateMetrics {
    /// Requests without a token check, by the rules.
    pub exempt: u64,
    /// Requests that waited longer than the claim timeout for other requests.
    pub blocked: u64,
    /// Duplicates, detected by their sequence.
    pub duplicates: u64,
    /// Requests whose outcome was unknown when the fence replied.
    pub unknown: u64,
    /// Requests with two tokens, an invalid sequence, or an ambiguous path.
    pub malformed: u64,
}

impl GateCounters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> GateMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GateMetrics {
            exempt: read(&self.exempt),
            blocked: read(&self.blocked),
            duplicates: read(&self.duplicates),
            unknown: read(&self.unknown),
            malformed: read(&self.malformed),
        }
    }
}
