//! Numbered places, each with a count of how often it was used before, so that an old id never means a new lease.

use std::fmt;

use super::pages::Pages;
use super::queue::Queue;

/// The last reuse of a place; after it the place is retired.
pub const REUSE_MAX: u32 = u32::MAX >> 1;

/// Places for `T`. What leaves a place stays readable as its tombstone until the place is taken again.
pub struct Slots<T> {
    entries: Pages<T>,
    /// For each place its reuse count, shifted up by one, and whether it is live in the lowest bit.
    states: Pages<u32>,
    vacant: Queue,
    keep: usize,
    count: usize,
}

/// One place as a snapshot keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<T> {
    /// How many lived there before.
    pub reuse: u32,
    /// Whether the entry is live, or a tombstone.
    pub live: bool,
    /// What is there.
    pub entry: T,
}

/// Places and a queue that no run of calls can have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced;

impl<T> Slots<T> {
    /// No places yet. A place is taken again only after this many others were vacated since it was.
    pub const fn with_keep(keep: usize) -> Self {
        Self { entries: Pages::new(), states: Pages::new(), vacant: Queue::new(), keep, count: 0 }
    }

    /// The slot and reuse that the next [`occupy`](Self::occupy) will take.
    pub fn next_place(&self) -> (u32, u32) {
        match self.vacant.first() {
            Some(slot) if self.vacant.len() > self.keep => (slot, (self.states[slot] >> 1) + 1),
            _ => (u32::try_from(self.entries.len()).expect("a table has fewer than 2^32 places"), 0),
        }
    }

    /// Puts an entry in the next place and tells its slot and reuse. The tombstone there is gone.
    pub fn occupy(&mut self, entry: T) -> (u32, u32) {
        self.occupy_as(self.next_place().1, entry)
    }

    /// The same under a later reuse than the next.
    pub fn occupy_as(&mut self, reuse: u32, entry: T) -> (u32, u32) {
        let (slot, next) = self.next_place();
        assert!((next..=REUSE_MAX).contains(&reuse), "no id comes again");
        let state = reuse << 1 | 1;
        if slot as usize == self.entries.len() {
            self.entries.push(entry);
            self.states.push(state);
        } else {
            self.vacant.pop();
            self.entries[slot] = entry;
            self.states[slot] = state;
        }
        self.count += 1;
        (slot, reuse)
    }

    /// Ends what is live in a slot. Its entry stays as a tombstone and is handed out to be trimmed to one.
    pub fn vacate(&mut self, slot: u32) -> &mut T {
        assert!(self.is_live(slot), "only a live place is vacated");
        self.states[slot] &= !1;
        if self.states[slot] >> 1 < REUSE_MAX {
            self.vacant.push(slot);
        }
        self.count -= 1;
        &mut self.entries[slot]
    }

    /// The live entry with this slot and reuse.
    pub fn live(&self, slot: u32, reuse: u32) -> Option<&T> {
        if reuse <= REUSE_MAX && self.states.get(slot) == Some(&(reuse << 1 | 1)) {
            self.entries.get(slot)
        } else {
            None
        }
    }

    /// The ended entry with this slot and reuse, while nobody has taken its place.
    pub fn tombstone(&self, slot: u32, reuse: u32) -> Option<&T> {
        if reuse <= REUSE_MAX && self.states.get(slot) == Some(&(reuse << 1)) { self.entries.get(slot) } else { None }
    }

    /// Whether a live entry is in this slot.
    pub fn is_live(&self, slot: u32) -> bool {
        self.states.get(slot).is_some_and(|state| state & 1 == 1)
    }

    /// The slot's entry and reuse, if it is live.
    pub fn at(&self, slot: u32) -> Option<(u32, &T)> {
        let state = self.states.get(slot)?;
        if state & 1 == 1 { Some((state >> 1, self.entries.get(slot)?)) } else { None }
    }

