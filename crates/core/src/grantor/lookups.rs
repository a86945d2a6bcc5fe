//! Lookups: reads of the state that change nothing. A driver answers queries with them after it confirmed its leadership (E1).

use super::Grantor;
use super::query_budget::QueryBudget;
use super::table::actors::Waiter;
use super::table::ended::{EndedLease, Usage};
use super::table::lease::NONE;
use super::view::{ContendedResourceView, LeaseView, ResourceView, SessionView, Status, WaiterView};
use super::{Deadlock, table};
use crate::access::IdentityUsage;
use crate::charter::Charter;
use crate::command::LeaseSelector;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{EndReason, LeaseState};
use crate::limits::SLOT_STEPS;
use crate::name::resource_hash;
use crate::payload::{cache::CacheTable, delivery::QueueTable, state::StateTable};
use crate::token::{Number, Token};

impl Grantor {
    /// What one identity has now.
    pub fn identity_usage(&self, principal: &str) -> IdentityUsage {
        self.table.usage_of(principal)
    }

    /// Every identity that was ever given anything, with what it has now.
    pub fn identity_usages(&self) -> impl Iterator<Item = (&str, IdentityUsage)> {
        self.table.usages()
    }

    /// Status and counts.
    pub fn status(&self) -> Status {
        let identity = self.table.identity.expect("an opened grantor has an identity");
        let quarantine = self.table.quarantine.filter(|quarantine| quarantine.until > self.table.time);
        Status {
            cluster: identity.cluster,
            incarnation: identity.incarnation,
            generation: self.table.generation,
            tenure: self.table.clock.tenure,
            validity: self.validity,
            time: self.table.time,
            counter: self.table.counter,
            max_ttl_ms: identity.max_ttl,
            held: self.table.leases.count(),
            sessions: self.table.sessions.count(),
            waiters: self.table.waiters.count(),
            totals: self.table.totals,
            deadlocks: self.table.deadlocks_found,
            quarantine: quarantine.map(|q| (self.table.time.until(q.until), q.rolled_back)),
            stalled_ms: self.table.clock.total_stalled,
        }
    }

    /// Number of held leases.
    pub fn active_count(&self) -> usize {
        self.table.leases.count()
    }

