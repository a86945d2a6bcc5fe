//! A bounded history of the server's counters for charts: one sample every few seconds, the last hour, in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::lease::EndReason;

/// Time between two samples.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Samples of one hour.
const SAMPLES: usize = 720;

/// Counters at one moment. Counts are totals since the server or its journal began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerSample {
    /// Wall clock.
    pub wall_ms: u64,
    /// Held leases.
    pub held: u64,
    /// Waiters.
    pub waiters: u64,
    /// Ended leases by reason, in the order of its codes.
    pub ended: [u64; EndReason::ALL.len()],
    /// Renewals.
    pub renewals: u64,
    /// Refused writes of zombies.
    pub zombies: u64,
    /// Batches that became durable, and the time that took.
    pub syncs: u64,
    /// Microseconds of all syncs.
    pub sync_micros: u64,
    /// Turns.
    pub turns: u64,
    /// Microseconds of all turns.
    pub turn_micros: u64,
}

/// The change between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleChange {
    /// Seconds between them.
    pub seconds: f64,
    /// The later sample.
    pub last: ServerSample,
    /// The earlier sample.
    pub first: ServerSample,
}

impl SampleChange {
    /// Ended leases with a reason.
    pub fn ended(&self, reason: EndReason) -> f64 {
        let index = usize::from(reason.code());
        self.last.ended[index].saturating_sub(self.first.ended[index]) as f64
    }

    /// Renewals per second.
    pub fn renewals_per_second(&self) -> f64 {
        self.last.renewals.saturating_sub(self.first.renewals) as f64 / self.seconds.max(0.001)
    }

    /// Refused writes of zombies.
    pub fn zombies(&self) -> f64 {
        self.last.zombies.saturating_sub(self.first.zombies) as f64
    }

    /// Mean time to make a batch durable, in milliseconds.
    pub fn sync_ms(&self) -> f64 {
        mean_ms(self.last.syncs, self.first.syncs, self.last.sync_micros, self.first.sync_micros)
    }

    /// Mean duration of a turn, in milliseconds.
    pub fn turn_ms(&self) -> f64 {
        mean_ms(self.last.turns, self.first.turns, self.last.turn_micros, self.first.turn_micros)
    }
}

fn mean_ms(count: u64, before: u64, micros: u64, micros_before: u64) -> f64 {
    match count.saturating_sub(before) {
        0 => 0.0,
        count => micros.saturating_sub(micros_before) as f64 / count as f64 / 1_000.0,
    }
}

/// The samples of the last hour.
#[derive(Debug, Default)]
pub struct SampleRing {
    samples: Mutex<VecDeque<ServerSample>>,
}

impl SampleRing {
    fn samples(&self) -> MutexGuard<'_, VecDeque<ServerSample>> {
        // A thread that panicked while it held the lock left whole samples.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample.
    pub fn push(&self, sample: ServerSample) {
        let mut samples = self.samples();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Changes between samples, oldest first, joined to at most `limit`.
    pub fn changes(&self, limit: usize) -> Vec<SampleChange> {
        let samples = self.samples();
        let step = samples.len().saturating_sub(1).div_ceil(limit.max(1)).max(1);
        // From the newest back, so that the last change is complete.
        let picked: Vec<ServerSample> = samples.iter().rev().step_by(step).copied().collect();
        let change = |pair: &[ServerSample]| {
            let (last, first) = (pair[0], pair[1]);
            SampleChange { seconds: last.wall_ms.saturating_sub(first.wall_ms) as f64 / 1_000.0, last, first }
        };
        picked.windows(2).map(change).rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64) -> ServerSample {
        ServerSample {
            wall_ms: at * 5_000,
            renewals: at * 10,
            syncs: at,
            sync_micros: at * 2_000,
            ..ServerSample::default()
        }
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let ring = SampleRing::default();
        assert!(ring.changes(10).is_empty());
        ring.push(sample(1));
        assert!(ring.changes(10).is_empty(), "one sample has no rate");
        ring.push(sample(2));
        let changes = ring.changes(10);
        assert_eq!(changes.len(), 1);
        assert!((changes[0].renewals_per_second() - 2.0).abs() < 1e-9);
        assert!((changes[0].sync_ms() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_ring_is_bounded_and_joins_samples() {
        let ring = SampleRing::default();
        (0..2_000).for_each(|at| ring.push(sample(at)));
        assert_eq!(ring.changes(usize::MAX).len(), SAMPLES - 1);
        let joined = ring.changes(60);
        assert!(joined.len() <= 60 && joined.len() > 50, "{}", joined.len());
        assert_eq!(joined.last().map(|change| change.last.wall_ms), Some(1_999 * 5_000));
        assert!(joined.windows(2).all(|pair| pair[0].last == pair[1].first), "no sample is skipped");
    }

    #[test]
    fn a_counter_that_starts_again_gives_no_negative_rate() {
        let ring = SampleRing::default();
        ring.push(sample(5));
        ring.push(ServerSample { wall_ms: 30_000, ..sample(0) });
        assert!(ring.changes(1)[0].renewals_per_second().abs() < 1e-9);
    }
}
