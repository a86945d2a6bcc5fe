//! Resources. Most have only a name and one lease; the others have a separate [`ResourceState`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::lease::NONE;
use super::vacant_names::{Sweep, VacantNames};
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::store::index::{Index, NameHash};
use crate::store::paged_vec::PagedVec;
use crate::store::string_arena::{StringArena, StringRef};

/// A resource name and its lease or state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceEntry {
    pub name: StringRef,
    /// The only lease, if there is no separate state.
    pub lease: u32,
    pub state: u32,
}

/// All resources, by slot and by name. A slot is meaningful only within one process; records carry names.
pub(crate) struct Resources {
    entries: PagedVec<ResourceEntry>,
    vacant: Vec<u32>,
    states: PagedVec<Option<Box<ResourceState>>>,
    vacant_states: Vec<u32>,
    index: Index,
    pub names: StringArena,
    pub hash: NameHash,
    /// Slots of the resources with waiters. Derived.
    pub contended: BTreeSet<u32>,
    vacant_names: VacantNames,
    /// Number of names in use.
    count: usize,
    /// Slots whose names are being removed.
    sweep_batch: Vec<u32>,
}

impl Resources {
    pub fn new(hash: NameHash) -> Self {
        Self {
            entries: PagedVec::new(),
            vacant: Vec::new(),
            states: PagedVec::new(),
            vacant_states: Vec::new(),
            index: Index::new(),
            names: StringArena::new(),
            hash,
            contended: BTreeSet::new(),
            vacant_names: VacantNames::default(),
            count: 0,
            sweep_batch: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hash.hash(name.as_bytes());
        self.find_hashed(hash, name).filter(|slot| !self.vacant_names.contains(*slot))
    }

    fn find_hashed(&self, hash: u64, name: &str) -> Option<u32> {
        self.index.find(hash, |slot| self.names.bytes(self.entries[slot].name) == name.as_bytes())
    }

    /// The slot of a resource, added if the name is new.
    pub fn enter(&mut self, name: &str) -> u32 {
        let hash = self.hash.hash(name.as_bytes());
        if let Some(slot) = self.find_hashed(hash, name) {
            self.count += usize::from(self.vacant_names.revive(slot));
            return slot;
        }
        self.sweep();
        let resource = ResourceEntry { name: self.names.put(name), lease: NONE, state: NONE };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.entries[slot] = resource;
                slot
            }
            None => self.entries.push(resource),
        };
        let (entries, names, hasher) = (&self.entries, &self.names, &self.hash);
        self.index.insert(hash, slot, |other| hasher.hash(names.bytes(entries[other].name)));
        self.count += 1;
        slot
    }

    /// Makes a name vacant that has neither a lease nor state.
    pub fn vacate_if_empty(&mut self, slot: u32) {
        let resource = self.entries[slot];
        if resource.lease != NONE {
            return;
        }
        if resource.state != NONE {
            if !self.states[resource.state].as_ref().expect("the state exists").is_empty() {
                return;
            }
            self.states[resource.state] = None;
            self.vacant_states.push(resource.state);
            self.entries[slot].state = NONE;
        }
        self.vacant_names.add(slot);
        self.count -= 1;
    }

    /// Executes one step of the sweep. Every new name does so, so that memory does not grow by vacant names.
    fn sweep(&mut self) {
        match self.vacant_names.sweep(self.index.len()) {
            Sweep::Idle => {}
            Sweep::Shard(shard) => self.index.retain(shard, |slot| !self.vacant_names.drops(slot)),
            Sweep::Names => {
                self.vacant_names.forget(&mut self.sweep_batch);
                for slot in self.sweep_batch.drain(..) {
                    self.names.free(self.entries[slot].name);
                    self.vacant.push(slot);
                }
            }
        }
    }

    pub fn name(&self, slot: u32) -> &str {
        self.names.get(self.entries[slot].name)
    }

    pub fn name_bytes(&self, slot: u32) -> &[u8] {
        self.names.bytes(self.entries[slot].name)
    }

    pub fn sole(&self, slot: u32) -> u32 {
        self.entries[slot].lease
    }

    pub fn state(&self, slot: u32) -> Option<&ResourceState> {
        match self.entries[slot].state {
            NONE => None,
            state => self.states[state].as_deref(),
        }
    }

    /// The priority of the first waiter for a resource.
    pub fn first_priority(&self, slot: u32) -> Option<u8> {
        self.state(slot)?.queue.first().map(|position| position.priority())
    }

    pub fn state_mut(&mut self, slot: u32) -> Option<&mut ResourceState> {
        match self.entries[slot].state {
            NONE => None,
            state => self.states[state].as_deref_mut(),
        }
    }

    /// Whether a lone exclusive lease needs no separate state here.
    pub fn is_vacant(&self, slot: u32) -> bool {
        let resource = &self.entries[slot];
        resource.lease == NONE && resource.state == NONE
    }

    pub fn set_sole(&mut self, slot: u32, lease: u32) {
        self.entries[slot].lease = lease;
    }

    /// The separate state of a resource, created if needed. A lone lease moves into it; it is exclusive, because only
    /// exclusive leases are stored alone.
    pub fn ensure_state(&mut self, slot: u32) -> &mut ResourceState {
        if self.entries[slot].state == NONE {
            let mut state = Box::new(ResourceState::new(slot));
            if self.entries[slot].lease != NONE {
                state.leases.push(self.entries[slot].lease);
                state.exclusive = 1;
                self.entries[slot].lease = NONE;
            }
            let at = match self.vacant_states.pop() {
                Some(at) => {
                    self.states[at] = Some(state);
                    at
                }
                None => self.states.push(Some(state)),
            };
            self.entries[slot].state = at;
        }
        self.states[self.entries[slot].state].as_deref_mut().expect("the state exists")
    }

    /// All resources with a separate state, by slot.
    pub fn states(&self) -> impl Iterator<Item = (u32, &ResourceState)> {
        self.states.iter().filter_map(|(_, state)| state.as_deref()).map(|state| (state.resource, state))
    }

    /// The resource in a slot, if it is in use; for paged listings.
    pub fn at(&self, slot: u32) -> Option<&ResourceEntry> {
        let resource = self.entries.get(slot)?;
        if resource.lease == NONE && resource.state == NONE { None } else { Some(resource) }
    }

    /// Number of slots, used or vacant.
    pub fn slot_count(&self) -> u32 {
        self.entries.len() as u32
    }
}

