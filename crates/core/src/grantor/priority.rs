//! No inversion: who is waited for is as urgent as the most urgent waiter, and falls back when that one leaves (P2);
//! where a charter allows it, a lower holder is asked to go, with notice and grace (P1).

use super::Grantor;
use super::table::Table;
use super::table::lease::NONE;
use super::table::party::Waiter;
use super::table::resource::Turn;
use crate::charter::Preemption;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Cause;

impl Grantor {
    /// A wait began: those it waits for inherit its priority, and it inherits from those who wait for its actor.
    pub(super) fn inherit_from(&mut self, waiter: u32) {
        self.raises.push_back(self.table.waiter(waiter).party);
        let holders = self.heirs_of(waiter, |_| false);
        self.raises.extend(holders);
        self.settle_priorities(limits::EDGES_PER_STEP);
    }

    /// Who inherits from a waiter: the waiting holders of what it asks for, where nobody else is as urgent by itself.
    /// Those who leave with it do not count.
    pub(super) fn heirs_of(&self, waiter: u32, leaves: impl Fn(&Waiter) -> bool) -> Vec<u32> {
        let wait = self.table.waiter(waiter);
        let asks = wait.asks.iter().map(|ask| ask.resource).filter(|resource| {
            let queue = self.table.resources.crowd(*resource).map(|crowd| &crowd.queue);
            let turns = queue.into_iter().flat_map(|queue| queue.iter());
            let mut as_urgent = turns.take_while(|turn| turn.priority() >= wait.effective);
            !as_urgent.any(|turn| {
                let other = self.table.waiter(turn.waiter);
                turn.waiter != waiter && other.priority >= wait.effective && !leaves(other)
            })
        });
        self.waiting_holders(&asks.collect::<Vec<_>>())
    }

    /// The holders of some resources that themselves wait: only their priorities change where they stand.
    fn waiting_holders(&self, resources: &[u32]) -> Vec<u32> {
        let mut parties = Vec::new();
        for resource in resources {
            for slot in self.table.resources.crowd(*resource).map_or(&[][..], |crowd| &crowd.leases) {
                let party = self.table.lease(*slot).party;
                if !self.table.parties[party].waits.is_empty() {
                    parties.push(party);
                }
            }
        }
        parties.sort_unstable();
        parties.dedup();
        parties
    }

    /// A wait is gone: who inherited from it is looked at again, and a pre-emption for its sake may be off.
    pub(super) fn wait_left(&mut self, holders: &[u32], resources: &[u32]) {
        self.falls.extend(holders);
        self.settle_priorities(limits::EDGES_PER_STEP);
        for resource in resources {
            if self.table.resources.at(*resource).is_none() {
                continue;
            }
            let rule = self.table.charter(self.table.resources.name(*resource)).map(|charter| charter.preemption);
            if !matches!(rule, Some(Preemption::LowerPriority { .. })) {
                continue;
            }
            let crowd = self.table.resources.crowd(*resource);
            let wanted = crowd.and_then(|crowd| crowd.queue.first()).map_or(0, |turn| turn.priority());
            let leases = crowd.map_or_else(Vec::new, |crowd| crowd.leases.clone());
            for slot in leases {
                if self.table.lease(slot).priority() >= wanted {
                    self.drop_preemption(slot);
                }
            }
        }
    }

    pub(super) fn has_priorities_to_settle(&self) -> bool {
        !self.falls.is_empty() || !self.raises.is_empty() || !self.table.due.let_go.is_empty()
    }

    /// Works off the parties whose inheritance may have changed, as many as one step may. First all that was inherited
    /// goes, then what is still there to inherit comes back: so nobody stays urgent only because those who wait for each
    /// other were.
    pub(super) fn settle_priorities(&mut self, mut budget: usize) {
        if !self.has_priorities_to_settle() {
            return;
        }
        for i in 0..self.table.due.let_go.len() {
            self.pass_no_more(self.table.due.let_go[i]);
        }
        self.falls.extend(self.table.due.let_go.drain(..));
        while budget > 0 && !self.falls.is_empty() {
            budget = budget.saturating_sub(1 + self.fall_back());
        }
        while budget > 0 {
            let Some(party) = self.raises.pop_front() else {
                return;
            };
            budget -= 1;
            if self.table.parties[party].waits.is_empty() || mutants::on(Mutant::NothingInherited) {
                continue;
            }
            let inherited = self.table.inherited(party);
            self.table.parties[party].inherited = inherited;
            for i in 0..self.table.parties[party].waits.len() {
                let waiter = self.table.parties[party].waits[i];
                let effective = self.table.waiter(waiter).priority.max(inherited);
                if effective != self.table.waiter(waiter).effective {
                    // It passes others, or others pass it.
                    self.cycles.suspect(party);
                    let resources = self.table.set_effective(waiter, effective);
                    budget = budget.saturating_sub(resources.len());
                    let holders = self.waiting_holders(&resources);
                    self.raises.extend(holders);
                }
            }
        }
    }