    /// The slot's entry, to be changed, if it is live.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        if self.is_live(slot) { self.entries.get_mut(slot) } else { None }
    }

    /// How many places are live.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Every live slot, reuse and entry, in order of slots.
    pub fn iter_live(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        let states = self.states.iter().map(|(_, state)| *state);
        self.entries
            .iter()
            .zip(states)
            .filter(|(_, state)| state & 1 == 1)
            .map(|((slot, e), state)| (slot, state >> 1, e))
    }

    /// Every place in order of slots, for a snapshot.
    pub fn places(&self) -> impl Iterator<Item = Place<&T>> {
        let states = self.states.iter().map(|(_, state)| *state);
        self.entries.iter().zip(states).map(|((_, entry), state)| Place {
            reuse: state >> 1,
            live: state & 1 == 1,
            entry,
        })
    }

    /// The vacant slots in the order in which they will be taken again, for a snapshot.
    pub fn vacant(&self) -> impl Iterator<Item = u32> {
        self.vacant.iter()
    }

    /// The same table again from what [`places`](Self::places) and [`vacant`](Self::vacant) told: ids go on from there.
    pub fn restore(
        keep: usize,
        places: impl IntoIterator<Item = Place<T>>,
        vacant: impl IntoIterator<Item = u32>,
    ) -> Result<Self, Misplaced> {
        let mut slots = Self::with_keep(keep);
        let mut awaited = 0_usize;
        for Place { reuse, live, entry } in places {
            if reuse > REUSE_MAX || slots.entries.len() == u32::MAX as usize {
                return Err(Misplaced);
            }
            slots.entries.push(entry);
            slots.states.push(reuse << 1 | u32::from(live));
            slots.count += usize::from(live);
            awaited += usize::from(!live && reuse < REUSE_MAX);
        }
        let mut queued = vec![false; slots.entries.len()];
        for slot in vacant {
            let state = slots.states.get(slot).ok_or(Misplaced)?;
            let retired = state >> 1 == REUSE_MAX;
            if state & 1 == 1 || retired || std::mem::replace(&mut queued[slot as usize], true) {
                return Err(Misplaced);
            }
            slots.vacant.push(slot);
        }
        if slots.vacant.len() == awaited { Ok(slots) } else { Err(Misplaced) }
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the places and the queue of vacant ones do not belong together")
    }
}

impl std::error::Error for Misplaced {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restored(slots: &Slots<u64>) -> Result<Slots<u64>, Misplaced> {
        let places = slots.places().map(|p| Place { reuse: p.reuse, live: p.live, entry: *p.entry });
        Slots::restore(slots.keep, places, slots.vacant())
    }

    #[test]
    fn a_place_is_taken_again_only_after_enough_others_were_vacated() {
        let mut slots = Slots::with_keep(2);
        for n in 0..4_u64 {
            assert_eq!(slots.next_place(), (n as u32, 0));
            assert_eq!(slots.occupy(n), (n as u32, 0));
        }
        slots.vacate(1);
        slots.vacate(0);
        assert_eq!(slots.next_place(), (4, 0));
        slots.vacate(3);
        assert_eq!(slots.tombstone(1, 0), Some(&1));
        assert_eq!(slots.next_place(), (1, 1));
        assert_eq!(slots.occupy(9), (1, 1));
        assert_eq!(slots.tombstone(1, 0), None);
        assert_eq!(slots.live(1, 0), None);
        assert_eq!(slots.live(1, 1), Some(&9));
        assert_eq!(slots.next_place(), (4, 0));
        assert_eq!(slots.iter_live().collect::<Vec<_>>(), [(1, 1, &9), (2, 0, &2)]);
        assert_eq!(slots.count(), 2);
    }

    #[test]
    fn a_tombstone_can_be_trimmed_but_is_not_live() {
        let mut slots = Slots::with_keep(0);
        let (slot, reuse) = slots.occupy(String::from("long name"));
        slots.vacate(slot).clear();
        assert!(!slots.is_live(slot));
        assert_eq!(slots.at(slot), None);
        assert_eq!(slots.at_mut(slot), None);
        assert_eq!(slots.tombstone(slot, reuse).map(String::as_str), Some(""));
        assert_eq!(slots.tombstone(slot, reuse + 1), None);
        assert_eq!(slots.live(u32::MAX, u32::MAX), None);
    }