/// State of a resource with more than one lease, waiters, a capacity, pins or an operator's block.
#[derive(Debug)]
pub(crate) struct ResourceState {
    pub resource: u32,
    pub leases: Vec<u32>,
    pub exclusive: u32,
    pub readers: u32,
    /// Units occupied by slots and reservations.
    pub used: u32,
    /// Units of commitments.
    pub confirmed: u64,
    /// Set by command or by the first slot lease; `None` for the charter's capacity, or one.
    pub capacity: Option<u32>,
    /// Whether the capacity was set by command and outlives the leases.
    pub lasting: bool,
    slots: Vec<u64>,
    pub queue: WaitQueue,
    /// Blocked for an operator after a revocation.
    pub for_operator: bool,
    pub floor: u64,
    pub pins: BTreeSet<(u64, u32)>,
    /// Scheduled for an offer to its waiters. Not part of the state.
    pub to_offer: bool,
    /// Number of waiters that may pass those ahead of them. Not part of the state.
    pub passers: u32,
}

impl ResourceState {
    fn new(resource: u32) -> Self {
        Self {
            resource,
            leases: Vec::new(),
            exclusive: 0,
            readers: 0,
            used: 0,
            confirmed: 0,
            capacity: None,
            lasting: false,
            slots: Vec::new(),
            queue: WaitQueue::default(),
            for_operator: false,
            floor: 0,
            pins: BTreeSet::new(),
            to_offer: false,
            passers: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty() && !self.has_settings() && self.queue.is_empty()
    }

    /// Whether it has settings besides leases and waits.
    pub const fn has_settings(&self) -> bool {
        self.lasting || self.confirmed > 0 || self.for_operator || self.floor > 0
    }

    /// Whether this access can be granted now, with this capacity (L1, C1).
    pub fn fits(&self, access: Access, capacity: u32) -> bool {
        let oversold = u64::from(mutants::on(Mutant::CapacityOversold));
        let free = |units: u32| {
            self.exclusive == 0
                && self.readers == 0
                && u64::from(self.used) + self.confirmed + u64::from(units) <= u64::from(capacity) + oversold
        };
        match access {
            _ if self.for_operator => false,
            Access::Exclusive => self.exclusive == 0 && self.readers == 0 && self.used == 0,
            Access::Shared => self.exclusive == 0 && self.used == 0 && self.readers < limits::READERS,
            Access::Slot => free(1) && u64::from(self.free_slot()) < u64::from(capacity) + oversold,
            Access::Units(units) => free(units),
        }
    }

    /// Adds a lease and returns its index.
    pub fn add_lease(&mut self, lease: u32, access: Access, slot: u32) -> u32 {
        match access {
            Access::Exclusive => self.exclusive += 1,
            Access::Shared => self.readers += 1,
            Access::Slot => {
                self.used += 1;
                self.set_slot(slot, true);
            }
            Access::Units(units) => self.used += units,
        }
        self.leases.push(lease);
        (self.leases.len() - 1) as u32
    }

    /// Releases what a lease occupies, but not its index in the list.
    pub fn release_access(&mut self, access: Access, slot: u32) {
        match access {
            Access::Exclusive => self.exclusive -= 1,
            Access::Shared => self.readers -= 1,
            Access::Slot => {
                self.used -= 1;
                self.set_slot(slot, false);
            }
            Access::Units(units) => self.used -= units,
        }
    }

    /// The lowest free slot.
    pub fn free_slot(&self) -> u32 {
        match self.slots.iter().position(|word| *word != u64::MAX) {
            Some(i) => i as u32 * 64 + self.slots[i].trailing_ones(),
            None => self.slots.len() as u32 * 64,
        }
    }

    fn set_slot(&mut self, slot: u32, taken: bool) {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if self.slots.len() <= word {
            self.slots.resize(word + 1, 0);
        }
        self.slots[word] = if taken { self.slots[word] | bit } else { self.slots[word] & !bit };
    }
}

/// Waiters of a resource: by priority, then in order of arrival (W1).
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    entries: BTreeSet<QueuePosition>,
    /// Number of waiters at each priority, so that a position is known without counting.
    counts: BTreeMap<u8, u32>,
}

