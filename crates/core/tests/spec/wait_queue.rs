//! The wait queues: priorities, order and grants. Within a priority the order is first come, first served, and no
//! grantable waiter is overtaken.

use std::collections::BTreeMap;

use leasehold_core::charter::Preemption;
use leasehold_core::command::{Answer, HandoffMode};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::refusal::Refusal;

use super::model::{Actor, Cause, Drain, Lease, Name, Progress, Session, Spec, StoredReply, Wait, units};

/// A lease to create, without its token number and slot.
pub struct NewLease {
    pub resource: Name,
    pub actor: Actor,
    pub access: Access,
    pub ttl: u64,
    pub priority: u8,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
}

impl Spec {
    pub fn wait(&self, order: u64) -> &Wait {
        self.waits.iter().find(|wait| wait.order == order).expect("a live wait")
    }

    /// Effective priority of every wait: its own, or the highest among the waits for something its actor holds (P2).
    /// This is the least fixed point, so that no wait raises its own priority.
    pub fn effective(&self) -> BTreeMap<u64, u8> {
        let mut all: BTreeMap<u64, u8> = self.waits.iter().map(|wait| (wait.order, wait.priority)).collect();
        loop {
            let before = all.clone();
            for wait in &self.waits {
                let inherited = self.inherited(wait.actor, &before);
                let level = all.get_mut(&wait.order).expect("every wait has a level");
                *level = (*level).max(inherited);
            }
            if all == before {
                return all;
            }
        }
    }

    /// The highest priority among the waits for something that an actor holds.
    pub fn inherited(&self, actor: Actor, effective: &BTreeMap<u64, u8>) -> u8 {
        let held = self.live().into_iter().filter(|i| self.leases[*i].actor == actor);
        held.map(|i| self.priority_at(self.leases[i].resource, effective)).max().unwrap_or(0)
    }

    /// The highest priority among the waits for a resource.
    pub fn priority_at(&self, resource: &str, effective: &BTreeMap<u64, u8>) -> u8 {
        let waits = self.waits.iter().filter(|wait| wait.access_to(resource).is_some());
        waits.map(|wait| effective[&wait.order]).max().unwrap_or(0)
    }

    /// The waits for a resource, in the order of service (W1).
    pub fn queue(&self, resource: &str) -> Vec<&Wait> {
        let effective = self.effective();
        let mut queue: Vec<&Wait> = self.waits.iter().filter(|wait| wait.access_to(resource).is_some()).collect();
        queue.sort_by_key(|wait| (std::cmp::Reverse(effective[&wait.order]), wait.order));
        queue
    }

    /// The grantable waits ahead of a wait in one queue.
    pub fn before(&self, wait: &Wait, resource: &str) -> Vec<&Wait> {
        let queue = self.queue(resource);
        queue
            .into_iter()
            .take_while(|other| other.order != wait.order)
            .filter(|other| self.may_be_granted(other))
            .collect()
    }

    /// The position that a new wait would get.
    pub fn position(&self, resource: &str, priority: u8) -> u32 {
        let effective = self.effective();
        1 + self.queue(resource).iter().filter(|wait| effective[&wait.order] >= priority).count() as u32
    }

    /// Whether its session was renewed in this tenure. Until then the wait keeps its position and blocks no other.
    pub fn is_confirmed(&self, wait: &Wait) -> bool {
        self.session_of(wait).lifetime.tenure == self.tenure
    }

    /// L8: its session was renewed in this tenure and is alive at this step.
    pub fn may_be_granted(&self, wait: &Wait) -> bool {
        self.is_confirmed(wait) && self.deadline(&self.session_of(wait).lifetime) > self.now
    }

    fn session_of(&self, wait: &Wait) -> &Session {
        &self.sessions[wait.actor.session.expect("a wait belongs to a session") as usize]
    }

    /// Whether everything that a wait requests fits now.
    pub fn fits_now(&self, wait: &Wait) -> bool {
        wait.resources.iter().all(|(resource, access)| self.fits(resource, *access))
    }

    /// Whether a wait may be granted now: it fits, and it is first or may overtake.
    pub fn is_next(&self, wait: &Wait) -> bool {
        let first = || wait.resources.iter().all(|(resource, _)| self.before(wait, resource).is_empty());
        self.check_quarantine().is_ok()
            && self.may_be_granted(wait)
            && self.fits_now(wait)
            && (wait.may_pass || first())
    }

