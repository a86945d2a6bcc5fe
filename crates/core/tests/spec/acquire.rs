//! Acquire of one or several leases: validation, then grant, wait or refusal.

use leasehold_core::command::{Acquire, AcquireAll, AcquireOptions, Answer, Request};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use leasehold_core::limits;
use leasehold_core::name::{NameError, NameProblem};
use leasehold_core::refusal::{Limit, Refusal, RefusalSubject};

use super::command_effects::{SpecResult, invalid};
use super::model::{Actor, Lease, Name, Session, Spec, Wait, units};
use super::wait_queue::NewLease;

/// A validated acquire.
pub struct AcquirePlan<'a> {
    pub resources: &'a [(Name, Access)],
    pub slots: Option<u32>,
    pub atomic: bool,
    pub ttl: u64,
}

impl Spec {
    pub fn acquire(&mut self, request: &Request<'_>, acquire: &Acquire<'static>) -> SpecResult {
        let (resource, access) = (acquire.resource, acquire.access);
        self.check_options(&acquire.options)?;
        let ttl = self.check_ttl(acquire.ttl_ms, acquire.session)?;
        self.check_access(resource, access, acquire.slots)?;
        let session = acquire.session.or_else(|| self.key_session(request, &acquire.options));
        let actor = self.requester(session, acquire.holder)?;
        let own = self.live_on(resource).into_iter().find(|i| {
            let lease = &self.leases[*i];
            actor.session.is_some()
                && lease.actor == actor
                && lease.access == Access::Exclusive
                && !lease.is_predecessor
        });
        if let Some(own) = own.filter(|_| acquire.options.reentrant && access == Access::Exclusive) {
            self.leases[own].depth += 1;
            return Ok(Answer::Granted(self.grant_of(own)));
        }
        self.check_no_self_deadlock(actor, resource, access)?;
        let plan = AcquirePlan { resources: &[(resource, access)], slots: acquire.slots, atomic: false, ttl };
        self.grant_or_wait(request, actor, &plan, &acquire.options)
    }

    pub fn acquire_all(&mut self, request: &Request<'_>, acquire: &AcquireAll<'static>) -> SpecResult {
        self.check_options(&acquire.options)?;
        let mut ttl = 0;
        for (i, (resource, access)) in acquire.resources.iter().enumerate() {
            if acquire.resources[..i].iter().any(|(other, _)| other == resource) {
                return Err(invalid("resources"));
            }
            ttl = self.check_ttl(acquire.ttl_ms, acquire.session)?;
            self.check_access(resource, *access, None)?;
        }
        let session = acquire.session.or_else(|| self.key_session(request, &acquire.options));
        let actor = self.requester(session, acquire.holder)?;
        for (resource, access) in acquire.resources {
            self.check_no_self_deadlock(actor, resource, *access)?;
        }
        let plan = AcquirePlan { resources: acquire.resources, slots: None, atomic: true, ttl };
        self.grant_or_wait(request, actor, &plan, &acquire.options)
    }