    /// One held lease.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseView> {
        self.table.live(id).map(|_| self.lease_view(id.slot))
    }

    /// State and end reason of a lease, while it is known.
    pub fn state_of(&self, id: LeaseId) -> Option<(LeaseState, Option<EndReason>)> {
        if self.table.live(id).is_some() {
            return Some((LeaseState::Held, None));
        }
        let reason = self.table.leases.tombstone(id.slot, id.reuse)?.end_reason();
        Some((reason.state(), Some(reason)))
    }

    /// The resource of a held lease.
    pub fn resource_of(&self, id: LeaseId) -> Option<&str> {
        self.table.live(id).map(|lease| self.table.resources.name(lease.resource))
    }

    /// Names of the resource and of the holder of a held lease.
    pub fn names_of(&self, id: LeaseId) -> Option<(&str, &str)> {
        let lease = self.table.live(id)?;
        Some((self.table.resources.name(lease.resource), self.table.holder_name(lease.actor)))
    }

    /// The resource and the token of a live lease, by its id, or by its resource and number.
    pub fn token_of(&self, selector: LeaseSelector<'_>, number: Number) -> Option<(&str, Token)> {
        let slot = match selector {
            LeaseSelector::Id(id) => self.table.live(id).map(|_| id.slot)?,
            LeaseSelector::Resource(name) => self.slot_by_number(self.table.resources.find(name)?, number)?,
        };
        let (lease, identity) = (self.table.lease(slot), self.table.identity?);
        let resource = self.table.resources.name(lease.resource);
        let (scope, hash) = (lease.scope(), resource_hash(resource));
        let (cluster, incarnation) = (identity.cluster, identity.incarnation);
        let token = Token { cluster, incarnation, resource: hash, scope, number };
        (lease.number() == number).then_some((resource, token))
    }

    /// A resource with all its leases.
    pub fn show(&self, name: &str) -> Option<ResourceView> {
        self.show_first(name, usize::MAX, &mut QueryBudget::unlimited())
    }

    /// A resource with its first leases, at most `leases`. Of a resource with more leases than the budget has steps, some are
    /// shown that are not the first.
    pub fn show_first(&self, name: &str, leases: usize, budget: &mut QueryBudget) -> Option<ResourceView> {
        self.table.resources.find(name).map(|resource| self.resource_view(resource, leases, budget))
    }

    /// Resources under a prefix in slot order, at most `limit`, each with its first leases, at most `leases`. Returns the slot to
    /// continue from, if there is more; that is within the budget, but at least one slot further.
    pub fn list(
        &self,
        prefix: &str,
        from: u32,
        limit: usize,
        leases: usize,
        budget: &mut QueryBudget,
    ) -> (Vec<ResourceView>, Option<u32>) {
        self.list_where(prefix, from, limit, leases, budget, |_| true)
    }

    /// [`Grantor::list`] of the names that `is_visible` selects. Others cost as much as vacant slots.
    pub(super) fn list_where(
        &self,
        prefix: &str,
        from: u32,
        limit: usize,
        leases: usize,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
    ) -> (Vec<ResourceView>, Option<u32>) {
        let mut found = Vec::new();
        let end = self.table.resources.slot_count();
        let mut slot = from;
        while slot < end && found.len() < limit && (slot == from || budget.left() > 0) {
            let name = self.table.resources.at(slot).map(|_| self.table.resources.name(slot));
            if name.is_some_and(|name| covers(prefix, name) && is_visible(name)) {
                let held = self.held_on(slot);
                // The next page has the whole budget for it.
                if !found.is_empty() && QueryBudget::steps_of_views(held, held.min(leases)) > budget.left() {
                    break;
                }
                found.push(self.resource_view(slot, leases, budget));
            }
            budget.take(SLOT_STEPS);
            slot += 1;
        }
        (found, (slot < end).then_some(slot))
    }

    /// All leases of actors with this name, in order of token numbers.
    pub fn held_by(&self, holder: &str) -> Vec<LeaseView> {
        self.held_page(holder, 0, usize::MAX, &mut QueryBudget::unlimited()).expect("the budget is unlimited")
    }

    /// Leases of actors with this name and a token number above `after`, at most `limit`; `None` if it has more leases than the
    /// budget has steps.
    pub fn held_page(
        &self,
        holder: &str,
        after: u64,
        limit: usize,
        budget: &mut QueryBudget,
    ) -> Option<Vec<LeaseView>> {
        self.held_where(holder, after, limit, budget, |_| true)
    }

    /// [`Grantor::held_page`] of leases of the resources that `is_visible` selects.
    pub(super) fn held_where(
        &self,
        holder: &str,
        after: u64,
        limit: usize,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
    ) -> Option<Vec<LeaseView>> {
        let Some(holder) = self.table.actors.find_holder(holder, &self.table.resources.names) else {
            return Some(Vec::new());
        };
        let actors = &self.table.actors.holder(holder).actors;
        let held = actors.iter().map(|actor| 1 + self.table.actors[*actor].held as usize).try_fold(
            0,
            |sum: usize, held| {
                let sum = sum.saturating_add(held);
                (sum <= budget.left()).then_some(sum)
            },
        )?;
        budget.take(held);
        let mut found = Vec::new();
        for actor in actors {
            let mut slot = self.table.actors[*actor].leases;
            while slot != NONE {
                let lease = self.table.lease(slot);
                if lease.number().get() > after && is_visible(self.table.resources.name(lease.resource)) {
                    found.push((lease.number(), slot));
                }
                slot = lease.next;
            }
        }
        Some(self.first_views(found, limit, budget))
    }

    /// Waiters of a resource, in queue order.
    pub fn waiters(&self, name: &str) -> Vec<WaiterView> {
        self.waiters_page(name, 0, usize::MAX)
    }

    /// Waiters of a resource from position `from`, at most `limit`.
    pub fn waiters_page(&self, name: &str, from: usize, limit: usize) -> Vec<WaiterView> {
        let state = self.table.resources.find(name).and_then(|at| Some((at, self.table.resources.state(at)?)));
        let Some((resource, state)) = state else {
            return Vec::new();
        };
        let positions = state.queue.iter().skip(from).take(limit);
        positions.map(|position| self.waiter_view(resource, self.table.waiter(position.waiter))).collect()
    }

    /// Resources with waiters in slot order, at most `limit`, each with its first leases and waiters, if `is_visible` selects their
    /// names. Returns the slot to continue from, if there is more; that is within the budget, but at least one resource further.
    pub(super) fn contended_page(
        &self,
        from: u32,
        limit: usize,
        leases: usize,
        waiters: usize,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
    ) -> (Vec<ContendedResourceView>, Option<u32>) {
        let mut found: Vec<ContendedResourceView> = Vec::new();
        for (visited, slot) in self.table.resources.contended.range(from..).copied().enumerate() {
            if found.len() == limit || (visited > 0 && budget.left() == 0) {
                return (found, Some(slot));
            }
            let name = self.table.resources.name(slot);
            if is_visible(name) {
                let queue = self.table.resources.state(slot).map_or(0, |state| state.queue.len());
                let (held, waiters) = (self.held_on(slot), waiters.min(queue));
                // The next page has the whole budget for it.
                if !found.is_empty() && QueryBudget::steps_of_views(held, held.min(leases) + waiters) > budget.left() {
                    return (found, Some(slot));
                }
                let view = self.resource_view(slot, leases, budget);
                let waiters = self.waiters_page(name, 0, waiters);
                budget.take(QueryBudget::steps_of_views(0, waiters.len()));
                found.push(ContendedResourceView { view, waiters });
            }
            budget.take(SLOT_STEPS);
        }
        (found, None)
    }

    /// Recently ended leases of a resource, latest first, at most `limit`.
    pub fn history(&self, name: &str, limit: usize) -> Vec<EndedLease> {
        self.table.ended_leases.of_resource(name).take(limit).collect()
    }

    /// The last ended leases of all resources, in the order of their ends, at most `limit`.
    pub fn last_ended(&self, limit: usize) -> Vec<EndedLease> {
        self.table.ended_leases.last(limit)
    }

    /// Usage of a holder, by end reason.
    pub fn usage(&self, holder: &str) -> Option<Usage> {
        let holder = self.table.actors.find_holder(holder, &self.table.resources.names)?;
        self.table.actors.holder(holder).usage.as_deref().copied()
    }

    /// Usage of counted holders whose names follow `after`, in order of names, at most `limit`; and the usage of all holders that
    /// are not counted by name.
    pub fn usage_page(&self, after: &str, limit: usize) -> (Vec<(String, Usage)>, Usage) {
        let names = &self.table.resources.names;
        let counted = self.table.actors.holders().filter_map(|holder| {
            let usage = holder.usage.as_deref()?;
            Some((names.get(holder.name), usage)).filter(|(name, _)| *name > after)
        });
        let first = first_by_key(counted.collect(), limit, |(name, _)| *name);
        (first.into_iter().map(|(name, usage)| (name.to_owned(), *usage)).collect(), self.table.others)
    }

    /// The last deadlocks, latest last.
    pub fn deadlocks(&self) -> impl Iterator<Item = &Deadlock> {
        self.table.deadlocks.iter()
    }

    /// A session.
    pub fn session(&self, id: SessionId) -> Option<SessionView> {
        let session = self.table.sessions.live(id.slot, id.reuse)?;
        let now = self.table.time;
        let ttl = u64::from(session.renewal.ttl);
        Some(SessionView {
            session: id,
            holder: self.table.resources.names.get(self.table.actors.holder(session.holder).name).to_owned(),
            ttl_ms: ttl,
            remaining_ms: now.until(self.table.session_deadline(id.slot, now)),
            suspect: now.since(session.renewal.renewed(now)) * 2 >= ttl,
            leases: session.leases,
            waits: session.waits,
        })
    }

    /// The charter of a resource and its prefix.
    pub fn charter_of(&self, name: &str) -> Option<(&str, &Charter)> {
        self.table.charters.find(name)
    }

    /// All charters, by prefix.
    pub fn charters(&self) -> impl Iterator<Item = (&str, &Charter)> {
        self.table.charters.iter()
    }

    /// State stored under leases.
    pub fn state(&self) -> &StateTable {
        &self.table.state_table
    }

    /// The message queues.
    pub fn queues(&self) -> &QueueTable {
        &self.table.queues
    }

    /// The cached keys.
    pub fn cache(&self) -> &CacheTable {
        &self.table.cache
    }

    pub(super) fn lease_view(&self, slot: u32) -> LeaseView {
        let table: &table::GrantorTable = &self.table;
        let lease = table.lease(slot);
        let actor = &table.actors[lease.actor];
        let extra = table.extra(slot);
        let waits = table.resources.state(lease.resource).and_then(|state| state.queue.first());
        LeaseView {
            lease: table.lease_id(slot),
            resource: table.resources.name(lease.resource).to_owned(),
            holder: table.holder_name(lease.actor).to_owned(),
            session: (actor.session != NONE).then(|| self.session_id(actor.session)),
            number: lease.number(),
            access: lease.access(),
            scope: lease.scope(),
            ttl_ms: (!lease.follows_session()).then_some(u64::from(lease.renewal.ttl)),
            remaining_ms: self.remaining(slot),
            granted: lease.granted(),
            validity: self.validity,
            state: LeaseState::Held,
            priority: lease
                .priority()
                .max(waits.map_or(0, |position| position.priority()))
                .max(table.inherited(lease.actor)),
            draining: extra
                .and_then(|extra| extra.drain.as_ref())
                .map(|drain| (drain.cause.reason(), table.time.until(drain.until))),
            predecessor: lease.is_predecessor(),
            progress: extra.and_then(|extra| extra.progress).map(|progress| progress.seen),
            metadata: extra.map_or_else(Vec::new, |extra| extra.metadata.to_vec()),
        }
    }

    /// Number of leases of a resource.
    fn held_on(&self, resource: u32) -> usize {
        let sole = usize::from(self.table.resources.sole(resource) != NONE);
        sole + self.table.resources.state(resource).map_or(0, |state| state.leases.len())
    }

    fn resource_view(&self, resource: u32, leases: usize, budget: &mut QueryBudget) -> ResourceView {
        let name = self.table.resources.name(resource);
        let state = self.table.resources.state(resource);
        let (sole, held) = (self.table.resources.sole(resource), self.held_on(resource));
        let slots = state.map_or(&[][..], |state| &state.leases).iter().copied().chain((sole != NONE).then_some(sole));
        let found: Vec<_> = slots.take(budget.left()).map(|slot| (self.table.lease(slot).number(), slot)).collect();
        budget.take(found.len());
        let leases = self.first_views(found, leases, budget);
        let capacity = self.table.capacity(resource);
        let (used, confirmed) = state.map_or((0, 0), |state| (state.used, state.confirmed));
        ResourceView {
            resource: name.to_owned(),
            capacity,
            used,
            confirmed,
            draining: u64::from(used) + confirmed > u64::from(capacity),
            held_for_operator: state.is_some_and(|state| state.for_operator),
            leases,
            held,
            waiters: state.map_or(0, |state| state.queue.len()),
            floor: state.map_or(0, |state| state.floor),
        }
    }

    /// Views of the leases with the lowest token numbers, in their order. Only these are built.
    fn first_views(&self, found: Vec<(Number, u32)>, limit: usize, budget: &mut QueryBudget) -> Vec<LeaseView> {
        let first = first_by_key(found, limit, |(number, _)| *number);
        budget.take(QueryBudget::steps_of_views(0, first.len()));
        first.into_iter().map(|(_, slot)| self.lease_view(slot)).collect()
    }

    fn waiter_view(&self, resource: u32, waiter: &Waiter) -> WaiterView {
        let session = self.table.actors[waiter.actor].session;
        let wanted =
            waiter.resources.iter().find(|wanted| wanted.resource == resource).expect("the waiter is in this queue");
        WaiterView {
            holder: self.table.holder_name(waiter.actor).to_owned(),
            session: self.session_id(session),
            access: wanted.access,
            priority: waiter.priority,
            effective_priority: waiter.effective,
            remaining_ms: self.table.time.until(waiter.until),
            alive: self.table.session(session).renewal.alive_in_tenure(&self.table.clock),
        }
    }
}

/// The `limit` lowest items, in order. Only these are sorted.
fn first_by_key<T, K: Ord>(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    if items.len() > limit {
        if limit > 0 {
            items.select_nth_unstable_by_key(limit - 1, &key);
        }
        items.truncate(limit);
    }
    items.sort_unstable_by_key(key);
    items
}

/// Whether a prefix of whole segments covers a name.
pub(super) fn covers(prefix: &str, name: &str) -> bool {
    prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
