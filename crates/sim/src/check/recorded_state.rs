//! A naive model of the recorded state, independent of the core, to compare the two.

mod cache;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::codec::Reader;
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::payload::delivery::DeliveryRecord;
use leasehold_core::record::{BatchHeader, DrainCause, Record};
use leasehold_core::time::GrantorTime;

use cache::ModelCache;

use crate::clock::SimTime;
use crate::history::{History, HistoryEvent};

/// A lease in the model.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct ModelLease {
    pub number: u64,
    pub resource: String,
    pub session: Option<u32>,
    pub holder: String,
    pub access: Access,
    pub ttl: u64,
    pub granted: GrantorTime,
    /// The predecessor of an overlap, which is not counted as a holder.
    pub overlapped: bool,
    /// Announced end of a drain or preemption; a preemption may be withdrawn.
    pub until: Option<GrantorTime>,
    pub draining: bool,
    pub max_hold: Option<u64>,
    /// Progress window, in milliseconds.
    pub progress: Option<u64>,
    /// Lowest position that the lease still reads.
    pub pin: Option<u64>,
}

impl ModelLease {
    /// Number of units the lease uses.
    pub const fn units(&self) -> u64 {
        match self.access {
            Access::Slot => 1,
            Access::Units(units) => units as u64,
            Access::Exclusive | Access::Shared => 0,
        }
    }
}

/// A wait in the model.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct ModelWait {
    pub order: u64,
    pub session: u32,
    pub holder: String,
    pub wanted: Vec<(String, Access)>,
    pub priority: u8,
    pub until: GrantorTime,
    pub sequence: Option<u64>,
}

/// A session in the model.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct ModelSession {
    pub reuse: u32,
    pub ttl: u64,
    /// The last tenure in which the session was alive, and the time of its first sign of life there.
    pub alive_in: u32,
    pub alive_at: GrantorTime,
}

/// A message in the model.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct ModelMessage {
    pub body: Vec<u8>,
    pub attempts: u32,
    pub max: u32,
    pub receipt: Option<u64>,
    pub session: Option<u32>,
    pub dead: bool,
}

/// State according to the records.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the glossary defines these names")]
pub struct Model {
    pub time: GrantorTime,
    pub tenure: u32,
    pub generation: u64,
    pub opened: GrantorTime,
    pub leases: BTreeMap<u32, ModelLease>,
    /// End reason of each ended lease, by number.
    pub ended: BTreeMap<u64, EndReason>,
    /// Every issued number with its resource.
    pub numbers: BTreeMap<u64, String>,
    pub sessions: BTreeMap<u32, ModelSession>,
    pub waits: BTreeMap<u32, ModelWait>,
    pub capacity: BTreeMap<String, u64>,
    pub confirmed: BTreeMap<String, u64>,
    pub items: BTreeMap<u64, ModelMessage>,
    /// Positions below which a collector may have deleted, by resource.
    pub floors: BTreeMap<String, u64>,
    pub cached: ModelCache,
    pub quarantine: GrantorTime,
    orders: u64,
}

