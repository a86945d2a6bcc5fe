//! Priority inheritance and preemption.
//!
//! A holder inherits the highest priority that waits for it, and loses it when that waiter leaves (P2). Where a charter allows
//! it, a holder of lower priority is preempted, with notice and grace (P1).

use super::Grantor;
use super::table::GrantorTable;
use super::table::actors::Waiter;
use super::table::resource::QueuePosition;
use crate::charter::Preemption;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::DrainCause;

impl Grantor {
    /// Updates priorities after a wait began: the holders it waits for inherit, and it inherits from the waiters for its
    /// actor.
    pub(super) fn inherit_from(&mut self, waiter: u32) {
        self.priority_raises.push_back(self.table.waiter(waiter).actor);
        let holders = self.inheritors_of(waiter, |_| false);
        self.priority_raises.extend(holders);
        self.settle_priorities(limits::EDGES_PER_STEP);
    }

    /// Actors that inherit from a waiter: the waiting holders of its resources, unless another waiter has the same or a
    /// higher priority of its own. Waiters that leave together with it do not count.
    pub(super) fn inheritors_of(&self, waiter: u32, leaves: impl Fn(&Waiter) -> bool) -> Vec<u32> {
        let wait = self.table.waiter(waiter);
        let resources = wait.resources.iter().map(|wanted| wanted.resource).filter(|resource| {
            let queue = self.table.resources.state(*resource).map(|state| &state.queue);
            let positions = queue.into_iter().flat_map(|queue| queue.iter());
            let mut as_urgent = positions.take_while(|position| position.priority() >= wait.effective);
            !as_urgent.any(|position| {
                let other = self.table.waiter(position.waiter);
                position.waiter != waiter && other.priority >= wait.effective && !leaves(other)
            })
        });
        self.waiting_holders(&resources.collect::<Vec<_>>())
    }

    /// Holders of these resources that are waiting themselves; only their queue positions depend on inherited priority.
    fn waiting_holders(&self, resources: &[u32]) -> Vec<u32> {
        let mut actors = Vec::new();
        for resource in resources {
            for slot in self.table.resources.state(*resource).map_or(&[][..], |state| &state.leases) {
                let actor = self.table.lease(*slot).actor;
                if !self.table.actors[actor].waits.is_empty() {
                    actors.push(actor);
                }
            }
        }
        actors.sort_unstable();
        actors.dedup();
        actors
    }

    /// Updates priorities after a wait ended, and cancels preemptions that it no longer needs.
    pub(super) fn after_wait_left(&mut self, holders: &[u32], resources: &[u32]) {
        self.priority_drops.extend(holders);
        self.settle_priorities(limits::EDGES_PER_STEP);
        for resource in resources {
            if self.table.resources.at(*resource).is_none() {
                continue;
            }
            let rule = self.table.charter(self.table.resources.name(*resource)).map(|charter| charter.preemption);
            if !matches!(rule, Some(Preemption::LowerPriority { .. })) {
                continue;
            }
            let state = self.table.resources.state(*resource);
            let new_lease = state.and_then(|state| state.queue.first()).map_or(0, |position| position.priority());
            let leases = state.map_or_else(Vec::new, |state| state.leases.clone());
            for slot in leases {
                if self.table.lease(slot).priority() >= new_lease {
                    self.drop_preemption(slot);
                }
            }
        }
    }

    pub(super) fn has_priorities_to_settle(&self) -> bool {
        !self.priority_drops.is_empty()
            || !self.priority_raises.is_empty()
            || !self.table.due.released_actors.is_empty()
    }

    /// Recomputes inherited priorities within the budget. It first removes what was inherited and then inherits again, so
    /// that actors that wait for each other do not keep a priority alive that no one else has.
    pub(super) fn settle_priorities(&mut self, mut budget: usize) {
        if !self.has_priorities_to_settle() {
            return;
        }
        for i in 0..self.table.due.released_actors.len() {
            self.stop_passing(self.table.due.released_actors[i]);
        }
        self.priority_drops.extend(self.table.due.released_actors.drain(..));
        while budget > 0 && !self.priority_drops.is_empty() {
            budget = budget.saturating_sub(1 + self.drop_inherited());
        }
        while budget > 0 {
            let Some(actor) = self.priority_raises.pop_front() else {
                return;
            };
            budget -= 1;
            if self.table.actors[actor].waits.is_empty() || mutants::on(Mutant::PriorityNotInherited) {
                continue;
            }
            let inherited = self.table.inherited(actor);
            self.table.actors[actor].inherited = inherited;
            for i in 0..self.table.actors[actor].waits.len() {
                let waiter = self.table.actors[actor].waits[i];
                let effective = self.table.waiter(waiter).priority.max(inherited);
                if effective != self.table.waiter(waiter).effective {
                    // Its queue position changes.
                    self.deadlock_detector.suspect(actor);
                    let resources = self.table.set_effective(waiter, effective);
                    budget = budget.saturating_sub(resources.len());
                    let holders = self.waiting_holders(&resources);
                    self.priority_raises.extend(holders);
                }
            }
        }
    }

