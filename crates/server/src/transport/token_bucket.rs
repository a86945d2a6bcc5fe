//! A token bucket whose burst is one second's worth of requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// The time at which the bucket is full again, in nanoseconds since a start that its owner chooses.
#[derive(Debug, Default)]
pub(super) struct TokenBucket(AtomicU64);

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds between two requests.
fn interval(limit: u32) -> u64 {
    (SECOND / u64::from(limit)).max(1)
}

impl TokenBucket {
    /// Takes one request of `limit` per second, or returns the nanoseconds until one is there. Zero is unlimited.
    pub(super) fn take(&self, now: u64, limit: u32) -> Result<(), u64> {
        if limit == 0 {
            return Ok(());
        }
        let interval = interval(limit);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now) + interval;
            (full_at - now <= SECOND.max(interval)).then_some(full_at)
        });
        taken.map(drop).map_err(|full_at| (full_at + interval - now).saturating_sub(SECOND))
    }

    /// Returns a request that was taken.
    pub(super) fn put_back(&self, limit: u32) {
        if limit > 0 {
            self.0.fetch_sub(interval(limit), Ordering::Relaxed);
        }
    }

    pub(super) fn is_full(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now
    }
}