    /// Takes from one party what it inherited, and from those who inherited that from it. Returns how many waits moved.
    fn fall_back(&mut self) -> usize {
        let Some(party) = self.falls.pop_front() else {
            return 0;
        };
        self.raises.push_back(party);
        if std::mem::take(&mut self.table.parties[party].inherited) == 0 {
            return 0;
        }
        let mut moved = 0;
        for i in 0..self.table.parties[party].waits.len() {
            let waiter = self.table.parties[party].waits[i];
            let own = self.table.waiter(waiter).priority;
            if self.table.waiter(waiter).effective > own {
                let heirs = self.heirs_of(waiter, |_| false);
                self.falls.extend(heirs);
                moved += self.table.set_effective(waiter, own).len();
                self.cycles.suspect(party);
            }
        }
        moved
    }

    /// Asks lower-priority holders to go, as many as the waiter needs, the lowest and youngest first.
    pub(super) fn preempt_for(&mut self, waiter: u32) {
        let wait = self.table.waiter(waiter);
        let priority = wait.effective;
        for ask in wait.asks.clone() {
            let name = self.table.resources.name(ask.resource);
            let rule = self.table.charter(name).map(|charter| charter.preemption);
            let Some(Preemption::LowerPriority { grace_ms }) = rule else {
                continue;
            };
            for slot in self.victims(ask.resource, ask.access, priority) {
                let grace = if mutants::on(Mutant::NoGrace) { 0 } else { grace_ms };
                self.announce(slot, Cause::Priority, grace);
            }
        }
    }

    /// The leases whose end would make room, if all that are needed are of lower priority.
    fn victims(&self, resource: u32, access: Access, priority: u8) -> Vec<u32> {
        let Some(crowd) = self.table.resources.crowd(resource) else {
            return Vec::new();
        };
        let asked = units_of(access);
        let counted = crowd.leases.iter().copied().filter(|slot| !self.table.lease(*slot).is_apart());
        // One that takes all of it stands in everybody's way, and everybody in its; only readers do not mind each other.
        let (mut victims, mut counting): (Vec<u32>, Vec<u32>) = counted
            .filter(|slot| !(access == Access::Shared && self.table.lease(*slot).access() == Access::Shared))
            .partition(|slot| asked == 0 || units_of(self.table.lease(*slot).access()) == 0);
        let is_lower = |slot: &u32| {
            let lease = self.table.lease(*slot);
            lease.priority() < priority && self.table.inherited(lease.party) <= priority
        };
        if !victims.iter().all(is_lower) {
            return Vec::new();
        }
        counting.retain(is_lower);
        counting.sort_unstable_by_key(|slot| {
            let lease = self.table.lease(*slot);
            (lease.priority(), std::cmp::Reverse(lease.number()))
        });
        let taken = u64::from(crowd.used) + crowd.confirmed + asked;
        let mut missing = if asked == 0 { 0 } else { taken.saturating_sub(self.table.capacity(resource).into()) };
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

/// Units that an access counts in; none for one that takes all, or reads.
const fn units_of(access: Access) -> u64 {
    match access {
        Access::Exclusive | Access::Shared => 0,
        Access::Slot => 1,
        Access::Units(units) => units as u64,
    }
}

impl Table {
    /// The highest priority that waits for something a party holds.
    pub(super) fn inherited(&self, party: u32) -> u8 {
        let mut highest = 0;
        let mut slot = self.parties[party].leases;
        while slot != NONE {
            let lease = self.lease(slot);
            let first = self.resources.crowd(lease.resource).and_then(|crowd| crowd.queue.first());
            highest = highest.max(first.map_or(0, |turn| turn.priority()));
            slot = lease.next;
        }
        highest
    }

    /// Moves a waiter to where its priority now puts it, in all its queues.
    fn set_effective(&mut self, waiter: u32, effective: u8) -> Vec<u32> {
        let wait = self.waiters.at_mut(waiter).expect("a live waiter");
        let (before, order) = (wait.effective, wait.order);
        wait.effective = effective;
        let resources: Vec<u32> = wait.asks.iter().map(|ask| ask.resource).collect();
        for resource in &resources {
            let queue = &mut self.resources.crowd_mut(*resource).expect("a queue has a crowd").queue;
            queue.remove(Turn::new(before, order, waiter));
            queue.insert(Turn::new(effective, order, waiter));
            self.offer_later(*resource);
        }
        resources
    }
}