    #[test]
    fn a_place_at_its_last_reuse_is_retired() {
        let worn = Place { reuse: REUSE_MAX - 1, live: false, entry: 5_u64 };
        let mut slots = Slots::restore(0, [worn], [0]).unwrap();
        assert_eq!(slots.occupy(6), (0, REUSE_MAX));
        assert_eq!(slots.live(0, REUSE_MAX), Some(&6));
        slots.vacate(0);
        assert_eq!(slots.tombstone(0, REUSE_MAX), Some(&6));
        assert_eq!(slots.next_place(), (1, 0));
        assert_eq!(restored(&slots).unwrap().next_place(), (1, 0));
        assert_eq!(slots.live(0, u32::MAX), None);
        assert_eq!(slots.tombstone(0, u32::MAX), None);
    }

    #[test]
    fn places_that_do_not_fit_their_queue_are_refused() {
        let live = Place { reuse: 0, live: true, entry: 1_u64 };
        let ended = Place { live: false, ..live };
        let worn = Place { reuse: REUSE_MAX, ..ended };
        let beyond = Place { reuse: REUSE_MAX + 1, ..ended };
        let refused = |places: &[Place<u64>], vacant: &[u32]| {
            Slots::restore(0, places.iter().copied(), vacant.iter().copied()).is_err()
        };
        assert!(refused(&[live], &[0]), "a live place is queued");
        assert!(refused(&[ended], &[]), "a vacant place is not queued");
        assert!(refused(&[ended, ended], &[0, 0]), "a place is queued twice");
        assert!(refused(&[ended], &[0, 1]), "a place that is not there is queued");
        assert!(refused(&[worn], &[0]), "a retired place is queued");
        assert!(refused(&[beyond], &[]), "a reuse is out of range");
        assert!(!refused(&[live, ended, worn], &[1]));
    }

    #[test]
    #[should_panic(expected = "only a live place is vacated")]
    fn a_place_is_vacated_once() {
        let mut slots = Slots::with_keep(0);
        slots.occupy(1);
        slots.vacate(0);
        slots.vacate(0);
    }

    proptest! {
        #[test]
        fn a_restored_table_goes_on_exactly_as_the_first(
            keep in 0..5_usize,
            before in prop::collection::vec(any::<Option<u8>>(), 0..80),
            after in prop::collection::vec(any::<Option<u8>>(), 0..80),
        ) {
            let mut slots = Slots::with_keep(keep);
            let mut model: Vec<(u32, u32, u64)> = Vec::new();
            let mut step = |slots: &mut Slots<u64>, n: usize, vacate: Option<u8>| match vacate {
                Some(pick) if !model.is_empty() => {
                    let (slot, reuse, entry) = model.remove(usize::from(pick) % model.len());
                    assert_eq!(slots.live(slot, reuse), Some(&entry));
                    slots.vacate(slot);
                    assert_eq!(slots.tombstone(slot, reuse), Some(&entry));
                    (slot, reuse)
                }
                _ => {
                    let next = slots.next_place();
                    assert_eq!(slots.occupy(n as u64), next);
                    assert!(model.iter().all(|m| m.0 != next.0));
                    model.push((next.0, next.1, n as u64));
                    model.sort_unstable();
                    assert!(slots.iter_live().map(|(slot, reuse, entry)| (slot, reuse, *entry)).eq(model.iter().copied()));
                    assert_eq!(slots.count(), model.len());
                    next
                }
            };
            for (n, vacate) in before.into_iter().enumerate() {
                step(&mut slots, n, vacate);
            }
            let mut twin = restored(&slots).unwrap();
            for (n, vacate) in after.into_iter().enumerate() {
                let (slot, reuse) = step(&mut slots, n, vacate);
                if slots.is_live(slot) {
                    prop_assert_eq!(twin.occupy(n as u64), (slot, reuse));
                } else {
                    twin.vacate(slot);
                }
                prop_assert_eq!(twin.next_place(), slots.next_place());
            }
            prop_assert!(twin.places().eq(slots.places()));
            prop_assert!(twin.vacant().eq(slots.vacant()));
        }
    }
}
