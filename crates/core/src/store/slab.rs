//! Generational slab: slots with a reuse count, so that an old id never refers to a new entry.

use std::fmt;

use super::paged_vec::PagedVec;
use super::queue::PagedQueue;

/// The last reuse of a slot; after it the slot is retired.
pub const REUSE_MAX: u32 = u32::MAX >> 1;

/// A slab of `T`. An ended entry stays readable as a tombstone until its slot is reused.
pub struct Slab<T> {
    entries: PagedVec<T>,
    /// For each slot, the reuse count shifted left by one, and in the lowest bit whether it is live.
    states: PagedVec<u32>,
    vacant: PagedQueue,
    keep: usize,
    count: usize,
}

/// One slot in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabEntry<T> {
    /// Number of earlier uses of the slot.
    pub reuse: u32,
    /// Whether the entry is live, or a tombstone.
    pub live: bool,
    /// The entry or tombstone.
    pub entry: T,
}

/// Inconsistent entries and vacant slots in [`Slab::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabError;

impl<T> Slab<T> {
    /// An empty slab. A slot is reused only after `keep` other slots were vacated later.
    pub const fn with_keep(keep: usize) -> Self {
        Self { entries: PagedVec::new(), states: PagedVec::new(), vacant: PagedQueue::new(), keep, count: 0 }
    }

    /// The slot and reuse count that the next [`occupy`](Self::occupy) uses.
    pub fn next_slot(&self) -> (u32, u32) {
        match self.vacant.first() {
            Some(slot) if self.vacant.len() > self.keep => (slot, (self.states[slot] >> 1) + 1),
            _ => (u32::try_from(self.entries.len()).expect("a slab has fewer than 2^32 slots"), 0),
        }
    }

    /// Stores an entry in the next slot and returns the slot and its reuse count. Replaces the tombstone.
    pub fn occupy(&mut self, entry: T) -> (u32, u32) {
        self.occupy_as(self.next_slot().1, entry)
    }

    /// Like [`occupy`](Self::occupy), with a reuse count that may be higher than the next.
    pub fn occupy_as(&mut self, reuse: u32, entry: T) -> (u32, u32) {
        let (slot, next) = self.next_slot();
        assert!((next..=REUSE_MAX).contains(&reuse), "no id is reused");
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

    /// Ends the live entry of a slot. It stays as a tombstone, which the caller can trim.
    pub fn vacate(&mut self, slot: u32) -> &mut T {
        assert!(self.is_live(slot), "only a live slot can be vacated");
        self.states[slot] &= !1;
        if self.states[slot] >> 1 < REUSE_MAX {
            self.vacant.push(slot);
        }
        self.count -= 1;
        &mut self.entries[slot]
    }

    /// The live entry with this slot and reuse count.
    pub fn live(&self, slot: u32, reuse: u32) -> Option<&T> {
        if self.is_live_as(slot, reuse) { self.entries.get(slot) } else { None }
    }

    /// The tombstone with this slot and reuse count, until the slot is reused.
    pub fn tombstone(&self, slot: u32, reuse: u32) -> Option<&T> {
        if reuse <= REUSE_MAX && self.states.get(slot) == Some(&(reuse << 1)) { self.entries.get(slot) } else { None }
    }

    /// Whether the slot has a live entry.
    pub fn is_live(&self, slot: u32) -> bool {
        self.states.get(slot).is_some_and(|state| state & 1 == 1)
    }

    /// Whether the slot has a live entry with this reuse count.
    #[inline]
    pub fn is_live_as(&self, slot: u32, reuse: u32) -> bool {
        reuse <= REUSE_MAX && self.states.get(slot) == Some(&(reuse << 1 | 1))
    }

    /// Reuse count and entry of a live slot.
    pub fn at(&self, slot: u32) -> Option<(u32, &T)> {
        let state = self.states.get(slot)?;
        if state & 1 == 1 { Some((state >> 1, self.entries.get(slot)?)) } else { None }
    }

    /// The entry of a live slot, mutable.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        if self.is_live(slot) { self.entries.get_mut(slot) } else { None }
    }

    /// The number of slots, live or not.
    pub fn slot_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The number of live slots.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Slot, reuse count and entry of every live slot, in slot order.
    pub fn iter_live(&self) -> impl Iterator<Item = (u32, u32, &T)> {
        let states = self.states.iter().map(|(_, state)| *state);
        self.entries
            .iter()
            .zip(states)
            .filter(|(_, state)| state & 1 == 1)
            .map(|((slot, e), state)| (slot, state >> 1, e))
    }

    /// All slots in order, for a snapshot.
    pub fn entries(&self) -> impl Iterator<Item = SlabEntry<&T>> {
        let states = self.states.iter().map(|(_, state)| *state);
        self.entries.iter().zip(states).map(|((_, entry), state)| SlabEntry {
            reuse: state >> 1,
            live: state & 1 == 1,
            entry,
        })
    }

    /// The vacant slots in the order of their reuse, for a snapshot.
    pub fn vacant(&self) -> impl Iterator<Item = u32> {
        self.vacant.iter()
    }