impl Model {
    /// Applies a record.
    pub fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Opened { generation, .. } => {
                self.tenure += 1;
                self.generation = *generation;
                self.opened = self.time;
            }
            Record::Restored { quarantine, .. } => {
                let slots: Vec<u32> = self.leases.keys().copied().collect();
                slots.into_iter().for_each(|slot| self.end(slot, EndReason::Restored));
                self.sessions.clear();
                self.waits.clear();
                self.items.values_mut().filter(|item| item.receipt.is_some()).for_each(return_message);
                self.cached = ModelCache::default();
                self.quarantine = *quarantine;
            }
            Record::RolledBack { quarantine, .. } => self.quarantine = *quarantine,
            Record::SessionOpened { session, ttl, .. } => {
                let opened = ModelSession {
                    reuse: session.reuse,
                    ttl: u64::from(*ttl),
                    alive_in: self.tenure,
                    alive_at: self.time,
                };
                self.sessions.insert(session.slot, opened);
            }
            Record::SessionAlive { session } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.alive_in = self.tenure;
                    session.alive_at = self.time;
                }
            }
            Record::SessionEnded { session, reason } => {
                // A lease of a closed session counts as released, not as lost.
                let reason = if *reason == EndReason::Released { EndReason::Released } else { EndReason::Session };
                self.end_session(session.slot, reason);
            }
            Record::Granted(granted) => {
                if let Some(predecessor) = granted.overlaps.and_then(|slot| self.leases.get_mut(&slot)) {
                    predecessor.overlapped = true;
                }
                if let Some(waiter) = granted.waiter {
                    self.waits.remove(&waiter);
                }
                self.numbers.insert(granted.number.get(), granted.resource.to_owned());
                self.leases.insert(
                    granted.lease.slot,
                    ModelLease {
                        number: granted.number.get(),
                        resource: granted.resource.to_owned(),
                        session: granted.session,
                        holder: granted.holder.to_owned(),
                        access: granted.access,
                        ttl: u64::from(granted.ttl),
                        granted: self.time,
                        overlapped: false,
                        until: None,
                        draining: false,
                        max_hold: granted.max_hold,
                        progress: granted.progress,
                        pin: None,
                    },
                );
            }
            Record::Ended { lease, reason, .. } => self.end(*lease, *reason),
            Record::Expired(ends) => ends.0.iter().for_each(|(lease, _)| self.end(*lease, EndReason::Ttl)),
            Record::Rotated { lease, number } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    self.ended.insert(lease.number, EndReason::Released);
                    lease.number = number.get();
                    self.numbers.insert(number.get(), lease.resource.clone());
                }
            }
            Record::Waiting(waiting) => {
                self.orders += 1;
                let wanted = waiting.resources.iter().map(|(name, access)| ((*name).to_owned(), *access)).collect();
                let wait = ModelWait {
                    order: self.orders,
                    session: waiting.session,
                    holder: waiting.holder.to_owned(),
                    wanted,
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
                    lease.draining = !matches!(cause, DrainCause::Priority);
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
                self.end(*lease, EndReason::Released);
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
            Record::Cache(record) => self.cached.apply(record, self.time),
            Record::Delivery(record) => self.deliver(record),
            _ => {}
        }
    }

    fn end(&mut self, slot: u32, reason: EndReason) {
        if let Some(lease) = self.leases.remove(&slot) {
            self.ended.insert(lease.number, reason);
        }
    }

    fn end_session(&mut self, slot: u32, reason: EndReason) {
        let carried = self.leases.iter().filter(|(_, lease)| lease.session == Some(slot));
        let carried: Vec<u32> = carried.map(|(lease, _)| *lease).collect();
        carried.into_iter().for_each(|lease| self.end(lease, reason));
        self.waits.retain(|_, wait| wait.session != slot);
        self.items.values_mut().filter(|item| item.session == Some(slot)).for_each(return_message);
        self.cached.session_ended(slot);
        self.sessions.remove(&slot);
    }

    fn deliver(&mut self, record: &DeliveryRecord) {
        match record {
            DeliveryRecord::Enqueued { item, body, max_attempts, .. } => {
                self.items
                    .insert(*item, ModelMessage { body: body.to_vec(), max: *max_attempts, ..ModelMessage::default() });
            }
            DeliveryRecord::Delivered { first, items, session, .. } => {
                for (i, id) in items.iter().enumerate() {
                    if let Some(item) = self.items.get_mut(id) {
                        item.attempts += 1;
                        item.receipt = Some(first.get() + i as u64);
                        item.session = session.map(|session| session.slot);
                    }
                }
            }
            DeliveryRecord::Acked { item, .. } | DeliveryRecord::Dropped { item } => {
                self.items.remove(item);
            }
            DeliveryRecord::Returned { item, .. } | DeliveryRecord::Expired { item, .. } => {
                self.items.get_mut(item).into_iter().for_each(return_message);
            }
            DeliveryRecord::Redriven { item } => {
                if let Some(item) = self.items.get_mut(item) {
                    (item.attempts, item.dead) = (0, false);
                }
            }
            DeliveryRecord::Extended { .. } => {}
        }
    }

    /// Used units of a resource, including confirmed ones.
    pub fn used(&self, resource: &str) -> u64 {
        let held = self.leases.values().filter(|lease| lease.resource == resource && !lease.overlapped);
        held.map(ModelLease::units).sum::<u64>() + self.confirmed.get(resource).copied().unwrap_or(0)
    }

    /// Numbers of all held leases.
    pub fn held(&self) -> BTreeSet<u64> {
        self.leases.values().map(|lease| lease.number).collect()
    }
}

fn return_message(item: &mut ModelMessage) {
    item.receipt = None;
    item.session = None;
    item.dead = item.attempts >= item.max;
}

/// A step of a walk along the history.
pub enum WalkStep<'a, 'b> {
    /// Before a record is applied.
    Before(&'a Record<'b>),
    /// After a record is applied.
    After(&'a Record<'b>),
    /// After the last record of a batch.
    Batch,
    /// The journal was reverted; the model has what remains.
    JournalReverted,
    /// Any other event.
    Other(&'a HistoryEvent),
}

/// Walks along the history with the model at each point.
pub fn walk<E>(
    history: &History,
    mut each: impl FnMut(SimTime, &mut Model, WalkStep<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut model = Model::default();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::BatchDurable { batch, .. } => {
                fold(&mut model, batch, |model, step| each(*at, model, step))?;
                each(*at, &mut model, WalkStep::Batch)?;
            }
            HistoryEvent::JournalReverted { batches, .. } => {
                model = Model::default();
                for batch in batches {
                    fold(&mut model, batch, |_, _| Ok::<(), E>(()))?;
                }
                each(*at, &mut model, WalkStep::JournalReverted)?;
            }
            other => each(*at, &mut model, WalkStep::Other(other))?,
        }
    }
    Ok(())
}

fn fold<E>(
    model: &mut Model,
    batch: &[u8],
    mut each: impl FnMut(&mut Model, WalkStep<'_, '_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = Reader::new(batch);
    // Unreadable batches are reported by recovery.
    let Ok(header) = BatchHeader::decode(&mut from) else { return Ok(()) };
    model.time = header.time;
    while !from.is_empty() {
        let Ok(record) = Record::decode(&mut from) else { return Ok(()) };
        each(model, WalkStep::Before(&record))?;
        model.apply(&record);
        each(model, WalkStep::After(&record))?;
    }
    Ok(())
}
