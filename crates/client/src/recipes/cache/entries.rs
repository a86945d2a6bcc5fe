//! Entries of a cache. An entry may be used while its read lease and its session are valid by the local clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::time::Instant;

use crate::session_worker::{CompensateOnDrop, SessionDeadline};

/// Limit on remembered invalidations that preceded their entry.
const MAX_EARLY: usize = 4_096;

/// Result of an insert.
pub(super) enum Inserted<V> {
    /// The previous value is still the newest.
    Unchanged(Arc<V>),
    /// The value must be loaded.
    Empty,
    /// The lease was already invalidated by a write.
    Invalidated,
}

/// A read lease. Dropping it reports to the grantor that the entry is gone.
pub(super) struct ReadLease {
    pub(super) version: u64,
    pub(super) lease: u64,
    pub(super) until: Instant,
    pub(super) session: Arc<SessionDeadline>,
    pub(super) _compensation: CompensateOnDrop,
}

struct CacheEntry<V> {
    lease: ReadLease,
    /// Absent while the value is being loaded.
    value: Option<Arc<V>>,
}

impl<V> CacheEntry<V> {
    fn is_valid(&self, now: Instant) -> bool {
        now < self.lease.until && now < self.lease.session.get()
    }
}

/// All entries, and the loads in progress.
pub(super) struct CacheEntries<V> {
    capacity: usize,
    table: Mutex<EntryTable<V>>,
    flights: Mutex<HashMap<Box<str>, Arc<tokio::sync::Mutex<()>>>>,
}

struct EntryTable<V> {
    by_key: HashMap<Box<str>, CacheEntry<V>>,
    /// Keys and leases of entries, oldest first; some are removed already.
    order: VecDeque<(Box<str>, u64)>,
    /// Leases that were invalidated before their entry was inserted.
    early: BTreeSet<u64>,
    /// Early invalidations up to this lease were forgotten, so that any of them may have been one.
    forgotten: u64,
}

impl<V> CacheEntries<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let table = EntryTable { by_key: HashMap::new(), order: VecDeque::new(), early: BTreeSet::new(), forgotten: 0 };
        Self { capacity, table: Mutex::new(table), flights: Mutex::default() }
    }

    pub(super) fn get(&self, key: &str, now: Instant) -> Option<Arc<V>> {
        self.lock().by_key.get(key).filter(|entry| entry.is_valid(now))?.value.clone()
    }

    /// Replaces the read lease of a key. The previous value stays valid if no write happened in between: every write raises the
    /// version. Versions of another session may belong to another incarnation of the cluster.
    pub(super) fn insert(&self, key: &str, lease: ReadLease) -> Inserted<V> {
        let mut table = self.lock();
        if table.early.remove(&lease.lease) || lease.lease <= table.forgotten {
            // Outside of the lock, as below.
            drop(table);
            drop(lease);
            return Inserted::Invalidated;
        }
        let old = table.by_key.remove(key);
        let same =
            |old: &CacheEntry<V>| old.lease.version == lease.version && Arc::ptr_eq(&old.lease.session, &lease.session);
        let value = old.as_ref().filter(|old| same(old)).and_then(|old| old.value.clone());
        let number = lease.lease;
        table.by_key.insert(key.into(), CacheEntry { lease, value: value.clone() });
        table.order.push_back((key.into(), number));
        let evicted = table.evict(self.capacity);
        drop(table);
        // Outside of the lock: a dropped lease submits a job to the worker.
        drop((old, evicted));
        value.map_or(Inserted::Empty, Inserted::Unchanged)
    }

    /// Stores a loaded value, unless the lease was invalidated meanwhile.
    pub(super) fn set_value(&self, key: &str, lease: u64, value: &Arc<V>) {
        if let Some(entry) = self.lock().by_key.get_mut(key).filter(|entry| entry.lease.lease == lease) {
            entry.value = Some(value.clone());
        }
    }

    /// Removes the entry of a read lease. Returns false if there is none.
    pub(super) fn remove_lease(&self, key: &str, lease: u64) -> bool {
        let mut table = self.lock();
        let matches = table.by_key.get(key).is_some_and(|entry| entry.lease.lease == lease);
        let removed = if matches { table.by_key.remove(key) } else { None };
        drop(table);
        removed.is_some()
    }

    /// A writer waits: removes the entry, or prevents its insertion if it does not exist yet. Returns false if there was none.
    pub(super) fn invalidate(&self, key: &str, lease: u64) -> bool {
        if self.remove_lease(key, lease) {
            return true;
        }
        let mut table = self.lock();
        table.early.insert(lease);
        if table.early.len() > MAX_EARLY
            && let Some(oldest) = table.early.pop_first()
        {
            table.forgotten = table.forgotten.max(oldest);
        }
        false
    }

    pub(super) fn remove(&self, key: &str) {
        let removed = self.lock().by_key.remove(key);
        drop(removed);
    }

    /// Joins the load of a key in this process.
    pub(super) fn flight(&self, key: &str) -> Flight<'_, V> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let mutex = flights.entry(key.into()).or_default().clone();
        Flight { entries: self, key: key.into(), mutex }
    }

    fn lock(&self) -> MutexGuard<'_, EntryTable<V>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> EntryTable<V> {
    /// Removes the oldest entries beyond the capacity.
    fn evict(&mut self, capacity: usize) -> Vec<CacheEntry<V>> {
        let mut evicted = Vec::new();
        while self.by_key.len() > capacity
            && let Some((key, lease)) = self.order.pop_front()
        {
            if self.by_key.get(&key).is_some_and(|entry| entry.lease.lease == lease) {
                evicted.extend(self.by_key.remove(&key));
            }
        }
        if self.order.len() > 2 * capacity {
            let by_key = &self.by_key;
            self.order.retain(|(key, lease)| by_key.get(key).is_some_and(|entry| entry.lease.lease == *lease));
        }
        evicted
    }
}

/// A load in progress. Other tasks that miss the same key wait for it, and then find the entry.
pub(super) struct Flight<'a, V> {
    entries: &'a CacheEntries<V>,
    key: Box<str>,
    mutex: Arc<tokio::sync::Mutex<()>>,
}

impl<V> Flight<'_, V> {
    pub(super) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.mutex.lock().await
    }
}

impl<V> Drop for Flight<'_, V> {
    fn drop(&mut self) {
        let mut flights = self.entries.flights.lock().unwrap_or_else(PoisonError::into_inner);
        // The reference in the table, and this one.
        if Arc::strong_count(&self.mutex) <= 2 {
            flights.remove(&self.key);
        }
    }
}

impl<V> fmt::Debug for CacheEntries<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheEntries").field("len", &self.lock().by_key.len()).finish_non_exhaustive()
    }
}
