//! Taking a lease, or several at once: what is asked is checked, then it is granted, waited for, or refused.

use super::Grantor;
use super::table::lease::NONE;
use crate::command::{Acquire, AcquireAll, Answer, Request, Terms};
use crate::ids::SessionId;
use crate::lease::Access;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{HolderName, Name};
use crate::record::{Record, Waiting};
use crate::refusal::{Cycle, Limit, Member, Refusal, What};

/// Who asks, after checking.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    /// The session that carries the wait and, unless it only carries waits, the lease.
    pub session: u32,
    pub waits_only: bool,
    pub holder: &'a str,
    /// The actor, if it is already known.
    party: Option<u32>,
}

/// What is asked for, after checking.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub asks: &'a [(&'a str, Access)],
    /// Asked for together, and answered together.
    pub several: bool,
    pub slots: Option<u32>,
    pub ttl: u32,
}

impl Grantor {
    pub(super) fn acquire(&mut self, request: &Request, acquire: &Acquire<'_>) -> Result<Answer, Refusal> {
        let name = Name::parse(acquire.resource)?.as_str();
        self.check_terms(&acquire.terms)?;
        let ttl = self.check_lease_ttl(name, acquire.ttl_ms, acquire.session)?;
        self.check_access(name, acquire.access, acquire.slots)?;
        let mut own_name = std::mem::take(&mut self.scratch.0);
        let result = self.asker(acquire.session, acquire.holder, &mut own_name).and_then(|asker| {
            if let Some(answer) = self.enter_again(&asker, name, acquire.access, &acquire.terms)? {
                return Ok(answer);
            }
            let wish = Wish { asks: &[(name, acquire.access)], several: false, slots: acquire.slots, ttl };
            self.take_or_wait(request, &asker, &wish, &acquire.terms)
        });
        self.scratch.0 = own_name;
        result
    }

    pub(super) fn acquire_all(&mut self, request: &Request, acquire: &AcquireAll<'_>) -> Result<Answer, Refusal> {
        let count = acquire.wanted.len();
        if count == 0 {
            return Err(Refusal::Invalid { field: "resources", reason: "name at least one" });
        }
        if count > limits::MULTI {
            let (max, got) = (limits::MULTI as u64, count as u64);
            return Err(Refusal::Exhausted { limit: Limit::Resources, max, got });
        }
        self.check_terms(&acquire.terms)?;
        let mut ttl = 0;
        let mut names = std::collections::BTreeSet::new();
        for (resource, access) in acquire.wanted {
            let name = Name::parse(resource)?.as_str();
            if !names.insert(name) {
                return Err(Refusal::Invalid { field: "resources", reason: "each resource once" });
            }
            ttl = self.check_lease_ttl(name, acquire.ttl_ms, acquire.session)?;
            self.check_access(name, *access, None)?;
        }
        let mut own_name = std::mem::take(&mut self.scratch.0);
        let result = self.asker(acquire.session, acquire.holder, &mut own_name).and_then(|asker| {
            for (name, access) in acquire.wanted {
                self.check_not_own(&asker, name, *access)?;
            }
            let wish = Wish { asks: acquire.wanted, several: true, slots: None, ttl };
            self.take_or_wait(request, &asker, &wish, &acquire.terms)
        });
        self.scratch.0 = own_name;
        result
    }

