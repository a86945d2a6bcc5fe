//! A naive fold of what is on record, kept apart from the core's own, so that the two can be compared.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::codec::Reader;
use leasehold_core::lease::{Access, Reason};
use leasehold_core::payload::delivery::Fact;
use leasehold_core::record::{Cause, Header, Record};
use leasehold_core::time::Millis;

use super::cached::Cached;
use crate::clock::At;
use crate::history::{Event, History};

/// A lease on record.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Lease {
    pub number: u64,
    pub resource: String,
    pub session: Option<u32>,
    pub holder: String,
    pub access: Access,
    pub ttl: u64,
    pub granted: Millis,
    /// The predecessor of an overlap, counted apart.
    pub apart: bool,
    /// Somebody announced its end, by then; and it is no pre-emption, which may be off again.
    pub until: Option<Millis>,
    pub draining: bool,
    pub max_hold: Option<u64>,
    /// How often it must show progress.
    pub progress: Option<u64>,
    /// What it reads from on.
    pub pin: Option<u64>,
}

impl Lease {
    /// How many units it takes.
    pub const fn units(&self) -> u64 {
        match self.access {
            Access::Slot => 1,
            Access::Units(units) => units as u64,
            Access::Exclusive | Access::Shared => 0,
        }
    }
}

/// A wait on record.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Wait {
    pub order: u64,
    pub session: u32,
    pub holder: String,
    pub asks: Vec<(String, Access)>,
    pub priority: u8,
    pub until: Millis,
    pub sequence: Option<u64>,
}

/// A session on record.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Session {
    pub reuse: u32,
    pub ttl: u64,
    /// The last tenure in which it was heard, and when it was first heard in it.
    pub heard: u32,
    pub heard_at: Millis,
}

/// A message on record.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Item {
    pub body: Vec<u8>,
    pub attempts: u32,
    pub max: u32,
    pub receipt: Option<u64>,
    pub session: Option<u32>,
    pub dead: bool,
}

/// The state, as the records say.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are named by the vocabulary")]
pub struct Ledger {
    pub time: Millis,
    pub tenure: u32,
    pub generation: u64,
    pub opened: Millis,
    pub leases: BTreeMap<u32, Lease>,
    /// How each lease that is over ended, by its number.
    pub ended: BTreeMap<u64, Reason>,
    /// Every number that was given out, with its resource.
    pub numbers: BTreeMap<u64, String>,
    pub sessions: BTreeMap<u32, Session>,
    pub waits: BTreeMap<u32, Wait>,
    pub capacity: BTreeMap<String, u64>,
    pub confirmed: BTreeMap<String, u64>,
    pub items: BTreeMap<u64, Item>,
    /// What a collector may have deleted, by resource: everything below.
    pub floors: BTreeMap<String, u64>,
    pub cached: Cached,
    pub quarantine: Millis,
    orders: u64,
}