/// A position in a queue; the smaller one is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    /// 255 minus the effective priority.
    urgency: u8,
    order: u64,
    pub waiter: u32,
}

impl QueuePosition {
    pub const fn new(priority: u8, order: u64, waiter: u32) -> Self {
        Self { urgency: 255 - priority, order, waiter }
    }

    pub const fn priority(&self) -> u8 {
        255 - self.urgency
    }
}

impl WaitQueue {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn insert(&mut self, position: QueuePosition) {
        let new = self.entries.insert(position);
        assert!(new, "a waiter is in a queue once");
        *self.counts.entry(position.urgency).or_default() += 1;
    }

    pub fn remove(&mut self, position: QueuePosition) {
        let known = self.entries.remove(&position);
        assert!(known, "a waiter leaves a queue that it is in");
        let count = self.counts.get_mut(&position.urgency).expect("it was counted when it was added");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&position.urgency);
        }
    }

    /// The position that a new waiter of this priority would get, from 1.
    pub fn position(&self, priority: u8) -> u32 {
        1 + self.counts.range(..=255 - priority).map(|(_, count)| count).sum::<u32>()
    }

    pub fn first(&self) -> Option<QueuePosition> {
        self.entries.first().copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = QueuePosition> + '_ {
        self.entries.iter().copied()
    }

    /// The waiter directly ahead of this one.
    pub fn before(&self, position: QueuePosition) -> Option<QueuePosition> {
        self.entries.range(..position).next_back().copied()
    }

    /// The waiters behind this one, the nearest first.
    pub fn behind(&self, position: QueuePosition) -> impl Iterator<Item = QueuePosition> + '_ {
        self.entries.range((Bound::Excluded(position), Bound::Unbounded)).copied()
    }
}

#[cfg(test)]
mod tests;
