//! Links between leases, resources, actors, sessions and waiters: the primitive operations of `apply`.

use super::actors::{Actor, Waiter};
use super::lease::{LeaseExtra, NONE, StoredLease};
use super::resource::QueuePosition;
use super::{GrantorTable, LeaseEnd, lease_deadline};
use crate::access::IdentityUsage;
use crate::ids::LeaseId;
use crate::lease::{Access, EndReason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::time::GrantorTime;

impl GrantorTable {
    /// Links a lease to its resource and its actor.
    pub(super) fn link_lease(&mut self, slot: u32, resource: u32, actor: u32) {
        let (access, own_slot) = (self.lease(slot).access(), self.lease(slot).slot());
        let alone = access == Access::Exclusive && self.resources.is_vacant(resource);
        let index_in_resource = if alone {
            self.resources.set_sole(resource, slot);
            0
        } else {
            self.resources.ensure_state(resource).add_lease(slot, access, own_slot)
        };
        let (first, owner) = (self.actors[actor].leases, self.actors[actor].owner);
        self.owners.usage_mut(owner).add(IdentityUsage::of_leases(1, 0));
        let lease = self.leases.at_mut(slot).expect("just occupied");
        lease.owner = owner;
        lease.resource = resource;
        lease.actor = actor;
        lease.index_in_resource = index_in_resource;
        lease.next = first;
        let number = lease.number().get();
        if first != NONE {
            self.leases.at_mut(first).expect("an actor's lease").prev = slot;
        }
        let actor = &mut self.actors[actor];
        actor.leases = slot;
        actor.held += 1;
        if let Some(priority) = self.resources.first_priority(resource) {
            actor.waited_for.add(priority);
        }
        if actor.session != NONE {
            let session = self.sessions.at_mut(actor.session).expect("an actor's session");
            session.leases += 1;
            session.digest ^= number;
        }
    }

    /// Ends a lease: removes it from its resource, its actor and the timers, and leaves a tombstone.
    pub(super) fn unlink_lease(&mut self, slot: u32, reason: EndReason, hold: bool) {
        let (reuse, lease) = self.leases.at(slot).map(|(reuse, lease)| (reuse, *lease)).expect("a live lease");
        self.collect_hold(LeaseId { slot, reuse }, &lease, reason);
        self.traces.lease_ended(slot);
        let successor = if lease.has_extra() { self.drop_extra(slot, &lease) } else { None };
        self.store_end(&lease, reason);
        if self.due.listening {
            let session = match self.actors[lease.actor].session {
                NONE => None,
                session => Some((session, self.sessions.at(session).expect("an actor's session").0)),
            };
            let id = LeaseId { slot, reuse };
            self.due.ended.push(LeaseEnd { lease: id, number: lease.number(), reason, session, successor });
        }
        self.unlink_resource(slot, &lease, hold);
        self.unlink_actor(&lease);
        self.owners.usage_mut(lease.owner).remove(IdentityUsage::of_leases(1, 0));
        self.due.leases.disarm(slot);
        self.leases.vacate(slot).set_tombstone(reason);
    }

    fn unlink_resource(&mut self, slot: u32, lease: &StoredLease, hold: bool) {
        if self.resources.sole(lease.resource) == slot {
            self.resources.set_sole(lease.resource, NONE);
            if !hold {
                // A lone lease has no waiters.
                self.resources.vacate_if_empty(lease.resource);
                return;
            }
        } else {
            let state =
                self.resources.state_mut(lease.resource).expect("a lease that is not alone has a resource state");
            if !lease.is_predecessor() {
                state.release_access(lease.access(), lease.slot());
            }
            if let Some(first) = state.queue.first() {
                self.actors[lease.actor].waited_for.remove(first.priority());
            }
            state.leases.swap_remove(lease.index_in_resource as usize);
            if let Some(moved) = state.leases.get(lease.index_in_resource as usize) {
                self.leases.at_mut(*moved).expect("a lease of the resource").index_in_resource =
                    lease.index_in_resource;
            }
        }
        if hold {
            self.resources.ensure_state(lease.resource).for_operator = true;
        }
        self.schedule_offer(lease.resource);
        self.resources.vacate_if_empty(lease.resource);
    }

    fn unlink_actor(&mut self, lease: &StoredLease) {
        if lease.prev != NONE {
            self.leases.at_mut(lease.prev).expect("a neighbor").next = lease.next;
        }
        if lease.next != NONE {
            self.leases.at_mut(lease.next).expect("a neighbor").prev = lease.prev;
        }
        let actor = &mut self.actors[lease.actor];
        if lease.prev == NONE {
            actor.leases = lease.next;
        }
        actor.held -= 1;
        if self.due.listening && !actor.waits.is_empty() {
            self.due.released_actors.push(lease.actor);
        }
        if actor.session != NONE {
            let session = self.sessions.at_mut(actor.session).expect("an actor's session");
            session.leases -= 1;
            session.digest ^= lease.number().get();
        }
        self.remove_actor_if_idle(lease.actor);
    }

    /// Removes the extra fields of a lease. Returns its successor in an overlap handoff.
    fn drop_extra(&mut self, slot: u32, lease: &StoredLease) -> Option<u32> {
        let extra = self.extras.remove(&slot)?;
        self.owners
            .usage_mut(lease.owner)
            .remove(IdentityUsage { metadata_bytes: extra.metadata.len() as u64, ..Default::default() });
        if let Some(at) = extra.pinned
            && let Some(state) = self.resources.state_mut(lease.resource)
        {
            state.pins.remove(&(at, slot));
        }
        if let Some(successor) = extra.successor {
            self.change_extra(successor, |extra| extra.predecessor = None);
        }
        if let Some(predecessor) = extra.predecessor {
            self.change_extra(predecessor, |extra| extra.successor = None);
        }
        extra.successor
    }

    /// Counts the metadata of a new lease at its owner.
    pub(super) fn count_metadata(&mut self, slot: u32) {
        let metadata_bytes = self.extra(slot).map_or(0, |extra| extra.metadata.len() as u64);
        let owner = self.lease(slot).owner;
        self.owners.usage_mut(owner).add(IdentityUsage { metadata_bytes, ..Default::default() });
    }

    /// Changes the extra fields of a lease, and removes them when they are all empty.
    pub(super) fn change_extra<R>(&mut self, slot: u32, change: impl FnOnce(&mut LeaseExtra) -> R) -> R {
        let extra = self.extras.entry(slot).or_default();
        let result = change(extra);
        let keep = !extra.is_empty();
        if !keep {
            self.extras.remove(&slot);
        }
        self.leases.at_mut(slot).expect("a live lease").set_extra(keep);
        result
    }

    /// Arms the timer of a lease with its earliest deadline.
    pub(super) fn arm_lease(&mut self, slot: u32) {
        let (at, _) = lease_deadline(&self.clock, &self.extras, self.lease(slot), slot, self.time);
        if at == GrantorTime(u64::MAX) {
            self.due.leases.disarm(slot);
        } else {
            self.due.leases.arm(slot, at);
        }
    }

    pub(super) fn arm_session(&mut self, slot: u32) {
        let at = self.session_deadline(slot, self.time);
        self.due.sessions.arm(slot, at);
    }

    /// The actor with this name in a session, added if it is new.
    pub(super) fn enter_actor(&mut self, session: u32, holder: &str) -> u32 {
        let holder = self.actors.intern_holder(holder, &mut self.resources.names);
        let entry = self.sessions.at_mut(session).expect("a live session");
        if let Some(known) = self.actors.find(session, entry.owner, holder) {
            return known;
        }
        let list = &mut entry.actors;
        let actor = self.actors.enter(session, entry.owner, holder, list.len() as u32);
        list.push(actor);
        actor
    }

    /// The actor with this name of an identity without a session, added if it is new.
    pub(super) fn enter_sessionless_actor(&mut self, owner: u32, holder: &str) -> u32 {
        let holder = self.actors.intern_holder(holder, &mut self.resources.names);
        self.actors.enter(NONE, owner, holder, NONE)
    }

    pub(super) fn remove_actor_if_idle(&mut self, at: u32) {
        let Actor { session, held, ref waits, .. } = self.actors[at];
        if held > 0 || !waits.is_empty() {
            return;
        }
        let (in_session, holder) = self.actors.leave(at);
        if session != NONE {
            let list = &mut self.sessions.at_mut(session).expect("an actor's session").actors;
            list.swap_remove(in_session as usize);
            if let Some(moved) = list.get(in_session as usize).copied() {
                self.actors.moved_in_session(moved, in_session);
            }
        }
        self.actors.remove_holder_if_unused(holder, &mut self.resources.names);
    }

    /// Adds a waiter to the queues of all its resources.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Waiter { effective, order, actor, .. } = *self.waiter(slot);
        for i in 0..self.waiter(slot).resources.len() {
            let resource = self.waiter(slot).resources[i].resource;
            let before = self.resources.first_priority(resource);
            self.resources.ensure_state(resource).queue.insert(QueuePosition::new(effective, order, slot));
            self.resources.contended.insert(resource);
            self.count_first_priority(resource, before);
        }
        let counted = IdentityUsage::of_wait(self.waiter(slot).resources.len(), self.waiter(slot).metadata.len());
        self.owners.usage_mut(self.actors[actor].owner).add(counted);
        self.actors[actor].waits.push(slot);
        let session = self.actors[actor].session;
        self.sessions.at_mut(session).expect("a waiter's session").waits += 1;
        self.due.waiters.arm(slot, self.waiter(slot).until);
    }

    /// Removes a waiter from all queues and deletes it.
    pub(super) fn dequeue(&mut self, slot: u32) {
        let Waiter { effective, order, actor, .. } = *self.waiter(slot);
        let passes = u32::from(self.waiter(slot).may_pass);
        let resources = std::mem::take(&mut self.waiters.at_mut(slot).expect("a live waiter").resources);
        let counted = IdentityUsage::of_wait(resources.len(), self.waiter(slot).metadata.len());
        self.owners.usage_mut(self.actors[actor].owner).remove(counted);
        self.due.waiters.disarm(slot);
        self.traces.wait_ended(slot);
        self.waiters.vacate(slot);
        for wanted in &resources {
            let before = self.resources.first_priority(wanted.resource);
            let state = self.resources.state_mut(wanted.resource).expect("a queue belongs to a resource state");
            state.queue.remove(QueuePosition::new(effective, order, slot));
            state.passers -= passes;
            if state.queue.is_empty() {
                self.resources.contended.remove(&wanted.resource);
            }
            self.count_first_priority(wanted.resource, before);
            self.schedule_offer(wanted.resource);
        }
        for wanted in &resources {
            self.resources.vacate_if_empty(wanted.resource);
        }
        self.actors[actor].waits.retain(|wait| *wait != slot);
        let session = self.actors[actor].session;
        self.sessions.at_mut(session).expect("a waiter's session").waits -= 1;
        self.remove_actor_if_idle(actor);
    }

    /// Counts the priority of the first waiter for a resource at its holders, after its queue changed.
    pub fn count_first_priority(&mut self, resource: u32, before: Option<u8>) {
        let after = self.resources.first_priority(resource);
        let Some(state) = self.resources.state(resource).filter(|_| before != after) else { return };
        for slot in &state.leases {
            let (_, lease) = self.leases.at(*slot).expect("a lease of the resource");
            let counts = &mut self.actors[lease.actor].waited_for;
            if let Some(before) = before {
                counts.remove(before);
            }
            if let Some(after) = after {
                counts.add(after);
            }
        }
    }

    /// Schedules an offer of a resource to its waiters.
    pub fn schedule_offer(&mut self, resource: u32) {
        if let Some(state) = self.resources.state_mut(resource)
            && !state.queue.is_empty()
            && !state.to_offer
            && !mutants::on(Mutant::WakeupLost)
        {
            state.to_offer = true;
            self.due.offers.push_back(resource);
        }
    }

    /// Clears scheduled offers, because replay does not decide.
    pub fn forget_offers(&mut self) {
        while let Some(resource) = self.due.offers.pop_front() {
            if let Some(state) = self.resources.state_mut(resource) {
                state.to_offer = false;
            }
        }
    }

    fn store_end(&mut self, lease: &StoredLease, reason: EndReason) {
        let holder = self.actors[lease.actor].holder;
        let held_ms = self.time.since(lease.granted());
        self.totals.count(reason, held_ms);
        let holder = self.actors.holder_mut(holder);
        match &mut holder.usage {
            Some(usage) => usage.count(reason, held_ms),
            None if self.counted_holders < limits::USAGE_HOLDERS => {
                self.counted_holders += 1;
                holder.usage.insert(Box::default()).count(reason, held_ms);
            }
            None => self.others.count(reason, held_ms),
        }
        let name = self.resources.name_bytes(lease.resource);
        let holder = self.resources.names.bytes(holder.name);
        self.ended_leases.push(name, holder, lease.number().get(), lease.granted(), self.time, reason);
    }

    /// All leases of a session in slot order, which is the same in service and in replay.
    pub fn session_leases(&self, session: u32) -> Vec<u32> {
        let mut leases = Vec::with_capacity(self.session(session).leases as usize);
        for actor in &self.session(session).actors {
            let mut slot = self.actors[*actor].leases;
            while slot != NONE {
                leases.push(slot);
                slot = self.lease(slot).next;
            }
        }
        leases.sort_unstable();
        leases
    }

    /// What a live session counts as among the limits of its owner.
    pub fn session_usage(&self, slot: u32) -> IdentityUsage {
        let session = self.session(slot);
        let holder = self.resources.names.get(self.actors.holder(session.holder).name);
        IdentityUsage::of_session(session.waits_only, holder)
    }

    /// The live session that was opened for an idempotency key.
    pub fn key_session(&self, key: &[u8; 32]) -> Option<u32> {
        self.key_sessions.get(key).copied()
    }

    /// Makes a session that carries only waits findable by its digest, which may be that of an idempotency key.
    pub fn index_key_session(&mut self, slot: u32) {
        let session = self.session(slot);
        if session.waits_only {
            let secret = session.secret;
            // Of two with one digest, which differ by their owners, the first keeps its place.
            self.key_sessions.entry(secret).or_insert(slot);
        }
    }

    /// Forgets the digest of a session that ends.
    pub fn forget_key_session(&mut self, slot: u32) {
        let session = self.session(slot);
        let (secret, waits_only) = (session.secret, session.waits_only);
        if waits_only && self.key_sessions.get(&secret) == Some(&slot) {
            self.key_sessions.remove(&secret);
        }
    }

    /// All waits of a session in slot order.
    pub fn session_waits(&self, session: u32) -> Vec<u32> {
        let actors = &self.session(session).actors;
        let mut waits: Vec<u32> = actors.iter().flat_map(|actor| self.actors[*actor].waits.iter().copied()).collect();
        waits.sort_unstable();
        waits
    }

    /// The lease with this id, if it is live.
    pub fn live(&self, id: LeaseId) -> Option<&StoredLease> {
        self.leases.live(id.slot, id.reuse)
    }
}
