//! When each lease wants to be looked at next, in buckets, so that a hundred thousand cost a few wake-ups.

use std::collections::BTreeMap;

use leasehold_core::time::Instant;

/// Times are rounded up to at most this many nanoseconds: about 33 milliseconds.
const GRAIN_MOST: u64 = 1 << 25;

/// One lease's place, and which of its timers this is: only the newest counts.
pub(super) type Entry = (u32, u32);

#[derive(Debug, Default)]
pub(super) struct Timers {
    buckets: BTreeMap<u64, Vec<Entry>>,
    spare: Vec<Vec<Entry>>,
}

impl Timers {
    /// Wakes at `at`, or a little later, but not after `latest`. Longer waits are rounded more.
    pub(super) fn set(&mut self, now: Instant, at: Instant, latest: Instant, entry: Entry) {
        let wait = at.0.saturating_sub(now.0);
        let grain = (wait / 64).checked_ilog2().map_or(1, |log| 1 << log).min(GRAIN_MOST);
        let rounded = at.0.checked_next_multiple_of(grain).unwrap_or(at.0);
        let key = if rounded > latest.0 { at.0 } else { rounded };
        let spare = &mut self.spare;
        self.buckets.entry(key).or_insert_with(|| spare.pop().unwrap_or_default()).push(entry);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.buckets.keys().next().copied().map(Instant)
    }

    /// Takes one bucket whose time has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<Entry>> {
        let first = self.buckets.first_entry()?;
        (*first.key() <= now.0).then(|| first.remove())
    }

    /// Gives a bucket back to be used again.
    pub(super) fn used(&mut self, mut bucket: Vec<Entry>) {
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
        let mut timers = Timers::default();
        let now = Instant::from_millis(1_000);
        let cases = [(1_001, 1_001), (1_010, 5_000), (4_321, 9_000), (4_321, 4_321), (900, 2_000)];
        for (place, (at, latest)) in cases.into_iter().enumerate() {
            let (at, latest) = (Instant::from_millis(at), Instant::from_millis(latest));
            timers.set(now, at, latest, (place as u32, 0));
            let key = timers.next().expect("it is set");
            assert!(key >= at && key <= latest, "{at:?} became {key:?}");
            let bucket = timers.due(key).expect("its time has come");
            assert_eq!(bucket, [(place as u32, 0)]);
            timers.used(bucket);
        }
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn timers_far_away_share_their_wake_ups() {
        let mut timers = Timers::default();
        (0..10_000).for_each(|ms| {
            let at = Instant::from_millis(20_000 + ms);
            timers.set(Instant::default(), at, Instant::from_millis(60_000), (ms as u32, 0));
        });
        assert!(timers.buckets.len() < 400, "{} buckets", timers.buckets.len());
    }
}
