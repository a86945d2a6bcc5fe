//! The copies of one process: each is good for as long as its read lease and its session are, by the holder's own clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::time::Instant;

use crate::holder::{Alive, Undo};

/// Early invalidations that are remembered one by one.
const EARLY: usize = 4_096;

/// What a new read lease is good for.
pub(super) enum Begun<V> {
    /// The copy that was there is still the newest.
    Same(Arc<V>),
    /// The source must be looked at.
    Empty,
    /// Nothing: somebody writes already.
    Over,
}

/// A read lease and what it covers. Dropping it tells the grantor that the copy is gone.
pub(super) struct Kept {
    pub(super) version: u64,
    pub(super) lease: u64,
    pub(super) until: Instant,
    pub(super) alive: Arc<Alive>,
    pub(super) _undo: Undo,
}

struct Copied<V> {
    kept: Kept,
    /// Absent while it is being loaded.
    value: Option<Arc<V>>,
}

impl<V> Copied<V> {
    fn is_good(&self, now: Instant) -> bool {
        now < self.kept.until && now < self.kept.alive.get()
    }
}

/// All copies, the flights that are under way, and the order in which copies came.
pub(super) struct Copies<V> {
    most: usize,
    state: Mutex<State<V>>,
    flights: Mutex<HashMap<Box<str>, Arc<tokio::sync::Mutex<()>>>>,
}

struct State<V> {
    by_key: HashMap<Box<str>, Copied<V>>,
    /// Every copy with its lease, the oldest first; some are gone already.
    order: VecDeque<(Box<str>, u64)>,
    /// Read leases that were to be dropped before their copy was begun: whoever asked for them was kept from taking them.
    early: BTreeSet<u64>,
    /// Up to here early ones were forgotten, so that any may have been one.
    forgotten: u64,
}

impl<V> Copies<V> {
    pub(super) fn new(most: usize) -> Self {
        let state = State { by_key: HashMap::new(), order: VecDeque::new(), early: BTreeSet::new(), forgotten: 0 };
        Self { most, state: Mutex::new(state), flights: Mutex::default() }
    }

    pub(super) fn fresh(&self, key: &str, now: Instant) -> Option<Arc<V>> {
        self.lock().by_key.get(key).filter(|copy| copy.is_good(now))?.value.clone()
    }

    /// Puts a new read lease in the place of the old one. If nothing was written in between, the old copy is as good as a
    /// new one: every write raises the version. In another session the versions may be of another life of the cluster.
    pub(super) fn begin(&self, key: &str, kept: Kept) -> Begun<V> {
        let mut state = self.lock();
        if state.early.remove(&kept.lease) || kept.lease <= state.forgotten {
            // Outside of the lock, as below.
            drop(state);
            drop(kept);
            return Begun::Over;
        }
        let old = state.by_key.remove(key);
        let same = |old: &Copied<V>| old.kept.version == kept.version && Arc::ptr_eq(&old.kept.alive, &kept.alive);
        let value = old.as_ref().filter(|old| same(old)).and_then(|old| old.value.clone());
        let lease = kept.lease;
        state.by_key.insert(key.into(), Copied { kept, value: value.clone() });
        state.order.push_back((key.into(), lease));
        let gone = state.evict(self.most);
        drop(state);
        // Outside of the lock: what is dropped is told to the thread that holds.
        drop((old, gone));
        value.map_or(Begun::Empty, Begun::Same)
    }

    /// Keeps what was loaded, unless somebody wanted to write in between.
    pub(super) fn loaded(&self, key: &str, lease: u64, value: &Arc<V>) {
        if let Some(copy) = self.lock().by_key.get_mut(key).filter(|copy| copy.kept.lease == lease) {
            copy.value = Some(value.clone());
        }
    }

    /// Drops the copy under a read lease. False if there is none.
    pub(super) fn drop_copy(&self, key: &str, lease: u64) -> bool {
        let mut state = self.lock();
        let meant = state.by_key.get(key).is_some_and(|copy| copy.kept.lease == lease);
        let gone = if meant { state.by_key.remove(key) } else { None };
        drop(state);
        gone.is_some()
    }

    /// Somebody wants to write: the copy goes, and one that was not begun yet never will be. False if there was none.
    pub(super) fn invalidate(&self, key: &str, lease: u64) -> bool {
        if self.drop_copy(key, lease) {
            return true;
        }
        let mut state = self.lock();
        state.early.insert(lease);
        if state.early.len() > EARLY
            && let Some(oldest) = state.early.pop_first()
        {
            state.forgotten = state.forgotten.max(oldest);
        }
        false
    }

    pub(super) fn forget(&self, key: &str) {
        let gone = self.lock().by_key.remove(key);
        drop(gone);
    }

    /// Those who miss one key together.
    pub(super) fn flight(&self, key: &str) -> Flight<'_, V> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = flights.entry(key.into()).or_default().clone();
        Flight { copies: self, key: key.into(), lane }
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> State<V> {
    /// Drops the oldest copies beyond so many.
    fn evict(&mut self, most: usize) -> Vec<Copied<V>> {
        let mut gone = Vec::new();
        while self.by_key.len() > most
            && let Some((key, lease)) = self.order.pop_front()
        {
            if self.by_key.get(&key).is_some_and(|copy| copy.kept.lease == lease) {
                gone.extend(self.by_key.remove(&key));
            }
        }
        if self.order.len() > 2 * most {
            let by_key = &self.by_key;
            self.order.retain(|(key, lease)| by_key.get(key).is_some_and(|copy| copy.kept.lease == *lease));
        }
        gone
    }
}

/// A miss under way. Whoever comes to the same key meanwhile waits, and then finds the copy.
pub(super) struct Flight<'a, V> {
    copies: &'a Copies<V>,
    key: Box<str>,
    lane: Arc<tokio::sync::Mutex<()>>,
}

impl<V> Flight<'_, V> {
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.lane.lock().await
    }
}

impl<V> Drop for Flight<'_, V> {
    fn drop(&mut self) {
        let mut flights = self.copies.flights.lock().unwrap_or_else(PoisonError::into_inner);
        // The table's own and this one.
        if Arc::strong_count(&self.lane) <= 2 {
            flights.remove(&self.key);
        }
    }
}

impl<V> fmt::Debug for Copies<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("kept", &self.lock().by_key.len()).finish_non_exhaustive()
    }
}
