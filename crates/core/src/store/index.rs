//! Hash index from names to numbers, sharded so that growth never causes a long pause.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use hashbrown::HashTable;

/// Number of shards; one growing shard moves only its share of all entries.
pub const SHARDS: usize = 256;

/// Numbers by hash. The caller stores the names and compares them.
pub struct Index {
    shards: Box<[HashTable<u32>]>,
    len: usize,
}

impl Index {
    /// An empty index.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The number with this hash for which `eq` returns true.
    pub fn find(&self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[shard(hash)].find(hash, |&id| eq(id)).copied()
    }

    /// Adds a number that is not indexed yet. `rehash` returns the hash of an indexed number, in case its shard grows.
    pub fn insert(&mut self, hash: u64, id: u32, rehash: impl Fn(u32) -> u64) {
        self.shards[shard(hash)].insert_unique(hash, id, |&other| rehash(other));
        self.len += 1;
    }

    /// Retains the numbers of one shard for which `keep` returns true.
    pub fn retain(&mut self, shard: usize, mut keep: impl FnMut(u32) -> bool) {
        let table = &mut self.shards[shard];
        let before = table.len();
        table.retain(|id| keep(*id));
        self.len -= before - table.len();
    }

    /// Removes a number; false if it was not indexed.
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

/// A hash table compares entries by the top seven bits and places them by the low bits. Choosing the shard by either would
/// leave nothing to distinguish entries, so the shard uses the bits just below the top seven.
const fn shard(hash: u64) -> usize {
    (hash >> 49) as usize % SHARDS
}

/// Hash of names, keyed by a seed, so that no client can choose names that collide.
#[derive(Clone)]
pub struct NameHash {
    state: FixedState,
}

impl NameHash {
    /// A hash function with this seed.
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
    fn an_inserted_number_is_found_until_it_is_removed() {
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
    fn the_caller_distinguishes_equal_hashes() {
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
    fn one_insert_rehashes_only_a_small_share_of_all_entries() {
        let hasher = NameHash::new(1);
        let mut index = Index::new();
        let mut max_moved = 0;
        for id in 0..50_000 {
            let moved = Cell::new(0);
            index.insert(hasher.hash(name(id).as_bytes()), id, |other| {
                moved.set(moved.get() + 1);
                hasher.hash(name(other).as_bytes())
            });
            max_moved = max_moved.max(moved.get());
        }
        assert!(max_moved > 0 && max_moved < 50_000 / 100, "{max_moved} moved at once");
    }

    #[test]
    fn a_search_compares_few_other_entries() {
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
    fn the_hash_depends_on_the_seed() {
        let hashes: BTreeSet<u64> = (0..100).map(|seed| NameHash::new(seed).hash(b"orders/1")).collect();
        assert_eq!(hashes.len(), 100);
        assert_eq!(NameHash::new(5).hash(b"orders/1"), NameHash::new(5).clone().hash(b"orders/1"));
    }
}
