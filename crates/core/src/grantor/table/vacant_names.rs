//! Names without leases or state. They keep their slots for a while and are removed in bulk.
//!
//! Removing one name costs a lookup in an index that is larger than any CPU cache. Removing a quarter of all names in one pass
//! over the index costs almost nothing per name, and not while a million leases end. A name that is used again soon, as names
//! of locks are, finds its slot unchanged.

use crate::store::index::SHARDS;

/// Fewer vacant names never start a sweep.
const FEW: usize = 1_024;
/// Names removed per portion.
const PORTION: usize = 64;

/// Slots whose names are vacant, and the progress of their removal.
#[derive(Default)]
pub(crate) struct VacantNames {
    fresh: SlotSet,
    swept: SlotSet,
    sweep: Sweep,
}

/// The next step of a sweep. It advances with every new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// No sweep: there are few vacant names.
    #[default]
    Idle,
    /// Remove them from this shard of the index.
    Shard(usize),
    /// They are removed from the index; free their names.
    Names,
}

impl VacantNames {
    pub fn contains(&self, slot: u32) -> bool {
        self.fresh.contains(slot) || self.swept.contains(slot)
    }

    pub fn add(&mut self, slot: u32) {
        self.fresh.insert(slot);
    }

    /// Makes a slot used again that is still in the index.
    pub fn revive(&mut self, slot: u32) -> bool {
        self.fresh.remove(slot) || self.swept.remove(slot)
    }

    /// The step to execute now, for this number of indexed names.
    pub fn sweep(&mut self, indexed: usize) -> Sweep {
        if self.sweep == Sweep::Idle && self.fresh.count * 4 >= indexed + 4 * FEW {
            std::mem::swap(&mut self.fresh, &mut self.swept);
            self.sweep = Sweep::Shard(0);
        }
        let now = self.sweep;
        self.sweep = match now {
            Sweep::Shard(shard) if shard + 1 < SHARDS => Sweep::Shard(shard + 1),
            Sweep::Shard(_) => Sweep::Names,
            other => other,
        };
        now
    }

    #[cfg(test)]
    pub fn is_sweeping(&self) -> bool {
        self.sweep != Sweep::Idle
    }

    /// Whether this sweep removes the slot.
    pub fn drops(&self, slot: u32) -> bool {
        self.swept.contains(slot)
    }

    /// The next slots that are no longer indexed, in order.
    pub fn forget(&mut self, into: &mut Vec<u32>) {
        self.swept.take_first(PORTION, into);
        if self.swept.count == 0 {
            self.sweep = Sweep::Idle;
        }
    }
}

/// A set of slots, one bit each.
#[derive(Default)]
struct SlotSet {
    words: Vec<u64>,
    count: usize,
    /// All words before this one are empty.
    from: usize,
}

impl SlotSet {
    fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn insert(&mut self, slot: u32) {
        let at = slot as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        assert!(!self.contains(slot), "a name becomes vacant once");
        self.words[at] |= 1 << (slot % 64);
        self.from = self.from.min(at);
        self.count += 1;
    }

    fn remove(&mut self, slot: u32) -> bool {
        let there = self.contains(slot);
        if there {
            self.words[slot as usize / 64] &= !(1 << (slot % 64));
            self.count -= 1;
        }
        there
    }

    fn take_first(&mut self, limit: usize, into: &mut Vec<u32>) {
        while self.count > 0 && into.len() < limit {
            let word = &mut self.words[self.from];
            if *word == 0 {
                self.from += 1;
                continue;
            }
            into.push(self.from as u32 * 64 + word.trailing_zeros());
            *word &= *word - 1;
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_starts_at_a_quarter_and_ends_when_all_are_removed() {
        let mut vacant_names = VacantNames::default();
        let count = FEW as u32 + 250;
        for slot in 0..count - 1 {
            vacant_names.add(slot * 3);
            assert_eq!(vacant_names.sweep(1_000), Sweep::Idle);
        }
        vacant_names.add(1);
        for shard in 0..SHARDS {
            assert_eq!(vacant_names.sweep(1_000), Sweep::Shard(shard));
        }
        assert!(vacant_names.revive(30) && !vacant_names.revive(30) && !vacant_names.contains(30));
        let (mut all, mut portion) = (Vec::new(), Vec::new());
        while vacant_names.sweep(1_000) == Sweep::Names {
            vacant_names.forget(&mut portion);
            assert!(portion.len() <= PORTION);
            all.append(&mut portion);
        }
        assert!(all.is_sorted() && all.len() == count as usize - 1 && !all.contains(&30));
        assert_eq!(vacant_names.sweep(1_000), Sweep::Idle);
    }

    #[test]
    fn a_name_that_becomes_vacant_during_a_sweep_waits_for_the_next() {
        let mut vacant_names = VacantNames::default();
        (0..2_000).for_each(|slot| vacant_names.add(slot));
        assert_eq!(vacant_names.sweep(2_000), Sweep::Shard(0));
        vacant_names.add(5_000);
        assert!(vacant_names.contains(5_000) && !vacant_names.drops(5_000) && vacant_names.drops(7));
    }
}
