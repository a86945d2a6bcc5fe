//! Capacity, reservations and pins: set the capacity, confirm and resize reservations, veto their expiry, pin and collect.

use super::Grantor;
use crate::charter::AtExpiry;
use crate::command::{Answer, LeaseRef};
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};

impl Grantor {
    /// Sets the capacity. A capacity below the current use ends no lease; it only blocks new grants (C3).
    pub(super) fn set_capacity(&mut self, resource: &str, units: u32) -> Result<Answer, Refusal> {
        let name = Name::parse(resource)?.as_str();
        if units == 0 || units > limits::CAPACITY {
            return Err(Refusal::Invalid { field: "capacity", reason: "from 1 to 1048576" });
        }
        if self.table.resources.len() >= limits::LEASES {
            let max = limits::LEASES as u64;
            return Err(Refusal::Exhausted { limit: Limit::Leases, max, got: max + 1 });
        }
        self.record(&Record::Capacity { resource: name, units, lasting: true });
        if mutants::on(Mutant::ShrinkEndsLeases) {
            let leases = self.on_resource(name);
            for slot in leases.into_iter().skip(units as usize) {
                self.end_lease(slot, crate::lease::EndReason::Policy, "");
            }
        }
        self.refuse_impossible_waits(name);
        self.suspect_waiters(name);
        Ok(Answer::Done)
    }

    /// Turns a reservation into a commitment: its units stay occupied, and the lease ends (C2, C4).
    pub(super) fn confirm_hold(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = if mutants::on(Mutant::ExpiredHoldConfirmed) {
            self.reservation_even_if_over(lease_ref)?
        } else {
            self.hold(lease_ref)?.0
        };
        let number = self.table.lease(slot).number();
        let (mut name, other) = std::mem::take(&mut self.scratch);
        name.clear();
        name.push_str(self.table.resources.name(self.table.lease(slot).resource));
        self.record(&Record::HoldConfirmed { lease: slot, number });
        // Committed units are never freed, so some waits may have become impossible.
        self.refuse_impossible_waits(&name);
        self.suspect_waiters(&name);
        self.scratch = (name, other);
        Ok(Answer::Done)
    }

