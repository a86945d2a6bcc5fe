//! How leases, resources, parties and sessions hang together: the few moves that `apply` is made of.

use super::lease::{Extra, Lease, NONE};
use super::party::{Party, Waiter};
use super::resource::Turn;
use super::{EndedNow, Table, lease_deadline};
use crate::ids::LeaseId;
use crate::lease::{Access, Reason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::time::Millis;

impl Table {
    /// Puts a lease on a resource and in a party's hands.
    pub(super) fn link_lease(&mut self, slot: u32, resource: u32, party: u32) {
        let (access, own_slot) = (self.lease(slot).access(), self.lease(slot).slot());
        let alone = access == Access::Exclusive && self.resources.is_bare(resource);
        let place = if alone {
            self.resources.set_sole(resource, slot);
            0
        } else {
            self.resources.gather(resource).take(slot, access, own_slot)
        };
        let first = self.parties[party].leases;
        let lease = self.leases.at_mut(slot).expect("just occupied");
        lease.resource = resource;
        lease.party = party;
        lease.place = place;
        lease.next = first;
        let number = lease.number().get();
        if first != NONE {
            self.leases.at_mut(first).expect("a party's lease").prev = slot;
        }
        let party = &mut self.parties[party];
        party.leases = slot;
        party.held += 1;
        if party.session != NONE {
            let session = self.sessions.at_mut(party.session).expect("a party's session");
            session.leases += 1;
            session.digest ^= number;
        }
    }

    /// Ends a lease: out of its resource, its party and the timers; its place tells why from now on.
    pub(super) fn unlink_lease(&mut self, slot: u32, reason: Reason, hold: bool) {
        let (reuse, lease) = self.leases.at(slot).map(|(reuse, lease)| (reuse, *lease)).expect("a live lease");
        let successor = if lease.has_extra() { self.drop_extra(slot, &lease) } else { None };
        self.remember_end(&lease, reason);
        if self.due.listening {
            let session = match self.parties[lease.party].session {
                NONE => None,
                session => Some((session, self.sessions.at(session).expect("a party's session").0)),
            };
            let id = LeaseId { slot, reuse };
            self.due.ended.push(EndedNow { lease: id, number: lease.number(), reason, session, successor });
        }
        self.unlink_resource(slot, &lease, hold);
        self.unlink_party(&lease);
        self.due.leases.disarm(slot);
        self.leases.vacate(slot).bury(reason);
    }

    fn unlink_resource(&mut self, slot: u32, lease: &Lease, hold: bool) {
        if self.resources.sole(lease.resource) == slot {
            self.resources.set_sole(lease.resource, NONE);
            if !hold {
                // Who stands alone has nobody waiting for it.
                self.resources.leave_if_empty(lease.resource);
                return;
            }
        } else {
            let crowd = self.resources.crowd_mut(lease.resource).expect("a lease that is not alone is in a crowd");
            if !lease.is_apart() {
                crowd.give_back(lease.access(), lease.slot());
            }
            crowd.leases.swap_remove(lease.place as usize);
            if let Some(moved) = crowd.leases.get(lease.place as usize) {
                self.leases.at_mut(*moved).expect("a lease in a crowd").place = lease.place;
            }
        }
        if hold {
            self.resources.gather(lease.resource).for_operator = true;
        }
        self.offer_later(lease.resource);
        self.resources.leave_if_empty(lease.resource);
    }

    fn unlink_party(&mut self, lease: &Lease) {
        if lease.prev != NONE {
            self.leases.at_mut(lease.prev).expect("a neighbour").next = lease.next;
        }
        if lease.next != NONE {
            self.leases.at_mut(lease.next).expect("a neighbour").prev = lease.prev;
        }
        let party = &mut self.parties[lease.party];
        if lease.prev == NONE {
            party.leases = lease.next;
        }
        party.held -= 1;
        if self.due.listening && !party.waits.is_empty() {
            self.due.let_go.push(lease.party);
        }
        if party.session != NONE {
            let session = self.sessions.at_mut(party.session).expect("a party's session");
            session.leases -= 1;
            session.digest ^= lease.number().get();
        }
        self.leave_party_if_idle(lease.party);
    }

    /// Takes away what stood beside a lease. Returns the lease that followed it by overlap.
    fn drop_extra(&mut self, slot: u32, lease: &Lease) -> Option<u32> {
        let extra = self.extras.remove(&slot)?;
        if let Some(at) = extra.pinned
            && let Some(crowd) = self.resources.crowd_mut(lease.resource)
        {
            crowd.pins.remove(&(at, slot));
        }
        if let Some(successor) = extra.successor {
            self.change_extra(successor, |extra| extra.predecessor = None);
        }
        if let Some(predecessor) = extra.predecessor {
            self.change_extra(predecessor, |extra| extra.successor = None);
        }
        extra.successor
    }

    /// Changes what stands beside a lease, and keeps it only while it says something.
    pub(super) fn change_extra<R>(&mut self, slot: u32, change: impl FnOnce(&mut Extra) -> R) -> R {
        let extra = self.extras.entry(slot).or_default();
        let result = change(extra);
        let keep = !extra.is_empty();
        if !keep {
            self.extras.remove(&slot);
        }
        self.leases.at_mut(slot).expect("a live lease").set_extra(keep);
        result
    }

    /// Sets the lease's timer by its earliest deadline.
    pub(super) fn arm_lease(&mut self, slot: u32) {
        let (at, _) = lease_deadline(&self.clock, &self.extras, self.lease(slot), slot, self.time);
        if at == Millis(u64::MAX) {
            self.due.leases.disarm(slot);
        } else {
            self.due.leases.arm(slot, at);
        }
    }

    pub(super) fn arm_session(&mut self, slot: u32) {
        let at = self.session_deadline(slot, self.time);
        self.due.sessions.arm(slot, at);
    }

    /// The actor of a session, or of none, by name.
    pub(super) fn enter_party(&mut self, session: u32, holder: &str) -> u32 {
        let holder = self.parties.enter_holder(holder, &mut self.resources.names);
        if let Some(known) = self.parties.find(session, holder) {
            return known;
        }
        if session == NONE {
            return self.parties.enter(session, holder, NONE);
        }
        let list = &mut self.sessions.at_mut(session).expect("a live session").parties;
        let party = self.parties.enter(session, holder, list.len() as u32);
        list.push(party);
        party
    }

    pub(super) fn leave_party_if_idle(&mut self, at: u32) {
        let Party { session, held, ref waits, .. } = self.parties[at];
        if held > 0 || !waits.is_empty() {
            return;
        }
        let (in_session, holder) = self.parties.leave(at);
        if session != NONE {
            let list = &mut self.sessions.at_mut(session).expect("a party's session").parties;
            list.swap_remove(in_session as usize);
            if let Some(moved) = list.get(in_session as usize).copied() {
                self.parties.moved_in_session(moved, in_session);
            }
        }
        self.parties.leave_holder_if_empty(holder, &mut self.resources.names);
    }

    /// Puts a waiter in the queues of all it asks for.
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Waiter { effective, order, party, .. } = *self.waiter(slot);
        for i in 0..self.waiter(slot).asks.len() {
            let resource = self.waiter(slot).asks[i].resource;
            self.resources.gather(resource).queue.insert(Turn::new(effective, order, slot));
        }
        self.parties[party].waits.push(slot);
        let session = self.parties[party].session;
        self.sessions.at_mut(session).expect("a waiter's session").waits += 1;
        self.due.waiters.arm(slot, self.waiter(slot).until);
    }

    /// Takes a waiter out of all queues and forgets it.
    pub(super) fn dequeue(&mut self, slot: u32) {
        let Waiter { effective, order, party, .. } = *self.waiter(slot);
        let passes = u32::from(self.waiter(slot).may_pass);
        let asks = std::mem::take(&mut self.waiters.at_mut(slot).expect("a live waiter").asks);
        self.due.waiters.disarm(slot);
        self.waiters.vacate(slot);
        for ask in &asks {
            let crowd = self.resources.crowd_mut(ask.resource).expect("a queue has a crowd");
            crowd.queue.remove(Turn::new(effective, order, slot));
            crowd.passers -= passes;
            self.offer_later(ask.resource);
        }
        for ask in &asks {
            self.resources.leave_if_empty(ask.resource);
        }
        self.parties[party].waits.retain(|wait| *wait != slot);
        let session = self.parties[party].session;
        self.sessions.at_mut(session).expect("a waiter's session").waits -= 1;
        self.leave_party_if_idle(party);
    }

    /// Remembers to look whether somebody who waits can have it now.
    pub fn offer_later(&mut self, resource: u32) {
        if let Some(crowd) = self.resources.crowd_mut(resource)
            && !crowd.queue.is_empty()
            && !crowd.to_offer
            && !mutants::on(Mutant::WakeLost)
        {
            crowd.to_offer = true;
            self.due.offers.push_back(resource);
        }
    }

    /// Forgets what was to be offered: replay does not decide.
    pub fn forget_offers(&mut self) {
        while let Some(resource) = self.due.offers.pop_front() {
            if let Some(crowd) = self.resources.crowd_mut(resource) {
                crowd.to_offer = false;
            }
        }
    }

    fn remember_end(&mut self, lease: &Lease, reason: Reason) {
        let holder = self.parties[lease.party].holder;
        let held_ms = self.time.since(lease.granted());
        self.totals.count(reason, held_ms);
        let holder = self.parties.holder_mut(holder);
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
        self.ends.push(name, holder, lease.number().get(), lease.granted(), self.time, reason);
    }

    /// Everything a session holds, in the order of places, which is the same in service and in replay.
    pub fn session_leases(&self, session: u32) -> Vec<u32> {
        let mut leases = Vec::with_capacity(self.session(session).leases as usize);
        for party in &self.session(session).parties {
            let mut slot = self.parties[*party].leases;
            while slot != NONE {
                leases.push(slot);
                slot = self.lease(slot).next;
            }
        }
        leases.sort_unstable();
        leases
    }

    /// Everything a session waits for, in the order of places.
    pub fn session_waits(&self, session: u32) -> Vec<u32> {
        let parties = &self.session(session).parties;
        let mut waits: Vec<u32> = parties.iter().flat_map(|party| self.parties[*party].waits.iter().copied()).collect();
        waits.sort_unstable();
        waits
    }

    /// The lease that an id names, if it is live.
    pub fn live(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.live(id.slot, id.reuse)
    }
}