    fn check_terms(&self, terms: &Terms<'_>) -> Result<(), Refusal> {
        if terms.wait_ms > limits::WAIT_MAX {
            return Err(Refusal::Invalid { field: "wait", reason: "at most 24 hours" });
        }
        if terms.max_hold_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::HOLD_MAX).contains(&ms)) {
            return Err(Refusal::Invalid { field: "max_hold", reason: "from 100 ms to 366 days" });
        }
        if terms.progress_ms.is_some_and(|ms| !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&ms)) {
            return Err(Refusal::Invalid { field: "progress", reason: "from 100 ms to 7 days" });
        }
        if terms.metadata.len() > limits::METADATA_BYTES {
            let (max, got) = (limits::METADATA_BYTES as u64, terms.metadata.len() as u64);
            return Err(Refusal::Exhausted { limit: Limit::Metadata, max, got });
        }
        Ok(())
    }

    /// A ttl within the cluster's and the charter's bounds. Nothing means "for ever" (L10).
    pub(super) fn check_ttl(&self, name: &str, ttl: u64) -> Result<u32, Refusal> {
        let max = self.table.max_ttl();
        let (least, most) = match self.table.charter(name) {
            Some(charter) => charter.ttl_bounds(max),
            None => (limits::TTL_MIN, max),
        };
        let zero = ttl == 0 && mutants::on(Mutant::ZeroIsForever);
        if (least..=most).contains(&ttl) || zero {
            Ok(ttl as u32)
        } else if ttl < limits::TTL_MIN {
            Err(Refusal::Invalid { field: "ttl", reason: "at least 100 ms" })
        } else if ttl > max {
            Err(Refusal::Invalid { field: "ttl", reason: "at most the cluster's longest ttl; see its status" })
        } else {
            Err(Refusal::Invalid { field: "ttl", reason: "outside of what the charter allows; see it" })
        }
    }

    /// Zero: the lease lives as long as its session.
    fn check_lease_ttl(&self, name: &str, ttl: Option<u64>, session: Option<SessionId>) -> Result<u32, Refusal> {
        let carries = session.is_some_and(|id| self.session_carries(id));
        match ttl {
            Some(ttl) => self.check_ttl(name, ttl),
            None if carries => Ok(0),
            None => Err(Refusal::Invalid { field: "ttl", reason: "needed without a session; for example 10s" }),
        }
    }

    fn session_carries(&self, id: SessionId) -> bool {
        self.table.sessions.live(id.slot, id.reuse).is_none_or(|session| !session.waits_only)
    }

    /// What can never be had is refused at once, not queued.
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
        if let (Some(asked), Some(known)) = (slots, capacity)
            && asked != known
        {
            return Err(Refusal::Conflict(What::Capacity));
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
            Some(resource) => self.table.resources.crowd(resource).map_or(0, |crowd| crowd.confirmed),
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
        self.table.resources.crowd(resource).is_some_and(|crowd| crowd.capacity.is_some())
            || self.table.charter(name).is_some_and(|charter| charter.capacity.is_some())
    }

    /// The first slot lease gives a resource its capacity, if it has none.
    pub(super) fn give_capacity(&mut self, wish: &Wish<'_>) {
        let (Some(units), [(name, Access::Slot)]) = (wish.slots, wish.asks) else {
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

    /// Who asks: a session's own actor, a named one, or a name without a session.
    fn asker<'a>(
        &mut self,
        session: Option<SessionId>,
        holder: &'a str,
        own_name: &'a mut String,
    ) -> Result<Asker<'a>, Refusal> {
        let Some(id) = session else {
            let holder = HolderName::parse(holder)?.as_str();
            return Ok(Asker { session: NONE, waits_only: false, holder, party: None });
        };
        let slot = self.live_session(id)?;
        let holder = if holder.is_empty() {
            own_name.clear();
            let own = self.table.session(slot).holder;
            own_name.push_str(self.table.resources.names.get(self.table.parties.holder(own).name));
            own_name.as_str()
        } else {
            HolderName::parse(holder)?.as_str()
        };
        let known = self.table.parties.find_holder(holder, &self.table.resources.names);
        let party = known.and_then(|holder| self.table.parties.find(slot, holder));
        let session = self.table.session(slot);
        if party.is_none() && session.parties.len() >= limits::ACTORS_PER_SESSION as usize {
            let max = u64::from(limits::ACTORS_PER_SESSION);
            return Err(Refusal::Exhausted { limit: Limit::SessionActors, max, got: max + 1 });
        }
        Ok(Asker { session: slot, waits_only: session.waits_only, holder, party })
    }

    /// A hold that the same actor already has is entered again, if it asked for that, or refused: it would wait for itself.
    fn enter_again(
        &mut self,
        asker: &Asker<'_>,
        name: &str,
        access: Access,
        terms: &Terms<'_>,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(own) = self.own_exclusive(asker, name) else {
            self.check_not_own(asker, name, access)?;
            return Ok(None);
        };
        if !terms.reentrant || access != Access::Exclusive {
            return Err(self.waits_for_itself(asker, name));
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
        Ok(Some(Answer::Granted(self.grant_now(own))))
    }

    fn own_exclusive(&self, asker: &Asker<'_>, name: &str) -> Option<u32> {
        let party = asker.party?;
        let resource = self.table.resources.find(name)?;
        let sole = self.table.resources.sole(resource);
        let crowd = self.table.resources.crowd(resource).map_or(&[][..], |crowd| &crowd.leases);
        crowd.iter().copied().chain((sole != NONE).then_some(sole)).find(|slot| {
            let lease = self.table.lease(*slot);
            lease.party == party && lease.access() == Access::Exclusive && !lease.is_apart()
        })
    }

    /// Refuses what could only be had if the asker itself gave something up.
    fn check_not_own(&self, asker: &Asker<'_>, name: &str, access: Access) -> Result<(), Refusal> {
        let (Some(party), Some(resource)) = (asker.party, self.table.resources.find(name)) else {
            return Ok(());
        };
        let sole = self.table.resources.sole(resource);
        let crowd = self.table.resources.crowd(resource).map_or(&[][..], |crowd| &crowd.leases);
        let own = crowd.iter().copied().chain((sole != NONE).then_some(sole)).any(|slot| {
            let lease = self.table.lease(slot);
            let clash = match (lease.access(), access) {
                (Access::Exclusive, _) | (_, Access::Exclusive) => true,
                (Access::Shared, Access::Shared) => false,
                (Access::Shared, _) | (_, Access::Shared) => true,
                _ => false,
            };
            lease.party == party && clash && !lease.is_apart()
        });
        if own { Err(self.waits_for_itself(asker, name)) } else { Ok(()) }
    }

    fn waits_for_itself(&self, asker: &Asker<'_>, name: &str) -> Refusal {
        let member = Member { holder: asker.holder.to_owned(), waits_for: name.to_owned() };
        Refusal::Deadlock(Box::new(Cycle { members: vec![member], length: 1 }))
    }

    fn take_or_wait(
        &mut self,
        request: &Request,
        asker: &Asker<'_>,
        wish: &Wish<'_>,
        terms: &Terms<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_room(asker, wish.asks)?;
        let free = wish.asks.iter().try_for_each(|(name, access)| self.is_free(name, *access, terms.priority));
        let why = match free.and_then(|()| self.check_quarantine()) {
            Ok(()) => return self.grant_all(asker, wish, terms),
            Err(why) => why,
        };
        if terms.wait_ms == 0 {
            return Err(why);
        }
        if asker.session == NONE {
            return Err(Refusal::Invalid {
                field: "wait",
                reason: "a wait belongs to a session; open one, or do not wait",
            });
        }
        self.wait(request, asker, wish, terms)
    }

    /// Whether so much of a resource can be had at once, past nobody who waits.
    fn is_free(&self, name: &str, access: Access, priority: u8) -> Result<(), Refusal> {
        let Some(resource) = self.table.resources.find(name) else {
            return Ok(());
        };
        let Some(crowd) = self.table.resources.crowd(resource) else {
            let free = self.table.resources.sole(resource) == NONE;
            return if free { Ok(()) } else { Err(Refusal::Busy { position: 1 }) };
        };
        if crowd.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let overtakes = mutants::on(Mutant::ReadersOvertake) && access == Access::Shared;
        let fits = crowd.fits(access, self.table.capacity(resource));
        if fits && (overtakes || !self.somebody_waits_before(resource, priority)) {
            Ok(())
        } else {
            Err(Refusal::Busy { position: crowd.queue.position(priority) })
        }
    }

    fn check_room(&self, asker: &Asker<'_>, asks: &[(&str, Access)]) -> Result<(), Refusal> {
        let more = asks.len();
        if self.table.leases.count() + more > limits::LEASES || self.table.resources.len() + more > limits::LEASES {
            let (max, got) = (limits::LEASES as u64, (self.table.leases.count() + more) as u64);
            return Err(Refusal::Exhausted { limit: Limit::Leases, max, got });
        }
        if asker.session != NONE && !asker.waits_only {
            let got = u64::from(self.table.session(asker.session).leases) + more as u64;
            let max = u64::from(limits::LEASES_PER_SESSION);
            if got > max {
                return Err(Refusal::Exhausted { limit: Limit::SessionLeases, max, got });
            }
        }
        Ok(())
    }

    fn wait(
        &mut self,
        request: &Request,
        asker: &Asker<'_>,
        wish: &Wish<'_>,
        terms: &Terms<'_>,
    ) -> Result<Answer, Refusal> {
        self.check_wait_room(asker, wish.asks)?;
        self.give_capacity(wish);
        let (waiter, _) = self.table.waiters.next_place();
        let (max_hold, progress) = (terms.max_hold_ms, terms.progress_ms);
        let position = wish.asks.iter().map(|(name, _)| self.position(name, terms.priority)).max().unwrap_or(1);
        self.record(&Record::Waiting(Waiting {
            waiter,
            session: asker.session,
            holder: asker.holder,
            asks: wish.asks.to_vec(),
            several: wish.several,
            ttl: wish.ttl,
            priority: terms.priority,
            until: self.now().plus(terms.wait_ms),
            sequence: request.id.map(|id| id.sequence),
            max_hold,
            progress,
            metadata: terms.metadata,
        }));
        self.table.waiters.at_mut(waiter).expect("just recorded").tag = Some(request.tag);
        self.wait_began(waiter);
        Ok(Answer::Waiting { position })
    }

    fn position(&self, name: &str, priority: u8) -> u32 {
        let resource = self.table.resources.find(name);
        resource.and_then(|at| self.table.resources.crowd(at)).map_or(1, |crowd| crowd.queue.position(priority))
    }

    fn check_wait_room(&self, asker: &Asker<'_>, asks: &[(&str, Access)]) -> Result<(), Refusal> {
        let full = |limit, max: u64| Err(Refusal::Exhausted { limit, max, got: max + 1 });
        if self.table.session(asker.session).waits >= limits::WAITERS_PER_SESSION {
            return full(Limit::SessionWaits, u64::from(limits::WAITERS_PER_SESSION));
        }
        if self.table.waiters.count() >= limits::WAITERS {
            return full(Limit::Waiters, limits::WAITERS as u64);
        }
        for (name, _) in asks {
            let resource = self.table.resources.find(name);
            let crowd = resource.and_then(|at| self.table.resources.crowd(at));
            if crowd.is_some_and(|crowd| crowd.queue.len() >= limits::WAITERS_PER_RESOURCE) {
                return full(Limit::Waiters, limits::WAITERS_PER_RESOURCE as u64);
            }
        }
        Ok(())
    }
}