impl Ledger {
    /// Makes a record true.
    pub fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Opened { generation, .. } => {
                self.tenure += 1;
                self.generation = *generation;
                self.opened = self.time;
            }
            Record::Restored { quarantine, .. } => {
                let slots: Vec<u32> = self.leases.keys().copied().collect();
                slots.into_iter().for_each(|slot| self.end(slot, Reason::Restored));
                self.sessions.clear();
                self.waits.clear();
                self.items.values_mut().filter(|item| item.receipt.is_some()).for_each(put_back);
                self.cached = Cached::default();
                self.quarantine = *quarantine;
            }
            Record::RolledBack { quarantine, .. } => self.quarantine = *quarantine,
            Record::SessionOpened { session, ttl, .. } => {
                let opened =
                    Session { reuse: session.reuse, ttl: u64::from(*ttl), heard: self.tenure, heard_at: self.time };
                self.sessions.insert(session.slot, opened);
            }
            Record::SessionAlive { session } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.heard = self.tenure;
                    session.heard_at = self.time;
                }
            }
            Record::SessionEnded { session, reason } => {
                // What its own client closed is given back, not taken.
                let reason = if *reason == Reason::Released { Reason::Released } else { Reason::Session };
                self.end_session(session.slot, reason);
            }
            Record::Granted(granted) => {
                if let Some(predecessor) = granted.overlaps.and_then(|slot| self.leases.get_mut(&slot)) {
                    predecessor.apart = true;
                }
                if let Some(waiter) = granted.waiter {
                    self.waits.remove(&waiter);
                }
                self.numbers.insert(granted.number.get(), granted.resource.to_owned());
                self.leases.insert(
                    granted.lease.slot,
                    Lease {
                        number: granted.number.get(),
                        resource: granted.resource.to_owned(),
                        session: granted.session,
                        holder: granted.holder.to_owned(),
                        access: granted.access,
                        ttl: u64::from(granted.ttl),
                        granted: self.time,
                        apart: false,
                        until: None,
                        draining: false,
                        max_hold: granted.max_hold,
                        progress: granted.progress,
                        pin: None,
                    },
                );
            }
            Record::Ended { lease, reason, .. } => self.end(*lease, *reason),
            Record::Expired(ends) => ends.0.iter().for_each(|(lease, _)| self.end(*lease, Reason::Ttl)),
            Record::Rotated { lease, number } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    self.ended.insert(lease.number, Reason::Released);
                    lease.number = number.get();
                    self.numbers.insert(number.get(), lease.resource.clone());
                }
            }
            Record::Waiting(waiting) => {
                self.orders += 1;
                let asks = waiting.asks.iter().map(|(name, access)| ((*name).to_owned(), *access)).collect();
                let wait = Wait {
                    order: self.orders,
                    session: waiting.session,
                    holder: waiting.holder.to_owned(),
                    asks,
                    priority: waiting.priority,
                    until: waiting.until,
                    sequence: waiting.sequence,
                };
                self.waits.insert(waiting.waiter, wait);
            }
            Record::WaitEnded { waiter, .. } => {
                self.waits.remove(waiter);
            }
            Record::Draining { lease, cause, until } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    lease.until = Some(*until);
                    lease.draining = !matches!(cause, Cause::Priority);
                }
            }
            Record::DrainDropped { lease } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    (lease.until, lease.draining) = (None, false);
                }
            }
            Record::Capacity { resource, units, .. } => {
                self.capacity.insert((*resource).to_owned(), u64::from(*units));
            }
            Record::HoldConfirmed { lease, .. } => {
                if let Some(held) = self.leases.get(lease) {
                    *self.confirmed.entry(held.resource.clone()).or_default() += held.units();
                }
                self.end(*lease, Reason::Released);
            }
            Record::HoldResized { lease, units } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    lease.access = Access::Units(*units);
                }
            }
            Record::Pinned { lease, at } => {
                self.leases.get_mut(lease).into_iter().for_each(|lease| lease.pin = Some(*at));
            }
            Record::Floor { resource, at } => {
                self.floors.insert((*resource).to_owned(), *at);
            }
            Record::Cache(fact) => self.cached.apply(fact, self.time),
            Record::Delivery(fact) => self.deliver(fact),
            _ => {}
        }
    }

    fn end(&mut self, slot: u32, reason: Reason) {
        if let Some(lease) = self.leases.remove(&slot) {
            self.ended.insert(lease.number, reason);
        }
    }

    fn end_session(&mut self, slot: u32, reason: Reason) {
        let carried = self.leases.iter().filter(|(_, lease)| lease.session == Some(slot));
        let carried: Vec<u32> = carried.map(|(lease, _)| *lease).collect();
        carried.into_iter().for_each(|lease| self.end(lease, reason));
        self.waits.retain(|_, wait| wait.session != slot);
        self.items.values_mut().filter(|item| item.session == Some(slot)).for_each(put_back);
        self.cached.session_ended(slot);
        self.sessions.remove(&slot);
    }

    fn deliver(&mut self, fact: &Fact) {
        match fact {
            Fact::Enqueued { item, body, max_attempts, .. } => {
                self.items.insert(*item, Item { body: body.to_vec(), max: *max_attempts, ..Item::default() });
            }
            Fact::Delivered { first, items, session, .. } => {
                for (i, id) in items.iter().enumerate() {
                    if let Some(item) = self.items.get_mut(id) {
                        item.attempts += 1;
                        item.receipt = Some(first.get() + i as u64);
                        item.session = session.map(|session| session.slot);
                    }
                }
            }
            Fact::Acked { item, .. } | Fact::Dropped { item } => {
                self.items.remove(item);
            }
            Fact::Returned { item, .. } | Fact::Expired { item, .. } => {
                self.items.get_mut(item).into_iter().for_each(put_back);
            }
            Fact::Redriven { item } => {
                if let Some(item) = self.items.get_mut(item) {
                    (item.attempts, item.dead) = (0, false);
                }
            }
            Fact::Extended { .. } => {}
        }
    }

    /// Units taken of a resource, commitments included.
    pub fn used(&self, resource: &str) -> u64 {
        let held = self.leases.values().filter(|lease| lease.resource == resource && !lease.apart);
        held.map(Lease::units).sum::<u64>() + self.confirmed.get(resource).copied().unwrap_or(0)
    }

    /// The numbers of all that is held.
    pub fn held(&self) -> BTreeSet<u64> {
        self.leases.values().map(|lease| lease.number).collect()
    }
}

fn put_back(item: &mut Item) {
    item.receipt = None;
    item.session = None;
    item.dead = item.attempts >= item.max;
}

/// What a walk along the history meets.
pub enum Met<'a, 'b> {
    /// A record, before it is applied.
    Before(&'a Record<'b>),
    /// The same, after.
    After(&'a Record<'b>),
    /// A batch is whole.
    Batch,
    /// The journal was set back; the ledger is what is left.
    SetBack,
    /// Any other event.
    Other(&'a Event),
}

/// Walks along the history with the ledger as it stands at each point.
pub fn walk<E>(
    history: &History,
    mut each: impl FnMut(At, &mut Ledger, Met<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut ledger = Ledger::default();
    for (at, event) in &history.events {
        match event {
            Event::Landed { batch, .. } => {
                fold(&mut ledger, batch, |ledger, met| each(*at, ledger, met))?;
                each(*at, &mut ledger, Met::Batch)?;
            }
            Event::SetBack { batches, .. } => {
                ledger = Ledger::default();
                for batch in batches {
                    fold(&mut ledger, batch, |_, _| Ok::<(), E>(()))?;
                }
                each(*at, &mut ledger, Met::SetBack)?;
            }
            other => each(*at, &mut ledger, Met::Other(other))?,
        }
    }
    Ok(())
}

fn fold<E>(
    ledger: &mut Ledger,
    batch: &[u8],
    mut each: impl FnMut(&mut Ledger, Met<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = Reader::new(batch);
    // What cannot be read is found where it is recovered from.
    let Ok(header) = Header::decode(&mut from) else { return Ok(()) };
    ledger.time = header.time;
    while !from.is_empty() {
        let Ok(record) = Record::decode(&mut from) else { return Ok(()) };
        each(ledger, Met::Before(&record))?;
        ledger.apply(&record);
        each(ledger, Met::After(&record))?;
    }
    Ok(())
}
