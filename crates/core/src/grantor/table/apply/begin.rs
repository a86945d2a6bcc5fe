//! Application of records that begin something: tenures, sessions, leases, waits.

use super::super::GrantorTable;
use super::super::actors::{ResourceRequest, SessionEntry, Waiter};
use super::super::deadline::RenewableDeadline;
use super::super::lease::{NONE, Progress, StoredLease};
use super::ApplyError;
use crate::access::IdentityUsage;
use crate::ids::{LeaseId, SessionId};
use crate::mutants::{self, Mutant};
use crate::record::{GrantRecord, WaitRecord};
use crate::store::slab::REUSE_MAX;
use crate::time::GrantorTime;

impl GrantorTable {
    /// Begins a tenure: entries alive in the previous tenure get a full ttl (L2), all others keep their deadline (L9).
    pub(super) fn open(&mut self, generation: u64, counter: u64) -> Result<(), ApplyError> {
        if self.identity.is_none() {
            return Err("opened before it was created");
        }
        let last = self.counter;
        self.raise_to(counter)?;
        // Before the first opening nothing was issued that could be lost.
        if self.generation > 0 && !mutants::on(Mutant::GapForgotten) {
            self.gaps.open(last, counter);
        }
        self.waived_until = GrantorTime(0);
        self.generation = generation;
        let before = self.clock.clone();
        self.clock.tenure_begins();
        let leases: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in leases {
            if !mutants::on(Mutant::ExtensionNotRecorded) {
                self.leases.at_mut(slot).expect("live").renewal.carry_over(&before, self.time);
            }
            if let Some(progress) = self.extras.get_mut(&slot).and_then(|extra| extra.progress.as_mut()) {
                progress.renewal.carry_over(&before, self.time);
            }
            self.arm_lease(slot);
        }
        let sessions: Vec<u32> = self.sessions.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in sessions {
            self.sessions.at_mut(slot).expect("live").renewal.carry_over(&before, self.time);
            self.arm_session(slot);
        }
        Ok(())
    }

    pub(super) fn open_session(
        &mut self,
        id: SessionId,
        owner: Option<&str>,
        holder: &str,
        ttl: u32,
        secret: [u8; 32],
        waits_only: bool,
    ) -> Result<(), ApplyError> {
        let (slot, next) = self.sessions.next_slot();
        if id.slot != slot || !(next..=REUSE_MAX).contains(&id.reuse) {
            return Err("a session in another slot than the next");
        }
        let usage = IdentityUsage::of_session(waits_only, holder);
        let holder = self.actors.intern_holder(holder, &mut self.resources.names);
        self.actors.holder_mut(holder).sessions += 1;
        let owner = self.owners.intern(owner);
        self.owners.usage_mut(owner).add(usage);
        let session = SessionEntry {
            owner,
            checked: 0,
            holder,
            renewal: RenewableDeadline::started(ttl, self.time, self.clock.epoch),
            secret,
            waits_only,
            actors: Vec::new(),
            leases: 0,
            waits: 0,
            digest: 0,
            requests: std::collections::VecDeque::new(),
            lowest: 1,
        };
        self.sessions.occupy_as(id.reuse, session);
        self.index_key_session(id.slot);
        self.arm_session(id.slot);
        Ok(())
    }