    /// Whether an access can be granted at once without overtaking a waiter.
    pub fn is_free(&self, resource: Name, access: Access, priority: u8) -> Result<(), Refusal> {
        if self.settings_of(resource).for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let effective = self.effective();
        let passed =
            self.queue(resource).iter().any(|wait| effective[&wait.order] >= priority && self.is_confirmed(wait));
        if self.fits(resource, access) && !passed {
            Ok(())
        } else {
            Err(Refusal::busy(self.position(resource, priority)))
        }
    }

    /// Creates a lease with the next token. The caller has checked that it fits.
    pub fn grant(&mut self, wanted: &NewLease, overlaps: Option<usize>) -> usize {
        let slot = match (wanted.access, overlaps) {
            (_, Some(before)) => self.leases[before].slot,
            (Access::Slot, None) => self.free_slot(wanted.resource),
            _ => 0,
        };
        if let Some(before) = overlaps {
            self.leases[before].is_predecessor = true;
        }
        let charter = self.charter(wanted.resource);
        let tighter = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        let progress = tighter(wanted.progress, charter.progress_window());
        let number = self.issue();
        self.units.reserved += if let Access::Units(units) = wanted.access { u64::from(units) } else { 0 };
        self.leases.push(Lease {
            resource: wanted.resource,
            actor: wanted.actor,
            number,
            access: wanted.access,
            slot,
            follows_session: wanted.ttl == 0,
            lifetime: self.lifetime(wanted.ttl),
            granted: self.now,
            priority: wanted.priority,
            depth: 0,
            max_hold: tighter(wanted.max_hold, charter.max_hold_ms),
            progress: progress.map(|window| Progress { lifetime: self.lifetime(window), recorded: 0, seen: 0 }),
            veto: None,
            pinned: None,
            drain: None,
            predecessor: overlaps,
            is_predecessor: false,
            end: None,
        });
        self.leases.len() - 1
    }

    /// Grants everything that a wait requests, and answers it.
    pub fn grant_wait(&mut self, order: u64, overlaps: Option<usize>) {
        let wait = self.wait(order).clone();
        self.waits.retain(|other| other.order != order);
        let session = wait.actor.session.expect("a wait belongs to a session") as usize;
        let waits_only = self.sessions[session].waits_only;
        let actor = Actor { session: if waits_only { None } else { wait.actor.session }, ..wait.actor };
        let mut leases = Vec::new();
        for (resource, access) in &wait.resources {
            let wanted = NewLease {
                resource,
                actor,
                access: *access,
                ttl: wait.ttl,
                priority: wait.priority,
                max_hold: wait.max_hold,
                progress: wait.progress,
            };
            leases.push(self.grant(&wanted, overlaps));
        }
        if let Some((_, stored)) = wait.sequence.and_then(|sequence| self.sessions[session].stored.get_mut(&sequence)) {
            *stored = StoredReply::Granted(leases.clone());
        }
        if let Some(tag) = wait.tag {
            self.reply(tag, self.granted_answer(&leases, wait.atomic));
        }
        self.revoke_needless_preemptions(&wait);
    }

    pub fn granted_answer(&self, leases: &[usize], atomic: bool) -> Answer {
        let grants: Vec<_> = leases.iter().map(|i| self.grant_of(*i)).collect();
        if atomic { Answer::GrantedAll(grants.into()) } else { Answer::Granted(grants[0]) }
    }

    /// Ends a wait without a grant.
    pub fn end_wait(&mut self, order: u64, refusal: &Refusal) {
        let wait = self.wait(order).clone();
        self.waits.retain(|other| other.order != order);
        let session = &mut self.sessions[wait.actor.session.expect("a wait belongs to a session") as usize];
        if let Some((_, stored)) = wait.sequence.and_then(|sequence| session.stored.get_mut(&sequence)) {
            *stored = StoredReply::Answer(Err(refusal.clone()), self.now);
        }
        if let Some(tag) = wait.tag {
            self.reply(tag, Answer::Refused(refusal.clone()));
        }
        self.revoke_needless_preemptions(&wait);
    }

    /// After a wait has ended, cancels announced preemptions that are no longer needed.
    pub fn revoke_needless_preemptions(&mut self, wait: &Wait) {
        let effective = self.effective();
        for (resource, _) in &wait.resources {
            let wanted = self.priority_at(resource, &effective);
            for i in self.live_on(resource) {
                let lease = &mut self.leases[i];
                let pending = lease.drain.is_some_and(|drain| drain.cause == Cause::Priority);
                if pending && lease.priority >= wanted {
                    lease.drain = None;
                }
            }
        }
        self.forget_unused();
    }

