//! What is leased: most resources are one name and one lease; the others have a crowd.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::husks::{Husks, Sweep};
use super::lease::NONE;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::store::index::{Index, NameHash};
use crate::store::pages::Pages;
use crate::store::texts::{TextAt, Texts};

/// A name with somebody or something behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    pub name: TextAt,
    /// The only lease, if there is no crowd.
    pub lease: u32,
    pub crowd: u32,
}

/// All resources, by place and by name. A place means nothing outside of one process; records carry names.
pub(crate) struct Resources {
    places: Pages<Resource>,
    vacant: Vec<u32>,
    crowds: Pages<Option<Box<Crowd>>>,
    vacant_crowds: Vec<u32>,
    index: Index,
    pub names: Texts,
    pub hash: NameHash,
    husks: Husks,
    /// How many names have something behind them.
    count: usize,
    /// Places whose names are being forgotten.
    leaving: Vec<u32>,
}

impl Resources {
    pub fn new(hash: NameHash) -> Self {
        Self {
            places: Pages::new(),
            vacant: Vec::new(),
            crowds: Pages::new(),
            vacant_crowds: Vec::new(),
            index: Index::new(),
            names: Texts::new(),
            hash,
            husks: Husks::default(),
            count: 0,
            leaving: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hash.hash(name.as_bytes());
        self.find_hashed(hash, name).filter(|place| !self.husks.contains(*place))
    }

    fn find_hashed(&self, hash: u64, name: &str) -> Option<u32> {
        self.index.find(hash, |place| self.names.bytes(self.places[place].name) == name.as_bytes())
    }

    /// The resource's place; a new one if the name is new.
    pub fn enter(&mut self, name: &str) -> u32 {
        let hash = self.hash.hash(name.as_bytes());
        if let Some(place) = self.find_hashed(hash, name) {
            self.count += usize::from(self.husks.revive(place));
            return place;
        }
        self.sweep();
        let resource = Resource { name: self.names.put(name), lease: NONE, crowd: NONE };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.places[place] = resource;
                place
            }
            None => self.places.push(resource),
        };
        let (places, names, hasher) = (&self.places, &self.names, &self.hash);
        self.index.insert(hash, place, |other| hasher.hash(names.bytes(places[other].name)));
        self.count += 1;
        place
    }

    /// Lets a name go that nothing stands behind any more.
    pub fn leave_if_empty(&mut self, place: u32) {
        let resource = self.places[place];
        if resource.lease != NONE {
            return;
        }
        if resource.crowd != NONE {
            if !self.crowds[resource.crowd].as_ref().expect("a crowd in its place").is_empty() {
                return;
            }
            self.crowds[resource.crowd] = None;
            self.vacant_crowds.push(resource.crowd);
            self.places[place].crowd = NONE;
        }
        self.husks.add(place);
        self.count -= 1;
    }

    /// A little of what is left to forget: whoever brings a new name sweeps, so that room never grows by old ones.
    fn sweep(&mut self) {
        match self.husks.sweep(self.index.len()) {
            Sweep::Rests => {}
            Sweep::Shard(shard) => self.index.retain(shard, |place| !self.husks.drops(place)),
            Sweep::Names => {
                self.husks.forget(&mut self.leaving);
                for place in self.leaving.drain(..) {
                    self.names.free(self.places[place].name);
                    self.vacant.push(place);
                }
            }
        }
    }

    pub fn name(&self, place: u32) -> &str {
        self.names.get(self.places[place].name)
    }

    pub fn name_bytes(&self, place: u32) -> &[u8] {
        self.names.bytes(self.places[place].name)
    }

    pub fn sole(&self, place: u32) -> u32 {
        self.places[place].lease
    }

    pub fn crowd(&self, place: u32) -> Option<&Crowd> {
        match self.places[place].crowd {
            NONE => None,
            crowd => self.crowds[crowd].as_deref(),
        }
    }

    pub fn crowd_mut(&mut self, place: u32) -> Option<&mut Crowd> {
        match self.places[place].crowd {
            NONE => None,
            crowd => self.crowds[crowd].as_deref_mut(),
        }
    }

    /// Whether a lone exclusive lease can be put here without a crowd.
    pub fn is_bare(&self, place: u32) -> bool {
        let resource = &self.places[place];
        resource.lease == NONE && resource.crowd == NONE
    }

    pub fn set_sole(&mut self, place: u32, lease: u32) {
        self.places[place].lease = lease;
    }

    /// Makes room for more than one lease. A lone lease moves in; the caller says it is exclusive, for only such stand alone.
    pub fn gather(&mut self, place: u32) -> &mut Crowd {
        if self.places[place].crowd == NONE {
            let mut crowd = Box::new(Crowd::new(place));
            if self.places[place].lease != NONE {
                crowd.leases.push(self.places[place].lease);
                crowd.exclusive = 1;
                self.places[place].lease = NONE;
            }
            let at = match self.vacant_crowds.pop() {
                Some(at) => {
                    self.crowds[at] = Some(crowd);
                    at
                }
                None => self.crowds.push(Some(crowd)),
            };
            self.places[place].crowd = at;
        }
        self.crowds[self.places[place].crowd].as_deref_mut().expect("a crowd in its place")
    }

    /// Every resource with a crowd, by place.
    pub fn crowds(&self) -> impl Iterator<Item = (u32, &Crowd)> {
        self.crowds.iter().filter_map(|(_, crowd)| crowd.as_deref()).map(|crowd| (crowd.resource, crowd))
    }

    /// The resource at a place, if a name is there. For listing in pages.
    pub fn at(&self, place: u32) -> Option<&Resource> {
        let resource = self.places.get(place)?;
        if resource.lease == NONE && resource.crowd == NONE { None } else { Some(resource) }
    }

    /// How many places there are, taken or not.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }
}

