//! Units: capacity, holds that become commitments, vetoes, and pins that a collector must respect.

use super::Grantor;
use crate::charter::AtExpiry;
use crate::command::{Answer, Held};
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{Limit, Refusal, What};

impl Grantor {
    /// C3: below use it takes nothing away; it only lets nobody in.
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
        if mutants::on(Mutant::ShrinkTakesAway) {
            let leases = self.on_resource(name);
            for slot in leases.into_iter().skip(units as usize) {
                self.end_lease(slot, crate::lease::Reason::Policy, "");
            }
        }
        self.refuse_hopeless(name);
        self.suspect_waiters(name);
        Ok(Answer::Done)
    }

    /// A hold becomes a commitment: its units stay taken, the lease is over (C2, C4).
    pub(super) fn confirm_hold(&mut self, held: &Held<'_>) -> Result<Answer, Refusal> {
        let slot =
            if mutants::on(Mutant::ExpiredHoldConfirmed) { self.hold_even_if_over(held)? } else { self.hold(held)?.0 };
        let number = self.table.lease(slot).number();
        let (mut name, other) = std::mem::take(&mut self.scratch);
        name.clear();
        name.push_str(self.table.resources.name(self.table.lease(slot).resource));
        self.record(&Record::HoldConfirmed { lease: slot, number });
        // What is committed is never freed: those who wait for it may now wait for nothing.
        self.refuse_hopeless(&name);
        self.suspect_waiters(&name);
        self.scratch = (name, other);
        Ok(Answer::Done)
    }

    pub(super) fn resize_hold(&mut self, held: &Held<'_>, units: u32) -> Result<Answer, Refusal> {
        let (slot, before) = self.hold(held)?;
        if units == 0 {
            return Err(Refusal::Invalid { field: "units", reason: "at least 1; release the hold to give all back" });
        }
        let resource = self.table.lease(slot).resource;
        let capacity = u64::from(self.table.capacity(resource));
        let crowd = self.table.resources.crowd(resource).expect("a hold is in a crowd");
        let got = u64::from(crowd.used - before) + u64::from(units) + crowd.confirmed;
        if units > before && got > capacity && !mutants::on(Mutant::ResizeOversells) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max: capacity, got });
        }
        self.record(&Record::HoldResized { lease: slot, units });
        if units > before {
            self.hold_grew(self.table.lease(slot).party);
        }
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// An obligation in flight keeps the hold over its expiry, for a time that the charter bounds.
    pub(super) fn veto(&mut self, held: &Held<'_>, for_ms: u64) -> Result<Answer, Refusal> {
        let (slot, _) = self.hold(held)?;
        let now = self.now();
        let lease = self.table.lease(slot);
        let term = lease.term.deadline(now, &self.table.clock);
        let name = self.table.resources.name(lease.resource);
        let most = match self.table.charter(name).map(|charter| charter.at_expiry) {
            None => u64::from(lease.term.ttl),
            Some(AtExpiry::Veto { max_ms }) => max_ms,
            Some(AtExpiry::Free) => {
                return Err(Refusal::Invalid { field: "veto", reason: "the charter frees this hold at expiry" });
            }
        };
        if for_ms == 0 || lease.rides() {
            return Err(Refusal::Invalid { field: "veto", reason: "at least 1 ms, and the hold has a ttl of its own" });
        }
        let until = now.plus(for_ms).min(term.plus(most));
        self.record(&Record::Vetoed { lease: slot, until });
        Ok(Answer::Current(self.current_now(slot)))
    }

    fn hold(&mut self, held: &Held<'_>) -> Result<(u32, u32), Refusal> {
        let slot = self.current(held)?;
        match self.table.lease(slot).access() {
            Access::Units(units) => Ok((slot, units)),
            _ => Err(Refusal::Conflict(What::Hold)),
        }
    }

    fn hold_even_if_over(&mut self, held: &Held<'_>) -> Result<u32, Refusal> {
        match held.lease {
            crate::command::Which::Id(id) if self.table.live(id).is_some() => Ok(id.slot),
            _ => self.hold(held).map(|(slot, _)| slot),
        }
    }

    /// A reader pins a position. What a collector may have deleted cannot be pinned any more.
    pub(super) fn pin(&mut self, held: &Held<'_>, at: u64) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        let lease = self.table.lease(slot);
        if lease.access() != Access::Shared {
            return Err(Refusal::Invalid { field: "access", reason: "a pin belongs to a shared lease" });
        }
        let crowd = self.table.resources.crowd(lease.resource).expect("a reader is in a crowd");
        if at < crowd.floor && !mutants::on(Mutant::PinBelowFloor) {
            return Err(Refusal::Conflict(What::Floor));
        }
        let new = self.table.extra(slot).is_none_or(|extra| extra.pinned.is_none());
        if new && crowd.pins.len() >= limits::PINS {
            let max = limits::PINS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Pins, max, got: max + 1 });
        }
        self.record(&Record::Pinned { lease: slot, at });
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// How far a collector may delete: below what it asks for and below every live pin. The floor is on record first, so
    /// that no reader pins what is being deleted.
    pub(super) fn collect(&mut self, resource: &str, below: u64) -> Result<Answer, Refusal> {
        let name = Name::parse(resource)?.as_str();
        let crowd = self.table.resources.find(name).and_then(|at| self.table.resources.crowd(at));
        let lowest = crowd.and_then(|crowd| crowd.pins.first()).map_or(u64::MAX, |(at, _)| *at);
        let floor = crowd.map_or(0, |crowd| crowd.floor);
        let below = if mutants::on(Mutant::PinIgnored) { below } else { below.min(lowest) }.max(floor);
        if below > floor {
            if crowd.is_none() && self.table.resources.len() >= limits::LEASES {
                let max = limits::LEASES as u64;
                return Err(Refusal::Exhausted { limit: Limit::Leases, max, got: max + 1 });
            }
            self.record(&Record::Floor { resource: name, at: below });
        }
        Ok(Answer::CollectBelow(below))
    }

    /// What can never be had is told at once: a wait for more units than are left beside the commitments would hold up
    /// everybody behind it.
    fn refuse_hopeless(&mut self, name: &str) {
        let Some(resource) = self.table.resources.find(name) else {
            return;
        };
        let Some(crowd) = self.table.resources.crowd(resource) else {
            return;
        };
        let max = u64::from(self.table.capacity(resource)).saturating_sub(crowd.confirmed);
        let asked = |waiter: u32| {
            let asks = &self.table.waiter(waiter).asks;
            asks.iter().find(|ask| ask.resource == resource).map_or(0, |ask| match ask.access {
                Access::Units(units) => u64::from(units),
                Access::Slot => 1,
                Access::Exclusive | Access::Shared => 0,
            })
        };
        let waits = crowd.queue.iter().map(|turn| (turn.waiter, asked(turn.waiter)));
        let hopeless: Vec<(u32, u64)> = waits.filter(|(_, got)| *got > max).collect();
        for (waiter, got) in hopeless {
            self.end_wait(waiter, Refusal::Exhausted { limit: Limit::Units, max, got });
        }
    }

    /// Fewer units can come free than before, or more: look at everybody who waits for them.
    pub(super) fn suspect_waiters(&mut self, name: &str) {
        let Some(crowd) = self.table.resources.find(name).and_then(|at| self.table.resources.crowd(at)) else {
            return;
        };
        let parties: Vec<u32> = crowd.queue.iter().map(|turn| self.table.waiter(turn.waiter).party).collect();
        parties.into_iter().for_each(|party| self.cycles.suspect(party));
    }
}