    /// Where the charter allows preemption, announces the end of the blocking leases, if all of them have a lower
    /// priority (P1).
    pub fn preempt_for(&mut self, order: u64) {
        let level = self.effective()[&order];
        for (resource, access) in self.wait(order).resources.clone() {
            if let Preemption::LowerPriority { grace_ms } = self.charter(resource).preemption {
                for i in self.blockers(resource, access, level) {
                    self.announce(i, Cause::Priority, grace_ms);
                }
            }
        }
    }

    fn blockers(&self, resource: Name, access: Access, level: u8) -> Vec<usize> {
        let effective = self.effective();
        let counted = self.live_on(resource).into_iter().filter(|i| !self.leases[*i].is_predecessor);
        // Readers do not block readers, and units do not block units as long as enough are free.
        let (mut whole, mut some): (Vec<usize>, Vec<usize>) = counted
            .filter(|i| !(access == Access::Shared && self.leases[*i].access == Access::Shared))
            .partition(|i| units(access) == 0 || units(self.leases[*i].access) == 0);
        let lower = |i: &usize| {
            let lease = &self.leases[*i];
            lease.priority < level && self.inherited(lease.actor, &effective) <= level
        };
        if !whole.iter().all(lower) {
            return Vec::new();
        }
        let taken = self.used(resource) + self.settings_of(resource).confirmed + units(access);
        let mut missing = taken.saturating_sub(u64::from(self.capacity(resource)));
        some.retain(lower);
        some.sort_by_key(|i| (self.leases[*i].priority, std::cmp::Reverse(self.leases[*i].number)));
        for i in some {
            if missing == 0 || units(access) == 0 {
                break;
            }
            missing = missing.saturating_sub(units(self.leases[i].access));
            whole.push(i);
        }
        if units(access) > 0 && missing > 0 { Vec::new() } else { whole }
    }

    /// Announces the end of a lease to its holder. An earlier announced end stays. A preemption may be canceled, so
    /// it replaces no other cause and any other cause replaces it.
    pub fn announce(&mut self, i: usize, cause: Cause, grace: u64) {
        let until = self.now + grace;
        let until = match self.leases[i].drain {
            Some(drain) if drain.cause == Cause::Priority && cause != Cause::Priority => until.min(drain.until),
            Some(drain) if drain.cause != Cause::Priority && cause == Cause::Priority => return,
            Some(drain) if drain.until <= until => return,
            _ => until,
        };
        self.leases[i].drain = Some(Drain { until, cause });
        self.turn.draining.insert((i as u32, until));
    }

    /// The successor in a handoff: the named one, or the first eligible one.
    pub fn successor(&self, resource: &str, to: &str, access: Access) -> Option<u64> {
        let fit = |wait: &&&Wait| {
            let named = to.is_empty() || wait.actor.holder == to;
            named && wait.resources == [(wait.resources[0].0, access)] && self.may_be_granted(wait)
        };
        self.queue(resource).iter().find(fit).map(|wait| wait.order)
    }

    /// Ends a draining lease. The named successor of a gap handoff is granted first.
    pub fn end_drained(&mut self, i: usize) {
        let (resource, access) = (self.leases[i].resource, self.leases[i].access);
        let cause = self.leases[i].drain.expect("the lease drains").cause;
        self.end_lease(i, cause.reason());
        if let Cause::HandOff(HandoffMode::Gap, to) = cause
            && !to.is_empty()
            && self.check_quarantine().is_ok()
            && let Some(order) = self.successor(resource, to, access)
            && self.fits(resource, access)
        {
            self.grant_wait(order, None);
        }
    }

    /// Ends a session with all its leases and waits (S1).
    pub fn end_session(&mut self, slot: u32) {
        let (ended_waits, rest): (Vec<Wait>, Vec<Wait>) =
            std::mem::take(&mut self.waits).into_iter().partition(|wait| wait.actor.session == Some(slot));
        self.waits = rest;
        self.sessions[slot as usize].ended = true;
        for wait in &ended_waits {
            if let Some(tag) = wait.tag {
                self.reply(tag, Answer::Refused(Refusal::Lost(EndReason::Session)));
            }
        }
        for i in self.leases_in(slot) {
            self.end_without_hold(i, EndReason::Session);
        }
        for wait in &ended_waits {
            self.revoke_needless_preemptions(wait);
        }
    }
}

impl Wait {
    pub fn access_to(&self, resource: &str) -> Option<Access> {
        self.resources.iter().find(|(name, _)| *name == resource).map(|(_, access)| *access)
    }
}
