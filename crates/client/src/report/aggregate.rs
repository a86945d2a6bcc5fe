//! Counts fence decisions on the write path: never blocks, does not allocate for a known resource, and is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

use leasehold_core::coverage::{FenceMode, FenceReport, RefusedZombie};
use leasehold_core::token::Number;
use leasehold_fence::{FenceEvent, FenceRefusal};

/// Number of stripes, so that concurrent writers do not contend. A locked stripe is skipped.
const STRIPES: usize = 8;
/// Limit on the resource slots that one stripe counts.
const MAX_SLOTS: usize = 1_024;
/// Zombies of one resource slot that are reported individually; further ones only count as refusals.
const MAX_ZOMBIES: usize = 16;

/// Counts of one resource slot.
#[derive(Clone, Debug)]
pub struct SlotCounts {
    checks: u64,
    refusals: u64,
    last: Instant,
    highest: Option<Number>,
    /// Presented number, mark, and how often.
    zombies: Vec<(Number, Number, u64)>,
}

impl SlotCounts {
    fn new(now: Instant) -> Self {
        Self { checks: 0, refusals: 0, last: now, highest: None, zombies: Vec::new() }
    }

    fn add(&mut self, event: &FenceEvent<'_>, now: Instant) {
        self.checks += 1;
        self.last = now;
        let mark = match event.refusal {
            None => event.number,
            Some(refusal) => {
                self.refusals += 1;
                match refusal {
                    FenceRefusal::Stale { presented, mark } => {
                        self.zombie(presented, mark, 1);
                        Some(mark)
                    }
                    _ => None,
                }
            }
        };
        self.highest = self.highest.max(mark);
    }

    fn zombie(&mut self, presented: Number, mark: Number, times: u64) {
        if let Some((_, highest, count)) = self.zombies.iter_mut().find(|(number, _, _)| *number == presented) {
            (*highest, *count) = (mark.max(*highest), *count + times);
        } else if self.zombies.len() < MAX_ZOMBIES {
            self.zombies.push((presented, mark, times));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.checks += other.checks;
        self.refusals += other.refusals;
        self.last = self.last.max(other.last);
        self.highest = self.highest.max(other.highest);
        other.zombies.iter().for_each(|(presented, mark, times)| self.zombie(*presented, *mark, *times));
    }

    /// Number of report entries that it needs.
    pub fn entries(&self) -> usize {
        self.zombies.len().max(1)
    }
}

/// Counts by target, resource and slot: the contents of one stripe, and the counts that wait to be sent.
#[derive(Debug, Default)]
pub struct ReportBuffer {
    targets: BTreeMap<u32, BTreeMap<Box<str>, BTreeMap<u32, SlotCounts>>>,
    slots: usize,
}

impl ReportBuffer {
    /// Counts a decision. Returns false if there is no room for its slot.
    fn add(&mut self, target: u32, event: &FenceEvent<'_>, now: Instant) -> bool {
        let resources = self.targets.entry(target).or_default();
        if let Some(counts) = resources.get_mut(event.resource).and_then(|slots| slots.get_mut(&event.slot)) {
            counts.add(event, now);
            return true;
        }
        if self.slots >= MAX_SLOTS {
            return false;
        }
        let slots = resources.entry(event.resource.into()).or_default();
        slots.entry(event.slot).or_insert_with(|| SlotCounts::new(now)).add(event, now);
        self.slots += 1;
        true
    }

    /// Adds other counts up to `limit` slots. Returns the number of checks that were left out.
    pub fn merge(&mut self, other: Self, limit: usize) -> u64 {
        let mut missed = 0;
        for (target, resources) in other.targets {
            for (resource, slots) in resources {
                for (slot, counts) in slots {
                    let known_slots = self.targets.entry(target).or_default().entry(resource.clone()).or_default();
                    match known_slots.get_mut(&slot) {
                        Some(known) => known.merge(&counts),
                        None if self.slots >= limit => missed += counts.checks,
                        None => {
                            known_slots.insert(slot, counts);
                            self.slots += 1;
                        }
                    }
                }
            }
        }
        missed
    }

    /// Removes as many slots as fit into one batch, at least one.
    pub fn take(&mut self, entries: usize) -> Vec<(u32, Box<str>, u32, SlotCounts)> {
        let (mut batch, mut remaining) = (Vec::new(), entries);
        while let Some((target, mut resources)) = self.targets.pop_first() {
            while let Some((resource, mut slots)) = resources.pop_first() {
                while let Some((slot, counts)) = slots.pop_first() {
                    if !batch.is_empty() && counts.entries() > remaining {
                        slots.insert(slot, counts);
                        resources.insert(resource, slots);
                        self.targets.insert(target, resources);
                        return batch;
                    }
                    remaining = remaining.saturating_sub(counts.entries());
                    self.slots -= 1;
                    batch.push((target, resource.clone(), slot, counts));
                }
            }
        }
        batch
    }

    /// Returns counts that could not be sent.
    pub fn put_back(&mut self, unsent: Vec<(u32, Box<str>, u32, SlotCounts)>, limit: usize) -> u64 {
        let mut back = Self::default();
        for (target, resource, slot, counts) in unsent {
            back.targets.entry(target).or_default().entry(resource).or_default().insert(slot, counts);
        }
        self.merge(back, limit)
    }

    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }
}

