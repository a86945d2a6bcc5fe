//! Pins: a reader keeps data from a collector that deletes old data.

use super::Grantor;
use crate::command::{Answer, LeaseRef};
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};

impl Grantor {
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
}
