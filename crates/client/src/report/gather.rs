//! Where answers of fences are counted on the writer's way: no wait, no allocation for a place that is known, an end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;

use leasehold_core::coverage::{Mode, Refused, Report};
use leasehold_core::token::Number;
use leasehold_fence::{Event, Refusal};

/// Drawers, so that writers side by side do not meet; one that is taken is passed over.
const DRAWERS: usize = 8;
/// Places that one drawer counts.
const PLACES: usize = 1_024;
/// Zombies at one place that are told one by one; further ones only count as refused.
const ZOMBIES: usize = 16;

/// What was counted at one place.
#[derive(Clone, Debug)]
pub struct Tally {
    checks: u64,
    refusals: u64,
    last: Instant,
    highest: Option<Number>,
    /// What was shown, what stood, and how often.
    zombies: Vec<(Number, Number, u64)>,
}

impl Tally {
    fn new(now: Instant) -> Self {
        Self { checks: 0, refusals: 0, last: now, highest: None, zombies: Vec::new() }
    }

    fn add(&mut self, event: &Event<'_>, now: Instant) {
        self.checks += 1;
        self.last = now;
        let stands = match event.refusal {
            None => event.number,
            Some(refusal) => {
                self.refusals += 1;
                match refusal {
                    Refusal::Stale { presented, mark } => {
                        self.zombie(presented, mark, 1);
                        Some(mark)
                    }
                    _ => None,
                }
            }
        };
        self.highest = self.highest.max(stands);
    }

    fn zombie(&mut self, presented: Number, mark: Number, times: u64) {
        if let Some((_, stood, known)) = self.zombies.iter_mut().find(|(shown, _, _)| *shown == presented) {
            (*stood, *known) = (mark.max(*stood), *known + times);
        } else if self.zombies.len() < ZOMBIES {
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

    /// How many entries of a report it takes.
    pub fn entries(&self) -> usize {
        self.zombies.len().max(1)
    }
}

/// Counts by target, resource and slot: what one drawer holds, and what is on its way to the grantor.
#[derive(Debug, Default)]
pub struct Counts {
    targets: BTreeMap<u32, BTreeMap<Box<str>, BTreeMap<u32, Tally>>>,
    places: usize,
}

impl Counts {
    /// Counts an answer; false if there is no room for its place.
    fn add(&mut self, target: u32, event: &Event<'_>, now: Instant) -> bool {
        let resources = self.targets.entry(target).or_default();
        if let Some(tally) = resources.get_mut(event.resource).and_then(|slots| slots.get_mut(&event.slot)) {
            tally.add(event, now);
            return true;
        }
        if self.places >= PLACES {
            return false;
        }
        let slots = resources.entry(event.resource.into()).or_default();
        slots.entry(event.slot).or_insert_with(|| Tally::new(now)).add(event, now);
        self.places += 1;
        true
    }

    /// Takes in what others counted, as far as there is room; how many checks were left out.
    pub fn merge(&mut self, other: Self, most: usize) -> u64 {
        let mut missed = 0;
        for (target, resources) in other.targets {
            for (resource, slots) in resources {
                for (slot, tally) in slots {
                    let there = self.targets.entry(target).or_default().entry(resource.clone()).or_default();
                    match there.get_mut(&slot) {
                        Some(known) => known.merge(&tally),
                        None if self.places >= most => missed += tally.checks,
                        None => {
                            there.insert(slot, tally);
                            self.places += 1;
                        }
                    }
                }
            }
        }
        missed
    }

    /// Takes out as many places as fit into one batch, at least one.
    pub fn take(&mut self, entries: usize) -> Vec<(u32, Box<str>, u32, Tally)> {
        let (mut taken, mut room) = (Vec::new(), entries);
        while let Some((target, mut resources)) = self.targets.pop_first() {
            while let Some((resource, mut slots)) = resources.pop_first() {
                while let Some((slot, tally)) = slots.pop_first() {
                    if !taken.is_empty() && tally.entries() > room {
                        slots.insert(slot, tally);
                        resources.insert(resource, slots);
                        self.targets.insert(target, resources);
                        return taken;
                    }
                    room = room.saturating_sub(tally.entries());
                    self.places -= 1;
                    taken.push((target, resource.clone(), slot, tally));
                }
            }
        }
        taken
    }

    /// Puts back what could not be sent.
    pub fn put_back(&mut self, unsent: Vec<(u32, Box<str>, u32, Tally)>, most: usize) -> u64 {
        let mut back = Self::default();
        for (target, resource, slot, tally) in unsent {
            back.targets.entry(target).or_default().entry(resource).or_default().insert(slot, tally);
        }
        self.merge(back, most)
    }

    pub fn is_empty(&self) -> bool {
        self.places == 0
    }
}

/// What one place has to tell, entry by entry: the first carries the figures, each one a zombie.
pub fn entries<'a>(
    target: &'a (String, Mode),
    resource: &'a str,
    slot: u32,
    tally: &Tally,
    now: Instant,
) -> Vec<Report<'a>> {
    let ago = u64::try_from(now.saturating_duration_since(tally.last).as_millis()).unwrap_or(u64::MAX);
    let zombie = |at: usize| {
        let (presented, mark, times) = *tally.zombies.get(at)?;
        Some(Refused { presented, mark, times, holder: "" })
    };
    let entry = |at: usize| Report {
        resource,
        slot,
        target: &target.0,
        mode: target.1,
        checks: if at == 0 { tally.checks } else { 0 },
        refusals: if at == 0 { tally.refusals } else { 0 },
        checked_ago_ms: ago,
        highest: tally.highest,
        zombie: zombie(at),
    };
    (0..tally.entries()).map(entry).collect()
}