    pub(super) fn grant(&mut self, granted: &GrantRecord<'_>) -> Result<(), ApplyError> {
        self.raise(granted.number)?;
        let LeaseId { slot, reuse } = granted.lease;
        if self.leases.next_slot() != (slot, reuse) {
            return Err("a lease in another slot than the next");
        }
        let session = match granted.session {
            Some(session) if self.sessions.is_live(session) => session,
            Some(_) => return Err("a grant to a session that ended"),
            None if granted.ttl == 0 => return Err("a lease with neither a ttl nor a session"),
            None => NONE,
        };
        if session != NONE && granted.owner.is_some() {
            return Err("an owner of a lease in a session");
        }
        if let Some(predecessor) = granted.overlaps {
            self.mark_predecessor(predecessor, granted.resource)?;
        }
        let resource = self.resources.enter(granted.resource);
        let capacity = self.capacity(resource);
        let fits = match self.resources.state(resource) {
            Some(state) => state.fits(granted.access, capacity),
            None => self.resources.sole(resource) == NONE,
        };
        if !fits {
            return Err("more units granted than the capacity");
        }
        let actor = if session == NONE {
            let owner = self.owners.intern(granted.owner);
            self.enter_sessionless_actor(owner, granted.holder)
        } else {
            self.enter_actor(session, granted.holder)
        };
        let renewal = RenewableDeadline::started(granted.ttl, self.time, self.clock.epoch);
        let lease =
            StoredLease::new(granted.number, self.time, granted.access, granted.slot, granted.priority, renewal);
        self.leases.occupy(lease);
        self.link_lease(slot, resource, actor);
        let has_extra = granted.max_hold.is_some()
            || granted.progress.is_some()
            || granted.overlaps.is_some()
            || !granted.metadata.is_empty();
        if has_extra {
            let (now, epoch) = (self.time, self.clock.epoch);
            self.change_extra(slot, |extra| {
                extra.max_hold = granted.max_hold;
                extra.progress = granted.progress.map(|window| Progress {
                    renewal: RenewableDeadline::started(window as u32, now, epoch),
                    at: 0,
                    seen: 0,
                });
                extra.predecessor = granted.overlaps;
                extra.metadata = granted.metadata.into();
            });
            self.count_metadata(slot);
        }
        if let Some(predecessor) = granted.overlaps {
            self.change_extra(predecessor, |extra| extra.successor = Some(slot));
        }
        self.arm_lease(slot);
        if let Some(trace) = granted.waiter.and_then(|waiter| self.traces.of_wait(waiter)) {
            self.traces.set_lease(slot, trace);
        }
        // Last, because removing a waiter can make its resource vacant.
        granted.waiter.map_or(Ok(()), |waiter| self.complete_wait(waiter, granted.lease))
    }

    /// Marks the predecessor of an overlap handoff, which no longer counts against the capacity (L1, H2).
    pub(super) fn mark_predecessor(&mut self, predecessor: u32, resource: &str) -> Result<(), ApplyError> {
        let lease = *self.known(predecessor)?;
        if self.resources.name(lease.resource) != resource || lease.is_predecessor() {
            return Err("an overlap with a lease of another resource");
        }
        let state = self.resources.ensure_state(lease.resource);
        state.release_access(lease.access(), lease.slot());
        self.leases.at_mut(predecessor).expect("known").set_predecessor();
        Ok(())
    }

    /// Adds a granted lease to a wait, and ends the wait when all its resources are granted.
    pub(super) fn complete_wait(&mut self, waiter: u32, lease: LeaseId) -> Result<(), ApplyError> {
        let wait = self.waiters.at_mut(waiter).ok_or("no such waiter")?;
        wait.got += 1;
        let (done, sequence, actor) = (wait.got as usize == wait.resources.len(), wait.sequence, wait.actor);
        if let Some(sequence) = sequence {
            let session = self.actors[actor].session;
            self.sessions.at_mut(session).expect("a waiter's session").granted(sequence, lease);
        }
        if done {
            self.dequeue(waiter);
        }
        Ok(())
    }

    pub(super) fn alive(&mut self, slot: u32, ttl: Option<u32>) {
        let (now, epoch) = (self.time, self.clock.epoch);
        let renewal = &mut self.leases.at_mut(slot).expect("known").renewal;
        renewal.ttl = ttl.unwrap_or(renewal.ttl);
        renewal.renew(now);
        renewal.alive = epoch;
        self.arm_lease(slot);
    }

    pub(super) fn wait(&mut self, waiting: &WaitRecord<'_>) -> Result<(), ApplyError> {
        let (slot, _) = self.waiters.next_slot();
        if slot != waiting.waiter {
            return Err("a waiter in another slot than the next");
        }
        if !self.sessions.is_live(waiting.session) {
            return Err("a wait of a session that ended");
        }
        let names: std::collections::BTreeSet<&str> = waiting.resources.iter().map(|(name, _)| *name).collect();
        if names.len() != waiting.resources.len() {
            return Err("a wait for the same resource twice");
        }
        let actor = self.enter_actor(waiting.session, waiting.holder);
        let resources = waiting
            .resources
            .iter()
            .map(|(name, access)| ResourceRequest { resource: self.resources.enter(name), access: *access });
        let resources: Vec<ResourceRequest> = resources.collect();
        self.next_order += 1;
        self.waiters.occupy(Waiter {
            actor,
            resources,
            atomic: waiting.atomic,
            ttl: waiting.ttl,
            priority: waiting.priority,
            effective: waiting.priority,
            order: self.next_order,
            until: waiting.until,
            sequence: waiting.sequence,
            max_hold: waiting.max_hold,
            progress: waiting.progress,
            metadata: waiting.metadata.into(),
            got: 0,
            tag: None,
            may_pass: false,
        });
        self.enqueue(slot);
        Ok(())
    }
}
