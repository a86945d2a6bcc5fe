//! Capacity of a resource: sets it, and refuses the waits for more units than it leaves.

use super::Grantor;
use crate::command::Answer;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{Limit, Refusal};

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

    /// Refuses waits that can never be granted: a wait for more units than the commitments leave would block all waiters
    /// behind it.
    pub(super) fn refuse_impossible_waits(&mut self, name: &str) {
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