    pub fn check_options(&self, options: &AcquireOptions<'static>) -> Result<(), Refusal> {
        if options.wait_ms > limits::WAIT_MAX {
            return Err(invalid("wait"));
        }
        if options.max_hold_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::HOLD_MAX).contains(&ms)) {
            return Err(invalid("max_hold"));
        }
        if options.progress_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&ms)) {
            return Err(invalid("progress"));
        }
        Ok(())
    }

    /// Validates a ttl. Zero stands for the lifetime of the session; no value means "forever" (L10).
    pub fn check_ttl(&self, ttl: Option<u64>, session: Option<SessionId>) -> Result<u64, Refusal> {
        let carries = |id: SessionId| {
            let live =
                self.sessions.get(id.slot as usize).filter(|session| id.reuse == session.reuse && !session.ended);
            live.is_none_or(|session| !session.waits_only)
        };
        match ttl {
            Some(ttl) if (limits::TTL_MIN..=self.max_ttl).contains(&ttl) => Ok(ttl),
            None if session.is_some_and(carries) => Ok(0),
            _ => Err(invalid("ttl")),
        }
    }

    /// The session of a request id carries the wait of a request that names no session, if it carries only waits.
    fn key_session(&self, request: &Request<'_>, options: &AcquireOptions<'static>) -> Option<SessionId> {
        let id = request.id.filter(|_| options.wait_ms > 0)?.session;
        let session = self.sessions.get(id.slot as usize)?;
        (session.reuse == id.reuse && !session.ended && session.waits_only).then_some(id)
    }

    /// Refuses an access that can never be granted, so that it is not queued.
    pub fn check_access(&self, resource: &str, access: Access, slots: Option<u32>) -> Result<(), Refusal> {
        if slots.is_some_and(|slots| access != Access::Slot || !(1..=limits::CAPACITY).contains(&slots)) {
            return Err(invalid("slots"));
        }
        let known = self.capacity_known(resource);
        if slots.is_some() && known.is_some() && slots != known {
            return Err(Refusal::Conflict(RefusalSubject::Capacity));
        }
        if let Access::Units(units) = access {
            if units == 0 {
                return Err(invalid("units"));
            }
            let max = u64::from(known.unwrap_or(1)).saturating_sub(self.settings_of(resource).confirmed);
            if u64::from(units) > max {
                return Err(Refusal::Exhausted { limit: Limit::Units, max, got: u64::from(units) });
            }
        }
        Ok(())
    }

    /// The actor of a request: within a session, one of the session's actors.
    pub fn requester(&mut self, session: Option<SessionId>, holder: Name) -> Result<Actor, Refusal> {
        let Some(id) = session else {
            return Ok(Actor { session: None, holder });
        };
        let slot = self.live_session(id)?;
        let Session { holder: own, waits_only, .. } = self.sessions[slot as usize];
        if holder.is_empty() && waits_only {
            return Err(Refusal::Name(NameError { field: "holder", problem: NameProblem::Empty }));
        }
        Ok(Actor { session: Some(slot), holder: if holder.is_empty() { own } else { holder } })
    }

    /// The holder of a lease that this actor is granted. If the session only carries waits, the holder is the name
    /// alone.
    pub fn holder_of(&self, actor: Actor) -> Actor {
        let waits_only = actor.session.is_some_and(|slot| self.sessions[slot as usize].waits_only);
        Actor { session: if waits_only { None } else { actor.session }, ..actor }
    }

    /// Refuses an access that only the requester itself could free.
    pub fn check_no_self_deadlock(&self, actor: Actor, resource: Name, access: Access) -> Result<(), Refusal> {
        let clash = |theirs: Access| {
            let both_read = theirs == Access::Shared && access == Access::Shared;
            let both_count = units(theirs) > 0 && units(access) > 0;
            !both_read && !both_count
        };
        // A name without a session identifies no one: two requests with one name are two holders (L5).
        let own = |lease: &&&Lease| actor.session.is_some() && lease.actor == actor;
        match self.counted_on(resource).iter().filter(own).find(|lease| clash(lease.access)) {
            None => Ok(()),
            Some(lease) if (lease.access, access) == (Access::Exclusive, Access::Exclusive) => {
                Err(self.self_deadlock(actor, resource))
            }
            Some(lease) => Err(Refusal::AccessChange { held: lease.access.into(), requested: access.into() }),
        }
    }

    pub fn grant_or_wait(
        &mut self,
        request: &Request<'_>,
        actor: Actor,
        plan: &AcquirePlan<'_>,
        options: &AcquireOptions<'static>,
    ) -> SpecResult {
        let AcquirePlan { resources, slots, atomic, ttl } = *plan;
        let free =
            resources.iter().try_for_each(|(resource, access)| self.is_free(resource, *access, options.priority));
        let Err(refusal) = free.and_then(|()| self.check_quarantine()) else {
            self.set_first_capacity(resources[0].0, slots);
            let holder = self.holder_of(actor);
            let mut leases = Vec::new();
            for (resource, access) in resources {
                let wanted = NewLease {
                    resource,
                    actor: holder,
                    access: *access,
                    ttl,
                    priority: options.priority,
                    max_hold: options.max_hold_ms,
                    progress: options.progress_ms,
                };
                leases.push(self.grant(&wanted, None));
            }
            return Ok(self.granted_answer(&leases, atomic));
        };
        if options.wait_ms == 0 {
            return Err(refusal);
        }
        if actor.session.is_none() {
            return Err(invalid("wait"));
        }
        self.set_first_capacity(resources[0].0, slots);
        let position =
            resources.iter().map(|(resource, _)| self.position(resource, options.priority)).max().expect("some");
        self.wait_count += 1;
        let order = self.wait_count;
        self.waits.push(Wait {
            order,
            slot: None,
            actor,
            resources: resources.to_vec(),
            atomic,
            ttl,
            priority: options.priority,
            until: self.now + options.wait_ms,
            sequence: request.id.map(|id| id.sequence),
            max_hold: options.max_hold_ms,
            progress: options.progress_ms,
            tag: Some(request.tag),
            may_pass: false,
        });
        self.turn.new_waits.push(order);
        self.preempt_for(order);
        Ok(Answer::Waiting { position })
    }

    /// The first granted or waiting slot request sets the capacity of a resource that has none.
    pub fn set_first_capacity(&mut self, resource: Name, slots: Option<u32>) {
        if slots.is_some() && self.capacity_known(resource).is_none() {
            self.settings.entry(resource).or_default().capacity = slots;
        }
    }
}