/// A resource that more than one lease, a wait, a capacity, pins or an operator's hold belong to.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub resource: u32,
    pub leases: Vec<u32>,
    pub exclusive: u32,
    pub readers: u32,
    /// Units taken by slots and holds.
    pub used: u32,
    /// Units that became commitments.
    pub confirmed: u64,
    /// Set by command or by the first slot lease; absent: the charter's, or one.
    pub capacity: Option<u32>,
    /// The capacity was set by command and outlives the leases.
    pub lasting: bool,
    slots: Vec<u64>,
    pub queue: Queue,
    /// A revocation left it to an operator.
    pub for_operator: bool,
    pub floor: u64,
    pub pins: BTreeSet<(u64, u32)>,
    /// It waits to be offered to its waiters. Not part of the state.
    pub to_offer: bool,
    /// How many of its waiters may pass those before them. Not part of the state.
    pub passers: u32,
}

impl Crowd {
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
            queue: Queue::default(),
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

    /// Whether something is remembered here besides leases and waits.
    pub const fn has_settings(&self) -> bool {
        self.lasting || self.confirmed > 0 || self.for_operator || self.floor > 0
    }

    /// Whether so much can be taken now, with this capacity (L1, C1).
    pub fn fits(&self, access: Access, capacity: u32) -> bool {
        let oversold = u64::from(mutants::on(Mutant::Oversold));
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

    pub fn take(&mut self, lease: u32, access: Access, slot: u32) -> u32 {
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

    /// Gives back what a lease took, but not its place in the list.
    pub fn give_back(&mut self, access: Access, slot: u32) {
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

    /// The lowest slot that nobody has.
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

/// Who waits for a resource: higher priority first, then first come (W1).
#[derive(Debug, Default)]
pub(crate) struct Queue {
    places: BTreeSet<Turn>,
    /// How many wait at each priority, so that a place is told without counting.
    counts: BTreeMap<u8, u32>,
}

/// A place in a queue; the smaller one is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// 255 minus the priority it runs at.
    urgency: u8,
    order: u64,
    pub waiter: u32,
}

impl Turn {
    pub const fn new(priority: u8, order: u64, waiter: u32) -> Self {
        Self { urgency: 255 - priority, order, waiter }
    }

    pub const fn priority(&self) -> u8 {
        255 - self.urgency
    }
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn insert(&mut self, turn: Turn) {
        let new = self.places.insert(turn);
        assert!(new, "a waiter stands in a queue once");
        *self.counts.entry(turn.urgency).or_default() += 1;
    }

    pub fn remove(&mut self, turn: Turn) {
        let known = self.places.remove(&turn);
        assert!(known, "a waiter leaves a queue it stands in");
        let count = self.counts.get_mut(&turn.urgency).expect("counted when it came");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&turn.urgency);
        }
    }

    /// The place that a newcomer of this priority would get, from 1.
    pub fn position(&self, priority: u8) -> u32 {
        1 + self.counts.range(..=255 - priority).map(|(_, count)| count).sum::<u32>()
    }

    pub fn first(&self) -> Option<Turn> {
        self.places.first().copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Turn> + '_ {
        self.places.iter().copied()
    }

    /// Who stands right before this one.
    pub fn before(&self, turn: Turn) -> Option<Turn> {
        self.places.range(..turn).next_back().copied()
    }

    /// Who stands behind this one, the nearest first.
    pub fn behind(&self, turn: Turn) -> impl Iterator<Item = Turn> + '_ {
        self.places.range((Bound::Excluded(turn), Bound::Unbounded)).copied()
    }
}

#[cfg(test)]
mod tests;
