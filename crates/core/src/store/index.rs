//! From a name's hash to the number under which it is kept, in shards so that growth is never felt.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use hashbrown::HashTable;

/// One growing shard moves at most one entry in this many.
pub const SHARDS: usize = 256;

/// Numbers found by hash. What is equal, only the caller knows; it keeps the names.
pub struct Index {
    shards: Box<[HashTable<u32>]>,
    len: usize,
}

impl Index {
    /// An empty index.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    /// How many numbers are indexed.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The number under this hash that `eq` recognises.
    pub fn find(&self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[shard(hash)].find(hash, |&id| eq(id)).copied()
    }

    /// Adds a number that is not indexed yet; `rehash` tells the hash of any that is, should its shard grow.
    pub fn insert(&mut self, hash: u64, id: u32, rehash: impl Fn(u32) -> u64) {
        self.shards[shard(hash)].insert_unique(hash, id, |&other| rehash(other));
        self.len += 1;
    }

    /// Keeps of one shard what is to be kept.
    pub fn retain(&mut self, shard: usize, mut keep: impl FnMut(u32) -> bool) {
        let table = &mut self.shards[shard];
        let before = table.len();
        table.retain(|id| keep(*id));
        self.len -= before - table.len();
    }

    /// Takes a number out; false if it was not there.
    pub fn remove(&mut self, hash: u64, id: u32) -> bool {
        match self.shards[shard(hash)].find_entry(hash, |&other| other == id) {
            Ok(entry) => {
                entry.remove();
                self.len -= 1;
                true
            }
            Err(_) => false,
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

/// A table tells its entries apart by the seven top bits and places them by the low ones. A shard chosen by either
/// would leave the table nothing to tell entries apart by, so it is chosen by the bits just below the top seven.
const fn shard(hash: u64) -> usize {
    (hash >> 49) as usize % SHARDS
}

/// How names are hashed: keyed by a seed, so that nobody outside can choose names that collide.
#[derive(Clone)]
pub struct NameHash {
    state: FixedState,
}

impl NameHash {
    /// The hash of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: FixedState::with_seed(seed) }
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(name);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;

    fn name(id: u32) -> String {
        format!("orders/eu-west/shard-{id:07}")
    }

    fn filled(count: u32, hasher: &NameHash) -> Index {
        let mut index = Index::new();
        for id in 0..count {
            index.insert(hasher.hash(name(id).as_bytes()), id, |other| hasher.hash(name(other).as_bytes()));
        }
        index
    }

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let hasher = NameHash::new(7);
        let mut index = filled(20_000, &hasher);
        assert_eq!(index.len(), 20_000);
        for id in 0..20_000 {
            assert_eq!(index.find(hasher.hash(name(id).as_bytes()), |other| other == id), Some(id));
        }
        for id in (0..20_000).step_by(2) {
            assert!(index.remove(hasher.hash(name(id).as_bytes()), id));
            assert!(!index.remove(hasher.hash(name(id).as_bytes()), id));
        }
        assert_eq!(index.len(), 10_000);
        for id in 0..20_000 {
            let found = index.find(hasher.hash(name(id).as_bytes()), |other| other == id);
            assert_eq!(found, (id % 2 == 1).then_some(id));
        }
    }

    #[test]
    fn equal_hashes_are_told_apart_by_the_caller() {
        let mut index = Index::new();
        assert!(index.len() == 0);
        for id in 0..100 {
            index.insert(42, id, |_| 42);
        }
        assert_eq!(index.find(42, |id| id == 77), Some(77));
        assert!(index.remove(42, 77));
        assert_eq!(index.find(42, |id| id == 77), None);
        assert_eq!(index.len(), 99);
    }

    #[test]
    fn one_insert_rehashes_a_small_share_of_all() {
        let hasher = NameHash::new(1);
        let mut index = Index::new();
        let mut most = 0;
        for id in 0..50_000 {
            let moved = Cell::new(0);
            index.insert(hasher.hash(name(id).as_bytes()), id, |other| {
                moved.set(moved.get() + 1);
                hasher.hash(name(other).as_bytes())
            });
            most = most.max(moved.get());
        }
        assert!(most > 0 && most < 50_000 / 100, "{most} moved at once");
    }

    #[test]
    fn a_search_compares_few_others() {
        let hasher = NameHash::new(3);
        let index = filled(50_000, &hasher);
        let compared = Cell::new(0_u32);
        for id in 50_000..60_000 {
            let found = index.find(hasher.hash(name(id).as_bytes()), |_| {
                compared.set(compared.get() + 1);
                false
            });
            assert_eq!(found, None);
        }
        assert!(compared.get() < 5_000, "{} comparisons in 10,000 searches", compared.get());
    }

    #[test]
    fn a_seed_decides_the_hash() {
        let hashes: BTreeSet<u64> = (0..100).map(|seed| NameHash::new(seed).hash(b"orders/1")).collect();
        assert_eq!(hashes.len(), 100);
        assert_eq!(NameHash::new(5).hash(b"orders/1"), NameHash::new(5).clone().hash(b"orders/1"));
    }
}