    /// Removes the inherited priority of one actor, and queues the actors that inherited it further. Returns the number of
    /// moved waits.
    fn drop_inherited(&mut self) -> usize {
        let Some(actor) = self.priority_drops.pop_front() else {
            return 0;
        };
        self.priority_raises.push_back(actor);
        if std::mem::take(&mut self.table.actors[actor].inherited) == 0 {
            return 0;
        }
        let mut moved = 0;
        for i in 0..self.table.actors[actor].waits.len() {
            let waiter = self.table.actors[actor].waits[i];
            let own = self.table.waiter(waiter).priority;
            if self.table.waiter(waiter).effective > own {
                let heirs = self.inheritors_of(waiter, |_| false);
                self.priority_drops.extend(heirs);
                moved += self.table.set_effective(waiter, own).len();
                self.deadlock_detector.suspect(actor);
            }
        }
        moved
    }

    /// Preempts as many lower-priority holders as the waiter needs, the lowest and youngest first.
    pub(super) fn preempt_for(&mut self, waiter: u32) {
        let wait = self.table.waiter(waiter);
        let priority = wait.effective;
        for wanted in wait.resources.clone() {
            let name = self.table.resources.name(wanted.resource);
            let rule = self.table.charter(name).map(|charter| charter.preemption);
            let Some(Preemption::LowerPriority { grace_ms }) = rule else {
                continue;
            };
            for slot in self.victims(wanted.resource, wanted.access, priority) {
                let grace = if mutants::on(Mutant::GraceIgnored) { 0 } else { grace_ms };
                self.announce(slot, DrainCause::Priority, grace);
            }
        }
    }

    /// The leases to preempt, if lower-priority leases alone free enough.
    fn victims(&self, resource: u32, access: Access, priority: u8) -> Vec<u32> {
        let Some(state) = self.table.resources.state(resource) else {
            return Vec::new();
        };
        let requested = units_of(access);
        let counted = state.leases.iter().copied().filter(|slot| !self.table.lease(*slot).is_predecessor());
        // An exclusive lease conflicts with every other lease; only readers do not conflict with each other.
        let (mut victims, mut counting): (Vec<u32>, Vec<u32>) = counted
            .filter(|slot| !(access == Access::Shared && self.table.lease(*slot).access() == Access::Shared))
            .partition(|slot| requested == 0 || units_of(self.table.lease(*slot).access()) == 0);
        let is_lower = |slot: &u32| {
            let lease = self.table.lease(*slot);
            lease.priority() < priority && self.table.inherited(lease.actor) <= priority
        };
        if !victims.iter().all(is_lower) {
            return Vec::new();
        }
        counting.retain(is_lower);
        counting.sort_unstable_by_key(|slot| {
            let lease = self.table.lease(*slot);
            (lease.priority(), std::cmp::Reverse(lease.number()))
        });
        let taken = u64::from(state.used) + state.confirmed + requested;
        let mut missing = if requested == 0 { 0 } else { taken.saturating_sub(self.table.capacity(resource).into()) };
        for slot in counting {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(units_of(self.table.lease(slot).access()));
            victims.push(slot);
        }
        if missing == 0 { victims } else { Vec::new() }
    }
}

/// Units that an access occupies; zero for exclusive and shared access.
const fn units_of(access: Access) -> u64 {
    match access {
        Access::Exclusive | Access::Shared => 0,
        Access::Slot => 1,
        Access::Units(units) => units as u64,
    }
}

impl GrantorTable {
    /// The highest priority that waits for a resource of this actor.
    pub(super) fn inherited(&self, actor: u32) -> u8 {
        self.actors[actor].waited_for.highest()
    }

    /// Moves a waiter to the position of its new priority in all its queues.
    fn set_effective(&mut self, waiter: u32, effective: u8) -> Vec<u32> {
        let wait = self.waiters.at_mut(waiter).expect("a live waiter");
        let (before, order) = (wait.effective, wait.order);
        wait.effective = effective;
        let resources: Vec<u32> = wait.resources.iter().map(|wanted| wanted.resource).collect();
        for resource in &resources {
            let first = self.resources.first_priority(*resource);
            let queue = &mut self.resources.state_mut(*resource).expect("a queue belongs to a resource state").queue;
            queue.remove(QueuePosition::new(before, order, waiter));
            queue.insert(QueuePosition::new(effective, order, waiter));
            self.count_first_priority(*resource, first);
            self.schedule_offer(*resource);
        }
        resources
    }
}
