//! Poll times of leases in rounded buckets, so that a hundred thousand leases cost few wake-ups.

use std::collections::BTreeMap;

use leasehold_core::time::Instant;

/// Times are rounded up to at most this many nanoseconds: about 33 milliseconds.
const MAX_GRAIN: u64 = 1 << 25;

/// Index of a lease, and the stamp of its timer: only the newest stamp counts.
pub(super) type TimerEntry = (u32, u32);

/// Timers by expiry in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct LeaseTimers {
    buckets: BTreeMap<u64, Vec<TimerEntry>>,
    spare: Vec<Vec<TimerEntry>>,
}

impl LeaseTimers {
    /// Wakes at `at`, or a little later, but not after `latest`. Longer waits are rounded more.
    pub(super) fn set(&mut self, now: Instant, at: Instant, latest: Instant, entry: TimerEntry) {
        let wait = at.0.saturating_sub(now.0);
        let grain = (wait / 64).checked_ilog2().map_or(1, |log| 1 << log).min(MAX_GRAIN);
        let rounded = at.0.checked_next_multiple_of(grain).unwrap_or(at.0);
        let key = if rounded > latest.0 { at.0 } else { rounded };
        let spare = &mut self.spare;
        self.buckets.entry(key).or_insert_with(|| spare.pop().unwrap_or_default()).push(entry);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.buckets.keys().next().copied().map(Instant)
    }

    /// Takes one bucket whose time has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<TimerEntry>> {
        let first = self.buckets.first_entry()?;
        (*first.key() <= now.0).then(|| first.remove())
    }

    /// Returns an empty bucket for reuse.
    pub(super) fn recycle(&mut self, mut bucket: Vec<TimerEntry>) {
        if self.spare.len() < 64 {
            bucket.clear();
            self.spare.push(bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_early_and_never_after_its_latest() {
        let mut timers = LeaseTimers::default();
        let now = Instant::from_millis(1_000);
        let cases = [(1_001, 1_001), (1_010, 5_000), (4_321, 9_000), (4_321, 4_321), (900, 2_000)];
        for (index, (at, latest)) in cases.into_iter().enumerate() {
            let (at, latest) = (Instant::from_millis(at), Instant::from_millis(latest));
            timers.set(now, at, latest, (index as u32, 0));
            let key = timers.next().expect("the timer is set");
            assert!(key >= at && key <= latest, "{at:?} became {key:?}");
            let bucket = timers.due(key).expect("the bucket is due");
            assert_eq!(bucket, [(index as u32, 0)]);
            timers.recycle(bucket);
        }
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn distant_timers_share_wake_ups() {
        let mut timers = LeaseTimers::default();
        (0..10_000).for_each(|ms| {
            let at = Instant::from_millis(20_000 + ms);
            timers.set(Instant::default(), at, Instant::from_millis(60_000), (ms as u32, 0));
        });
        assert!(timers.buckets.len() < 400, "{} buckets", timers.buckets.len());
    }
}