/// All drawers, and the names of the targets.
#[derive(Debug, Default)]
pub struct Gathering {
    drawers: [Mutex<Counts>; DRAWERS],
    next: AtomicUsize,
    missed: AtomicU64,
    targets: Mutex<Vec<(String, Mode)>>,
}

impl Gathering {
    /// The number of a target; the same for the same name and mode.
    pub fn target(&self, name: &str, mode: Mode) -> u32 {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = targets.iter().position(|(known, its)| known == name && *its == mode);
        let at = known.unwrap_or_else(|| {
            targets.push((name.to_owned(), mode));
            targets.len() - 1
        });
        u32::try_from(at).expect("a process has few targets")
    }

    pub fn names(&self) -> Vec<(String, Mode)> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an answer in the first drawer that nobody has open. It never waits.
    pub fn add(&self, target: u32, event: &Event<'_>) {
        let (first, now) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        for at in 0..DRAWERS {
            let mut drawer = match self.drawers[first.wrapping_add(at) % DRAWERS].try_lock() {
                Ok(drawer) => drawer,
                Err(TryLockError::Poisoned(drawer)) => drawer.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if drawer.add(target, event, now) {
                return;
            }
        }
        self.miss(1);
    }

    /// Empties every drawer into one.
    pub fn collect(&self, into: &mut Counts, most: usize) {
        for drawer in &self.drawers {
            let counts = std::mem::take(&mut *drawer.lock().unwrap_or_else(PoisonError::into_inner));
            self.miss(into.merge(counts, most));
        }
    }

    pub fn miss(&self, checks: u64) {
        self.missed.fetch_add(checks, Ordering::Relaxed);
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_fence::Act;

    fn number(n: u64) -> Number {
        Number::new(n).unwrap()
    }

    fn stale<'a>(resource: &'a str, shown: u64) -> Event<'a> {
        let refusal = Refusal::Stale { presented: number(shown), mark: number(1_000_000) };
        Event { resource, slot: 0, act: Act::Write, number: Some(number(shown)), refusal: Some(refusal), left: None }
    }

    #[test]
    fn one_place_is_one_count_however_often_it_is_told() {
        let gathering = Gathering::default();
        let target = gathering.target("ledger", Mode::Forced);
        for _ in 0..10_000 {
            gathering.add(target, &stale("jobs/a", 7));
        }
        let mut counts = Counts::default();
        gathering.collect(&mut counts, PLACES);
        let taken = counts.take(256);
        let [(_, resource, 0, tally)] = &taken[..] else { panic!("one place: {taken:?}") };
        assert_eq!((&**resource, tally.checks, tally.refusals), ("jobs/a", 10_000, 10_000));
        assert_eq!(tally.zombies, [(number(7), number(1_000_000), 10_000)]);
        assert!(counts.is_empty() && gathering.missed() == 0);
    }

    #[test]
    fn there_is_an_end_to_places_and_zombies_and_what_is_left_out_is_counted() {
        let gathering = Gathering::default();
        let target = gathering.target("ledger", Mode::Forced);
        let names: Vec<String> = (0..DRAWERS * PLACES + 500).map(|n| format!("jobs/{n}")).collect();
        for name in &names {
            gathering.add(target, &stale(name, 7));
        }
        assert_eq!(gathering.missed(), 500);
        let mut counts = Counts::default();
        gathering.collect(&mut counts, 2 * PLACES);
        assert_eq!(counts.places, 2 * PLACES);
        assert_eq!(gathering.missed(), 500 + ((DRAWERS - 2) * PLACES) as u64);
        let mut tally = Tally::new(Instant::now());
        (1..100).for_each(|shown| tally.add(&stale("jobs/a", shown), Instant::now()));
        assert_eq!((tally.zombies.len(), tally.refusals), (ZOMBIES, 99));
    }

    #[test]
    fn a_batch_takes_no_more_than_fits_and_what_was_not_sent_is_there_again() {
        let mut counts = Counts::default();
        for resource in ["a", "b", "c"] {
            for shown in 1..=4 {
                assert!(counts.add(0, &stale(resource, shown), Instant::now()));
            }
        }
        let first = counts.take(8);
        assert_eq!(first.len(), 2);
        assert_eq!(counts.put_back(first, PLACES), 0);
        assert_eq!(counts.take(256).len(), 3);
        assert!(counts.is_empty());
    }
}