    pub(super) fn resize_hold(&mut self, lease_ref: &LeaseRef<'_>, units: u32) -> Result<Answer, Refusal> {
        let (slot, before) = self.hold(lease_ref)?;
        if units == 0 {
            return Err(Refusal::Invalid {
                field: "units",
                reason: "at least 1; release the reservation to free all units",
            });
        }
        let resource = self.table.lease(slot).resource;
        let capacity = u64::from(self.table.capacity(resource));
        let state = self.table.resources.state(resource).expect("a reservation has a resource state");
        let got = u64::from(state.used - before) + u64::from(units) + state.confirmed;
        if units > before && got > capacity && !mutants::on(Mutant::ResizeOversells) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max: capacity, got });
        }
        self.record(&Record::HoldResized { lease: slot, units });
        if units > before {
            self.after_hold_grew(self.table.lease(slot).actor);
        }
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Keeps a reservation beyond its expiry, for a time that the charter bounds.
    pub(super) fn veto(&mut self, lease_ref: &LeaseRef<'_>, for_ms: u64) -> Result<Answer, Refusal> {
        let (slot, _) = self.hold(lease_ref)?;
        let now = self.now();
        let lease = self.table.lease(slot);
        let renewal = lease.renewal.deadline(now, &self.table.clock);
        let name = self.table.resources.name(lease.resource);
        let max = match self.table.charter(name).map(|charter| charter.at_expiry) {
            None => u64::from(lease.renewal.ttl),
            Some(AtExpiry::Veto { max_ms }) => max_ms,
            Some(AtExpiry::Free) => {
                return Err(Refusal::Invalid { field: "veto", reason: "the charter frees this reservation at expiry" });
            }
        };
        if for_ms == 0 || lease.follows_session() {
            return Err(Refusal::Invalid {
                field: "veto",
                reason: "at least 1 ms, and only for a reservation with its own ttl",
            });
        }
        let until = now.plus(for_ms).min(renewal.plus(max));
        self.record(&Record::Vetoed { lease: slot, until });
        Ok(Answer::Current(self.current_answer(slot)))
    }

    fn hold(&mut self, lease_ref: &LeaseRef<'_>) -> Result<(u32, u32), Refusal> {
        let slot = self.current(lease_ref)?;
        match self.table.lease(slot).access() {
            Access::Units(units) => Ok((slot, units)),
            _ => Err(Refusal::Conflict(RefusalSubject::Hold)),
        }
    }

    fn reservation_even_if_over(&mut self, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        match lease_ref.selector {
            crate::command::LeaseSelector::Id(id) if self.table.live(id).is_some() => Ok(id.slot),
            _ => self.hold(lease_ref).map(|(slot, _)| slot),
        }
    }

    /// Pins a position for a reader. Data that a collector may have deleted cannot be pinned.
    pub(super) fn pin(&mut self, lease_ref: &LeaseRef<'_>, at: u64) -> Result<Answer, Refusal> {
        let slot = self.current(lease_ref)?;
        let lease = self.table.lease(slot);
        if lease.access() != Access::Shared {
            return Err(Refusal::Invalid { field: "access", reason: "a pin requires a shared lease" });
        }
        let state = self.table.resources.state(lease.resource).expect("a reader has a resource state");
        if at < state.floor && !mutants::on(Mutant::PinBelowFloor) {
            return Err(Refusal::Conflict(RefusalSubject::Floor));
        }
        let new = self.table.extra(slot).is_none_or(|extra| extra.pinned.is_none());
        if new && state.pins.len() >= limits::PINS {
            let max = limits::PINS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Pins, max, got: max + 1 });
        }
        self.record(&Record::Pinned { lease: slot, at });
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Answers how far a collector may delete: below its request and below every live pin. The floor is recorded first, so
    /// that no reader pins data that is being deleted.
    pub(super) fn collect(&mut self, resource: &str, below: u64) -> Result<Answer, Refusal> {
        let name = Name::parse(resource)?.as_str();
        let state = self.table.resources.find(name).and_then(|at| self.table.resources.state(at));
        let lowest = state.and_then(|state| state.pins.first()).map_or(u64::MAX, |(at, _)| *at);
        let floor = state.map_or(0, |state| state.floor);
        let below = if mutants::on(Mutant::PinIgnored) { below } else { below.min(lowest) }.max(floor);
        if below > floor {
            if state.is_none() && self.table.resources.len() >= limits::LEASES {
                let max = limits::LEASES as u64;
                return Err(Refusal::Exhausted { limit: Limit::Leases, max, got: max + 1 });
            }
            self.record(&Record::Floor { resource: name, at: below });
        }
        Ok(Answer::CollectBelow(below))
    }

    /// Refuses waits that can never be granted: a wait for more units than the commitments leave would block all waiters
    /// behind it.
    fn refuse_impossible_waits(&mut self, name: &str) {
        let Some(resource) = self.table.resources.find(name) else {
            return;
        };
        let Some(state) = self.table.resources.state(resource) else {
            return;
        };
        let max = u64::from(self.table.capacity(resource)).saturating_sub(state.confirmed);
        let requested = |waiter: u32| {
            let resources = &self.table.waiter(waiter).resources;
            resources.iter().find(|wanted| wanted.resource == resource).map_or(0, |wanted| match wanted.access {
                Access::Units(units) => u64::from(units),
                Access::Slot => 1,
                Access::Exclusive | Access::Shared => 0,
            })
        };
        let waits = state.queue.iter().map(|position| (position.waiter, requested(position.waiter)));
        let hopeless: Vec<(u32, u64)> = waits.filter(|(_, got)| *got > max).collect();
        for (waiter, got) in hopeless {
            self.end_wait(waiter, Refusal::Exhausted { limit: Limit::Units, max, got });
        }
    }

    /// Marks all waiters of a resource as deadlock suspects, because its number of units changed.
    pub(super) fn suspect_waiters(&mut self, name: &str) {
        let Some(state) = self.table.resources.find(name).and_then(|at| self.table.resources.state(at)) else {
            return;
        };
        let actors: Vec<u32> = state.queue.iter().map(|position| self.table.waiter(position.waiter).actor).collect();
        actors.into_iter().for_each(|actor| self.deadlock_detector.suspect(actor));
    }
}
