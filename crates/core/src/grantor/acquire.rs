//! Acquiring leases: validates a request, then grants it, queues it or refuses it.

use super::Grantor;
use super::table::lease::NONE;
use crate::access::{Caller, IdentityLimits, IdentityUsage, recorded_owner};
use crate::command::{Acquire, AcquireAll, AcquireOptions, Answer, Request};
use crate::ids::SessionId;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{HolderName, Name};
use crate::record::{Record, WaitRecord};
use crate::refusal::{BusyHolder, Cycle, CycleMember, Limit, Refusal, RefusalSubject};
use crate::trace_context::TraceContext;

/// The validated requester.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    /// The session that carries the wait and, unless it only carries waits, the lease.
    pub session: u32,
    pub waits_only: bool,
    pub holder: &'a str,
    /// The actor, if it exists already.
    actor: Option<u32>,
}

/// The validated request.
#[derive(Clone, Copy)]
pub(super) struct AcquirePlan<'a> {
    pub resources: &'a [(&'a str, Access)],
    /// Requested with `AcquireAll`, and answered together.
    pub atomic: bool,
    pub slots: Option<u32>,
    pub ttl: u32,
    /// The identity that owns a lease without a session, as it is recorded.
    pub owner: Option<&'a str>,
    /// The trace that the request belongs to.
    pub trace: Option<TraceContext>,
}

impl Grantor {
    pub(super) fn acquire(&mut self, request: &Request<'_>, acquire: &Acquire<'_>) -> Result<Answer, Refusal> {
        let name = Name::parse(acquire.resource)?.as_str();
        self.check_options(&acquire.options)?;
        let ttl = self.check_lease_ttl(name, acquire.ttl_ms, acquire.session)?;
        self.check_access(name, acquire.access, acquire.slots)?;
        let session = acquire.session.or_else(|| self.key_session(request, &acquire.options));
        let of_session = session.and_then(|id| self.session_owner(id));
        let owner = if session.is_some() { of_session.as_deref() } else { recorded_owner(&request.caller)? };
        let mut own_name = std::mem::take(&mut self.scratch.0);
        let result = self.requester(session, acquire.holder, &mut own_name).and_then(|requester| {
            if let Some(answer) = self.reenter(&requester, name, acquire.access, &acquire.options)? {
                return Ok(answer);
            }
            let resources = &[(name, acquire.access)];
            let trace = request.origin.trace;
            let plan = AcquirePlan { resources, atomic: false, slots: acquire.slots, ttl, owner, trace };
            self.grant_or_wait(request, &requester, &plan, &acquire.options)
        });
        self.scratch.0 = own_name;
        result
    }

    pub(super) fn acquire_all(&mut self, request: &Request<'_>, acquire: &AcquireAll<'_>) -> Result<Answer, Refusal> {
        let count = acquire.resources.len();
        if count == 0 {
            return Err(Refusal::Invalid { field: "resources", reason: "name at least one" });
        }
        if count > limits::MULTI {
            let (max, got) = (limits::MULTI as u64, count as u64);
            return Err(Refusal::Exhausted { limit: Limit::Resources, max, got });
        }
        self.check_options(&acquire.options)?;
        let mut ttl = 0;
        let mut names = std::collections::BTreeSet::new();
        for (resource, access) in acquire.resources {
            let name = Name::parse(resource)?.as_str();
            if !names.insert(name) {
                return Err(Refusal::Invalid { field: "resources", reason: "each resource once" });
            }
            ttl = self.check_lease_ttl(name, acquire.ttl_ms, acquire.session)?;
            self.check_access(name, *access, None)?;
        }
        let session = acquire.session.or_else(|| self.key_session(request, &acquire.options));
        let of_session = session.and_then(|id| self.session_owner(id));
        let owner = if session.is_some() { of_session.as_deref() } else { recorded_owner(&request.caller)? };
        let mut own_name = std::mem::take(&mut self.scratch.0);
        let result = self.requester(session, acquire.holder, &mut own_name).and_then(|requester| {
            for (name, access) in acquire.resources {
                self.check_not_self_blocked(&requester, name, *access)?;
            }
            let (resources, trace) = (acquire.resources, request.origin.trace);
            let plan = AcquirePlan { resources, atomic: true, slots: None, ttl, owner, trace };
            self.grant_or_wait(request, &requester, &plan, &acquire.options)
        });
        self.scratch.0 = own_name;
        result
    }