    /// Restores a slab from its [`entries`](Self::entries) and [`vacant`](Self::vacant) slots; ids continue from there.
    pub fn restore(
        keep: usize,
        entries: impl IntoIterator<Item = SlabEntry<T>>,
        vacant: impl IntoIterator<Item = u32>,
    ) -> Result<Self, SlabError> {
        let mut slots = Self::with_keep(keep);
        let mut awaited = 0_usize;
        for SlabEntry { reuse, live, entry } in entries {
            if reuse > REUSE_MAX || slots.entries.len() == u32::MAX as usize {
                return Err(SlabError);
            }
            slots.entries.push(entry);
            slots.states.push(reuse << 1 | u32::from(live));
            slots.count += usize::from(live);
            awaited += usize::from(!live && reuse < REUSE_MAX);
        }
        let mut queued = vec![false; slots.entries.len()];
        for slot in vacant {
            let state = slots.states.get(slot).ok_or(SlabError)?;
            let retired = state >> 1 == REUSE_MAX;
            if state & 1 == 1 || retired || std::mem::replace(&mut queued[slot as usize], true) {
                return Err(SlabError);
            }
            slots.vacant.push(slot);
        }
        if slots.vacant.len() == awaited { Ok(slots) } else { Err(SlabError) }
    }
}

impl fmt::Display for SlabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the slots and the list of vacant slots do not match")
    }
}

impl std::error::Error for SlabError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn restored(slots: &Slab<u64>) -> Result<Slab<u64>, SlabError> {
        let entries = slots.entries().map(|p| SlabEntry { reuse: p.reuse, live: p.live, entry: *p.entry });
        Slab::restore(slots.keep, entries, slots.vacant())
    }

    #[test]
    fn a_slot_is_reused_only_after_enough_others_were_vacated() {
        let mut slots = Slab::with_keep(2);
        for n in 0..4_u64 {
            assert_eq!(slots.next_slot(), (n as u32, 0));
            assert_eq!(slots.occupy(n), (n as u32, 0));
        }
        slots.vacate(1);
        slots.vacate(0);
        assert_eq!(slots.next_slot(), (4, 0));
        slots.vacate(3);
        assert_eq!(slots.tombstone(1, 0), Some(&1));
        assert_eq!(slots.next_slot(), (1, 1));
        assert_eq!(slots.occupy(9), (1, 1));
        assert_eq!(slots.tombstone(1, 0), None);
        assert_eq!(slots.live(1, 0), None);
        assert_eq!(slots.live(1, 1), Some(&9));
        assert_eq!(slots.next_slot(), (4, 0));
        assert_eq!(slots.iter_live().collect::<Vec<_>>(), [(1, 1, &9), (2, 0, &2)]);
        assert_eq!(slots.count(), 2);
    }

    #[test]
    fn a_tombstone_can_be_trimmed_but_is_not_live() {
        let mut slots = Slab::with_keep(0);
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
    fn a_slot_at_its_last_reuse_is_retired() {
        let worn = SlabEntry { reuse: REUSE_MAX - 1, live: false, entry: 5_u64 };
        let mut slots = Slab::restore(0, [worn], [0]).unwrap();
        assert_eq!(slots.occupy(6), (0, REUSE_MAX));
        assert_eq!(slots.live(0, REUSE_MAX), Some(&6));
        slots.vacate(0);
        assert_eq!(slots.tombstone(0, REUSE_MAX), Some(&6));
        assert_eq!(slots.next_slot(), (1, 0));
        assert_eq!(restored(&slots).unwrap().next_slot(), (1, 0));
        assert_eq!(slots.live(0, u32::MAX), None);
        assert_eq!(slots.tombstone(0, u32::MAX), None);
    }

    #[test]
    fn slots_that_do_not_match_the_vacant_list_are_refused() {
        let live = SlabEntry { reuse: 0, live: true, entry: 1_u64 };
        let ended = SlabEntry { live: false, ..live };
        let worn = SlabEntry { reuse: REUSE_MAX, ..ended };
        let beyond = SlabEntry { reuse: REUSE_MAX + 1, ..ended };
        let refused = |entries: &[SlabEntry<u64>], vacant: &[u32]| {
            Slab::restore(0, entries.iter().copied(), vacant.iter().copied()).is_err()
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
    #[should_panic(expected = "only a live slot can be vacated")]
    fn a_slot_is_vacated_once() {
        let mut slots = Slab::with_keep(0);
        slots.occupy(1);
        slots.vacate(0);
        slots.vacate(0);
    }

    proptest! {
        #[test]
        fn a_restored_slab_continues_exactly_as_the_original(
            keep in 0..5_usize,
            before in prop::collection::vec(any::<Option<u8>>(), 0..80),
            after in prop::collection::vec(any::<Option<u8>>(), 0..80),
        ) {
            let mut slots = Slab::with_keep(keep);
            let mut model: Vec<(u32, u32, u64)> = Vec::new();
            let mut step = |slots: &mut Slab<u64>, n: usize, vacate: Option<u8>| match vacate {
                Some(pick) if !model.is_empty() => {
                    let (slot, reuse, entry) = model.remove(usize::from(pick) % model.len());
                    assert_eq!(slots.live(slot, reuse), Some(&entry));
                    slots.vacate(slot);
                    assert_eq!(slots.tombstone(slot, reuse), Some(&entry));
                    (slot, reuse)
                }
                _ => {
                    let next = slots.next_slot();
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
                prop_assert_eq!(twin.next_slot(), slots.next_slot());
            }
            prop_assert!(twin.entries().eq(slots.entries()));
            prop_assert!(twin.vacant().eq(slots.vacant()));
        }
    }
}