/// Report entries of one slot: the first has the counters, and each has one zombie.
pub fn entries<'a>(
    target: &'a (String, FenceMode),
    resource: &'a str,
    slot: u32,
    counts: &SlotCounts,
    now: Instant,
) -> Vec<FenceReport<'a>> {
    let ago = u64::try_from(now.saturating_duration_since(counts.last).as_millis()).unwrap_or(u64::MAX);
    let zombie = |index: usize| {
        let (presented, mark, times) = *counts.zombies.get(index)?;
        Some(RefusedZombie { presented, mark, times, holder: "" })
    };
    let entry = |index: usize| FenceReport {
        resource,
        slot,
        target: &target.0,
        mode: target.1,
        checks: if index == 0 { counts.checks } else { 0 },
        refusals: if index == 0 { counts.refusals } else { 0 },
        checked_ago_ms: ago,
        highest: counts.highest,
        zombie: zombie(index),
    };
    (0..counts.entries()).map(entry).collect()
}

/// All stripes, and the names of the targets.
#[derive(Debug, Default)]
pub struct Aggregator {
    stripes: [Mutex<ReportBuffer>; STRIPES],
    next: AtomicUsize,
    missed: AtomicU64,
    targets: Mutex<Vec<(String, FenceMode)>>,
}

impl Aggregator {
    /// Number of a target; the same for the same name and mode.
    pub fn target(&self, name: &str, mode: FenceMode) -> u32 {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = targets.iter().position(|(known, known_mode)| known == name && *known_mode == mode);
        let at = known.unwrap_or_else(|| {
            targets.push((name.to_owned(), mode));
            targets.len() - 1
        });
        u32::try_from(at).expect("a process has few targets")
    }

    pub fn names(&self) -> Vec<(String, FenceMode)> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a decision in the first stripe that is not locked. Never blocks.
    pub fn add(&self, target: u32, event: &FenceEvent<'_>) {
        let (first, now) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        for offset in 0..STRIPES {
            let mut stripe = match self.stripes[first.wrapping_add(offset) % STRIPES].try_lock() {
                Ok(stripe) => stripe,
                Err(TryLockError::Poisoned(stripe)) => stripe.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if stripe.add(target, event, now) {
                return;
            }
        }
        self.add_missed(1);
    }

    /// Moves the counts of all stripes into one buffer.
    pub fn collect(&self, into: &mut ReportBuffer, limit: usize) {
        for stripe in &self.stripes {
            let counts = std::mem::take(&mut *stripe.lock().unwrap_or_else(PoisonError::into_inner));
            self.add_missed(into.merge(counts, limit));
        }
    }

    pub fn add_missed(&self, checks: u64) {
        self.missed.fetch_add(checks, Ordering::Relaxed);
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_fence::Operation;

    fn number(n: u64) -> Number {
        Number::new(n).unwrap()
    }

    fn stale<'a>(resource: &'a str, presented: u64) -> FenceEvent<'a> {
        let refusal = FenceRefusal::Stale { presented: number(presented), mark: number(1_000_000) };
        FenceEvent {
            resource,
            slot: 0,
            operation: Operation::Write,
            number: Some(number(presented)),
            refusal: Some(refusal),
            previous_incarnation: None,
        }
    }

    #[test]
    fn repeated_decisions_about_one_slot_are_one_entry() {
        let aggregator = Aggregator::default();
        let target = aggregator.target("ledger", FenceMode::Forced);
        for _ in 0..10_000 {
            aggregator.add(target, &stale("jobs/a", 7));
        }
        let mut counts = ReportBuffer::default();
        aggregator.collect(&mut counts, MAX_SLOTS);
        let batch = counts.take(256);
        let [(_, resource, 0, counts)] = &batch[..] else { panic!("expected one slot: {batch:?}") };
        assert_eq!((&**resource, counts.checks, counts.refusals), ("jobs/a", 10_000, 10_000));
        assert_eq!(counts.zombies, [(number(7), number(1_000_000), 10_000)]);
        assert_eq!(aggregator.missed(), 0);
    }

    #[test]
    fn slots_and_zombies_are_bounded_and_omitted_checks_are_counted() {
        let aggregator = Aggregator::default();
        let target = aggregator.target("ledger", FenceMode::Forced);
        let names: Vec<String> = (0..STRIPES * MAX_SLOTS + 500).map(|n| format!("jobs/{n}")).collect();
        for name in &names {
            aggregator.add(target, &stale(name, 7));
        }
        assert_eq!(aggregator.missed(), 500);
        let mut counts = ReportBuffer::default();
        aggregator.collect(&mut counts, 2 * MAX_SLOTS);
        assert_eq!(counts.slots, 2 * MAX_SLOTS);
        assert_eq!(aggregator.missed(), 500 + ((STRIPES - 2) * MAX_SLOTS) as u64);
        let mut counts = SlotCounts::new(Instant::now());
        (1..100).for_each(|shown| counts.add(&stale("jobs/a", shown), Instant::now()));
        assert_eq!((counts.zombies.len(), counts.refusals), (MAX_ZOMBIES, 99));
    }

    #[test]
    fn a_batch_is_bounded_and_unsent_counts_are_kept() {
        let mut counts = ReportBuffer::default();
        for resource in ["a", "b", "c"] {
            for shown in 1..=4 {
                assert!(counts.add(0, &stale(resource, shown), Instant::now()));
            }
        }
        let first = counts.take(8);
        assert_eq!(first.len(), 2);
        assert_eq!(counts.put_back(first, MAX_SLOTS), 0);
        assert_eq!(counts.take(256).len(), 3);
        assert!(counts.is_empty());
    }
}