    fn check_options(&self, options: &AcquireOptions<'_>) -> Result<(), Refusal> {
        if options.wait_ms > limits::WAIT_MAX {
            return Err(Refusal::Invalid { field: "wait", reason: "at most 24 hours" });
        }
        if options.max_hold_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::HOLD_MAX).contains(&ms)) {
            return Err(Refusal::Invalid { field: "max_hold", reason: "from 100 ms to 366 days" });
        }
        if options.progress_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&ms)) {
            return Err(Refusal::Invalid { field: "progress", reason: "from 100 ms to 7 days" });
        }
        if options.metadata.len() > limits::METADATA_BYTES {
            let (max, got) = (limits::METADATA_BYTES as u64, options.metadata.len() as u64);
            return Err(Refusal::Exhausted { limit: Limit::Metadata, max, got });
        }
        Ok(())
    }

    /// Checks a ttl against the limits of the cluster and the charter. No value means an unbounded lease (L10).
    pub(super) fn check_ttl(&self, name: &str, ttl: u64) -> Result<u32, Refusal> {
        let max = self.table.max_ttl();
        let (min, longest) = match self.table.charter(name) {
            Some(charter) => charter.ttl_bounds(max),
            None => (limits::TTL_MIN, max),
        };
        let zero = ttl == 0 && mutants::on(Mutant::ZeroIsForever);
        if (min..=longest).contains(&ttl) || zero {
            Ok(ttl as u32)
        } else {
            let by_charter = (min, longest) != (limits::TTL_MIN, max);
            Err(Refusal::OutOfRange { field: "ttl", requested: ttl, min, max: longest, by_charter })
        }
    }

    /// Checks the ttl of a lease; zero means as long as its session.
    fn check_lease_ttl(&self, name: &str, ttl: Option<u64>, session: Option<SessionId>) -> Result<u32, Refusal> {
        let carries = session.is_some_and(|id| self.session_holds_leases(id));
        match ttl {
            Some(ttl) => self.check_ttl(name, ttl),
            None if carries => Ok(0),
            None => Err(Refusal::Invalid { field: "ttl", reason: "required without a session, for example 10s" }),
        }
    }

    /// The session of the request id, if it can carry the wait of a request that names no session: it carries only waits, so that
    /// the lease lives by its own ttl.
    fn key_session(&self, request: &Request<'_>, options: &AcquireOptions<'_>) -> Option<SessionId> {
        let id = request.id.filter(|_| options.wait_ms > 0)?.session;
        (!self.session_holds_leases(id)).then_some(id)
    }

    fn session_holds_leases(&self, id: SessionId) -> bool {
        self.table.sessions.live(id.slot, id.reuse).is_none_or(|session| !session.waits_only)
    }

    /// Refuses requests that can never be granted, instead of queuing them.
    fn check_access(&self, name: &str, access: Access, slots: Option<u32>) -> Result<(), Refusal> {
        if slots.is_some() && access != Access::Slot {
            return Err(Refusal::Invalid { field: "slots", reason: "only for a slot lease" });
        }
        if slots == Some(0) || slots.is_some_and(|slots| slots > limits::CAPACITY) {
            return Err(Refusal::Invalid { field: "slots", reason: "from 1 to 1048576" });
        }
        let capacity = match self.table.resources.find(name) {
            Some(resource) if self.capacity_is_known(resource, name) => Some(self.table.capacity(resource)),
            _ => self.table.charter(name).and_then(|charter| charter.capacity),
        };
        if let (Some(requested), Some(known)) = (slots, capacity)
            && requested != known
        {
            return Err(Refusal::Conflict(RefusalSubject::Capacity));
        }
        let wants = match access {
            Access::Units(0) => {
                return Err(Refusal::Invalid { field: "units", reason: "at least 1" });
            }
            Access::Units(units) => units,
            Access::Slot | Access::Exclusive | Access::Shared => 1,
        };
        let max = capacity.or(slots).unwrap_or(1);
        let confirmed = match self.table.resources.find(name) {
            Some(resource) => self.table.resources.state(resource).map_or(0, |state| state.confirmed),
            None => 0,
        };
        let never = matches!(access, Access::Units(_)) && u64::from(wants) > u64::from(max).saturating_sub(confirmed);
        if never {
            let max = u64::from(max).saturating_sub(confirmed);
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got: u64::from(wants) });
        }
        Ok(())
    }

    fn capacity_is_known(&self, resource: u32, name: &str) -> bool {
        self.table.resources.state(resource).is_some_and(|state| state.capacity.is_some())
            || self.table.charter(name).is_some_and(|charter| charter.capacity.is_some())
    }

    /// Sets the capacity of a resource from its first slot lease, if it has none.
    pub(super) fn set_initial_capacity(&mut self, plan: &AcquirePlan<'_>) {
        let (Some(units), [(name, Access::Slot)]) = (plan.slots, plan.resources) else {
            return;
        };
        let known = match self.table.resources.find(name) {
            Some(resource) => self.capacity_is_known(resource, name),
            None => self.table.charter(name).is_some_and(|charter| charter.capacity.is_some()),
        };
        if !known {
            self.record(&Record::Capacity { resource: name, units, lasting: false });
            self.suspect_waiters(name);
        }
    }

    /// The requester: the session's own actor, a named actor, or a holder without a session.
    fn requester<'a>(
        &mut self,
        session: Option<SessionId>,
        holder: &'a str,
        own_name: &'a mut String,
    ) -> Result<Requester<'a>, Refusal> {
        let Some(id) = session else {
            let holder = HolderName::parse(holder)?.as_str();
            return Ok(Requester { session: NONE, waits_only: false, holder, actor: None });
        };
        let slot = self.live_session(id)?;
        // A session that only carries waits does not hold: its name is not the holder's.
        let holder = if holder.is_empty() && !self.table.session(slot).waits_only {
            own_name.clear();
            let own = self.table.session(slot).holder;
            own_name.push_str(self.table.resources.names.get(self.table.actors.holder(own).name));
            own_name.as_str()
        } else {
            HolderName::parse(holder)?.as_str()
        };
        let known = self.table.actors.find_holder(holder, &self.table.resources.names);
        let session = self.table.session(slot);
        let actor = known.and_then(|holder| self.table.actors.find(slot, session.owner, holder));
        if actor.is_none() && session.actors.len() >= limits::ACTORS_PER_SESSION as usize {
            let max = u64::from(limits::ACTORS_PER_SESSION);
            return Err(Refusal::Exhausted { limit: Limit::SessionActors, max, got: max + 1 });
        }
        Ok(Requester { session: slot, waits_only: session.waits_only, holder, actor })
    }

    /// Re-enters a lease that the same actor already holds, if requested; otherwise refuses, because it would wait for itself.
    fn reenter(
        &mut self,
        requester: &Requester<'_>,
        name: &str,
        access: Access,
        options: &AcquireOptions<'_>,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(own) = self.own_exclusive_lease(requester, name) else {
            self.check_not_self_blocked(requester, name, access)?;
            return Ok(None);
        };
        if access != Access::Exclusive {
            return Err(Refusal::AccessChange { held: Access::Exclusive.into(), requested: access.into() });
        }
        if !options.reentrant {
            return Err(self.self_deadlock(requester, name));
        }
        let depth = self.table.extra(own).map_or(0, |extra| extra.depth) + 1;
        if depth > limits::DEPTH {
            let (max, got) = (u64::from(limits::DEPTH), u64::from(depth));
            return Err(Refusal::Exhausted { limit: Limit::Depth, max, got });
        }
        if mutants::on(Mutant::ReentryNewToken) {
            let number = self.next_number()?;
            self.record(&Record::Rotated { lease: own, number });
        }
        self.record(&Record::Depth { lease: own, depth });
        Ok(Some(Answer::Granted(self.grant_answer(own))))
    }

    fn own_exclusive_lease(&self, requester: &Requester<'_>, name: &str) -> Option<u32> {
        let actor = requester.actor?;
        let resource = self.table.resources.find(name)?;
        let sole = self.table.resources.sole(resource);
        let state = self.table.resources.state(resource).map_or(&[][..], |state| &state.leases);
        state.iter().copied().chain((sole != NONE).then_some(sole)).find(|slot| {
            let lease = self.table.lease(*slot);
            lease.actor == actor && lease.access() == Access::Exclusive && !lease.is_predecessor()
        })
    }

    /// Refuses a request that conflicts with a lease of the requester itself.
    fn check_not_self_blocked(&self, requester: &Requester<'_>, name: &str, access: Access) -> Result<(), Refusal> {
        let (Some(actor), Some(resource)) = (requester.actor, self.table.resources.find(name)) else {
            return Ok(());
        };
        let sole = self.table.resources.sole(resource);
        let state = self.table.resources.state(resource).map_or(&[][..], |state| &state.leases);
        let own = state.iter().copied().chain((sole != NONE).then_some(sole)).find_map(|slot| {
            let lease = self.table.lease(slot);
            let clash = match (lease.access(), access) {
                (Access::Exclusive, _) | (_, Access::Exclusive) => true,
                (Access::Shared, Access::Shared) => false,
                (Access::Shared, _) | (_, Access::Shared) => true,
                _ => false,
            };
            (lease.actor == actor && clash && !lease.is_predecessor()).then_some(lease.access())
        });
        match own {
            None => Ok(()),
            Some(Access::Exclusive) if access == Access::Exclusive => Err(self.self_deadlock(requester, name)),
            Some(held) => Err(Refusal::AccessChange { held: held.into(), requested: access.into() }),
        }
    }

    fn self_deadlock(&self, requester: &Requester<'_>, name: &str) -> Refusal {
        let member = CycleMember { holder: requester.holder.to_owned(), waits_for: name.to_owned() };
        Refusal::Deadlock(Box::new(Cycle { members: vec![member], length: 1 }))
    }

    fn grant_or_wait(
        &mut self,
        request: &Request<'_>,
        requester: &Requester<'_>,
        plan: &AcquirePlan<'_>,
        options: &AcquireOptions<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_lease_limits(requester, plan.resources)?;
        let new = IdentityUsage::of_leases(plan.resources.len(), options.metadata.len());
        self.check_identity_limits(&request.caller, new)?;
        let free = plan.resources.iter().try_for_each(|(name, access)| self.is_free(name, *access, options.priority));
        let refusal = match free.and_then(|()| self.check_quarantine()) {
            Ok(()) => return self.grant_all(requester, plan, options),
            Err(refusal) => refusal,
        };
        if options.wait_ms == 0 {
            return Err(refusal);
        }
        if requester.session == NONE {
            return Err(Refusal::Invalid {
                field: "wait",
                reason: "a wait requires a session; name one that is open, or do not wait",
            });
        }
        self.wait(request, requester, plan, options)
    }

    /// Checks that the resource can be granted immediately without passing a waiter.
    fn is_free(&self, name: &str, access: Access, priority: u8) -> Result<(), Refusal> {
        let Some(resource) = self.table.resources.find(name) else {
            return Ok(());
        };
        let Some(state) = self.table.resources.state(resource) else {
            let free = self.table.resources.sole(resource) == NONE;
            return if free { Ok(()) } else { Err(self.busy(resource, 1)) };
        };
        if state.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let overtakes = mutants::on(Mutant::ReadersOvertake) && access == Access::Shared;
        let fits = state.fits(access, self.table.capacity(resource));
        if fits && (overtakes || !self.has_waiter_ahead(resource, priority)) {
            Ok(())
        } else {
            Err(self.busy(resource, state.queue.position(priority)))
        }
    }

    /// The refusal of a resource that is not free. It names one holder, whatever their number, so that it costs the same.
    fn busy(&self, resource: u32, position: u32) -> Refusal {
        let sole = self.table.resources.sole(resource);
        let leases = self.table.resources.state(resource).map_or(&[][..], |state| &state.leases);
        let (first, count) = if sole == NONE { (leases.first().copied(), leases.len()) } else { (Some(sole), 1) };
        let holder = first.map(|slot| {
            let lease = self.table.lease(slot);
            Box::new(BusyHolder {
                holder: self.table.holder_name(lease.actor).to_owned(),
                others: u32::try_from(count - 1).unwrap_or(u32::MAX),
                held_ms: self.now().since(lease.granted()),
                remaining_ms: self.remaining(slot),
            })
        });
        Refusal::Busy { position, holder }
    }

    fn check_lease_limits(&self, requester: &Requester<'_>, resources: &[(&str, Access)]) -> Result<(), Refusal> {
        let more = resources.len();
        if self.table.leases.count() + more > limits::LEASES || self.table.resources.len() + more > limits::LEASES {
            let (max, got) = (limits::LEASES as u64, (self.table.leases.count() + more) as u64);
            return Err(Refusal::Exhausted { limit: Limit::Leases, max, got });
        }
        if requester.session != NONE && !requester.waits_only {
            let got = u64::from(self.table.session(requester.session).leases) + more as u64;
            let max = u64::from(limits::LEASES_PER_SESSION);
            if got > max {
                return Err(Refusal::Exhausted { limit: Limit::SessionLeases, max, got });
            }
        }
        Ok(())
    }

    fn wait(
        &mut self,
        request: &Request<'_>,
        requester: &Requester<'_>,
        plan: &AcquirePlan<'_>,
        options: &AcquireOptions<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_wait_limits(requester, plan.resources)?;
        let new = IdentityUsage::of_wait(plan.resources.len(), options.metadata.len());
        self.check_identity_limits(&request.caller, new)?;
        self.set_initial_capacity(plan);
        let (waiter, _) = self.table.waiters.next_slot();
        let (max_hold, progress) = (options.max_hold_ms, options.progress_ms);
        let position = plan.resources.iter().map(|(name, _)| self.position(name, options.priority)).max().unwrap_or(1);
        self.record(&Record::Waiting(WaitRecord {
            waiter,
            session: requester.session,
            holder: requester.holder,
            resources: plan.resources.to_vec(),
            atomic: plan.atomic,
            ttl: plan.ttl,
            priority: options.priority,
            until: self.now().plus(options.wait_ms),
            sequence: request.id.map(|id| id.sequence),
            max_hold,
            progress,
            metadata: options.metadata,
        }));
        if let Some(trace) = plan.trace {
            self.record(&Record::WaitTraced { waiter, trace });
        }
        self.table.waiters.at_mut(waiter).expect("just recorded").tag = Some(request.tag);
        self.wait_began(waiter);
        Ok(Answer::Waiting { position })
    }

    /// Refuses what would take the caller above one of its own limits (A12). What it acts on is its own.
    pub(super) fn check_identity_limits(&self, caller: &Caller<'_>, more: IdentityUsage) -> Result<(), Refusal> {
        let limits = caller.rights.limits();
        if *limits == IdentityLimits::UNLIMITED {
            return Ok(());
        }
        let mut has = self.table.usage_of(caller.principal);
        if mutants::on(Mutant::QuotaShared) {
            has = IdentityUsage::default();
            self.table.usages().for_each(|(_, other)| has.add(other));
        }
        limits.check(&has, &more)
    }

    fn position(&self, name: &str, priority: u8) -> u32 {
        let resource = self.table.resources.find(name);
        resource.and_then(|at| self.table.resources.state(at)).map_or(1, |state| state.queue.position(priority))
    }

    fn check_wait_limits(&self, requester: &Requester<'_>, resources: &[(&str, Access)]) -> Result<(), Refusal> {
        let full = |limit, max: u64| Err(Refusal::Exhausted { limit, max, got: max + 1 });
        if self.table.session(requester.session).waits >= limits::WAITERS_PER_SESSION {
            return full(Limit::SessionWaits, u64::from(limits::WAITERS_PER_SESSION));
        }
        if self.table.waiters.count() >= limits::WAITERS {
            return full(Limit::Waiters, limits::WAITERS as u64);
        }
        for (name, _) in resources {
            let resource = self.table.resources.find(name);
            let state = resource.and_then(|at| self.table.resources.state(at));
            if state.is_some_and(|state| state.queue.len() >= limits::WAITERS_PER_RESOURCE) {
                return full(Limit::Waiters, limits::WAITERS_PER_RESOURCE as u64);
            }
        }
        Ok(())
    }
}
