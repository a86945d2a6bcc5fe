//! Names that nothing stands behind any more: they keep their place for a while, and are forgotten in bulk.
//!
//! Forgetting one name costs a look into an index that is larger than any cache. Forgetting a quarter of them in one
//! walk through the index costs next to nothing each, and need not be done while a million leases end. And a name that
//! comes back soon, as names of locks do, finds its place as it left it.

use crate::store::index::SHARDS;

/// Husks that are never worth a sweep.
const FEW: usize = 1_024;
/// Names forgotten in one go.
const PORTION: usize = 64;

/// Places whose names are to be forgotten, and how far that is.
#[derive(Default)]
pub(crate) struct Husks {
    fresh: Places,
    swept: Places,
    sweep: Sweep,
}

/// What a sweep does next. It goes on a little with every new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// Nothing: there are few husks.
    #[default]
    Rests,
    /// This shard of the index drops them.
    Shard(usize),
    /// The index is rid of them; their names are forgotten.
    Names,
}

impl Husks {
    pub fn contains(&self, place: u32) -> bool {
        self.fresh.contains(place) || self.swept.contains(place)
    }

    pub fn add(&mut self, place: u32) {
        self.fresh.insert(place);
    }

    /// Takes a place back that is still in the index.
    pub fn revive(&mut self, place: u32) -> bool {
        self.fresh.remove(place) || self.swept.remove(place)
    }

    /// What to do now, if so many names are indexed.
    pub fn sweep(&mut self, indexed: usize) -> Sweep {
        if self.sweep == Sweep::Rests && self.fresh.count * 4 >= indexed + 4 * FEW {
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
        self.sweep != Sweep::Rests
    }

    /// Whether this sweep drops the place.
    pub fn drops(&self, place: u32) -> bool {
        self.swept.contains(place)
    }

    /// The next places that no index knows any more, in their order.
    pub fn forget(&mut self, into: &mut Vec<u32>) {
        self.swept.take_first(PORTION, into);
        if self.swept.count == 0 {
            self.sweep = Sweep::Rests;
        }
    }
}

/// A set of places, one bit each.
#[derive(Default)]
struct Places {
    words: Vec<u64>,
    count: usize,
    /// All words before this one are empty.
    from: usize,
}

impl Places {
    fn contains(&self, place: u32) -> bool {
        self.words.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn insert(&mut self, place: u32) {
        let at = place as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        assert!(!self.contains(place), "a name is let go once");
        self.words[at] |= 1 << (place % 64);
        self.from = self.from.min(at);
        self.count += 1;
    }

    fn remove(&mut self, place: u32) -> bool {
        let there = self.contains(place);
        if there {
            self.words[place as usize / 64] &= !(1 << (place % 64));
            self.count -= 1;
        }
        there
    }

    fn take_first(&mut self, most: usize, into: &mut Vec<u32>) {
        while self.count > 0 && into.len() < most {
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
    fn a_sweep_begins_with_a_quarter_and_ends_when_all_are_forgotten() {
        let mut husks = Husks::default();
        let count = FEW as u32 + 250;
        for place in 0..count - 1 {
            husks.add(place * 3);
            assert_eq!(husks.sweep(1_000), Sweep::Rests);
        }
        husks.add(1);
        for shard in 0..SHARDS {
            assert_eq!(husks.sweep(1_000), Sweep::Shard(shard));
        }
        assert!(husks.revive(30) && !husks.revive(30) && !husks.contains(30));
        let (mut all, mut portion) = (Vec::new(), Vec::new());
        while husks.sweep(1_000) == Sweep::Names {
            husks.forget(&mut portion);
            assert!(portion.len() <= PORTION);
            all.append(&mut portion);
        }
        assert!(all.is_sorted() && all.len() == count as usize - 1 && !all.contains(&30));
        assert_eq!(husks.sweep(1_000), Sweep::Rests);
    }

    #[test]
    fn what_empties_during_a_sweep_waits_for_the_next() {
        let mut husks = Husks::default();
        (0..2_000).for_each(|place| husks.add(place));
        assert_eq!(husks.sweep(2_000), Sweep::Shard(0));
        husks.add(5_000);
        assert!(husks.contains(5_000) && !husks.drops(5_000) && husks.drops(7));
    }
}
