//! What begins: tenures, sessions, leases, waits.

use super::super::Table;
use super::super::lease::{Lease, NONE, Progress};
use super::super::party::{Ask, Session, Waiter};
use super::super::term::Term;
use super::Misfit;
use crate::ids::{LeaseId, SessionId};
use crate::mutants::{self, Mutant};
use crate::record::{Granted, Waiting};
use crate::store::slots::REUSE_MAX;

impl Table {
    /// A tenure begins: what was alive in the one before gets a full ttl from here (L2), everything else keeps its deadline (L9).
    pub(super) fn open(&mut self, generation: u64, counter: u64) -> Result<(), Misfit> {
        if self.identity.is_none() {
            return Err("opened before it was created");
        }
        self.raise_to(counter)?;
        self.generation = generation;
        let before = self.clock.clone();
        self.clock.tenure_begins();
        let leases: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in leases {
            if !mutants::on(Mutant::ExtensionNotRecorded) {
                self.leases.at_mut(slot).expect("live").term.carried_over(&before, self.time);
            }
            if let Some(progress) = self.extras.get_mut(&slot).and_then(|extra| extra.progress.as_mut()) {
                progress.term.carried_over(&before, self.time);
            }
            self.arm_lease(slot);
        }
        let sessions: Vec<u32> = self.sessions.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in sessions {
            self.sessions.at_mut(slot).expect("live").term.carried_over(&before, self.time);
            self.arm_session(slot);
        }
        Ok(())
    }

    pub(super) fn open_session(
        &mut self,
        id: SessionId,
        holder: &str,
        ttl: u32,
        secret: [u8; 32],
        waits_only: bool,
    ) -> Result<(), Misfit> {
        let (slot, next) = self.sessions.next_place();
        if id.slot != slot || !(next..=REUSE_MAX).contains(&id.reuse) {
            return Err("a session in another place than the next");
        }
        let holder = self.parties.enter_holder(holder, &mut self.resources.names);
        self.parties.holder_mut(holder).sessions += 1;
        let session = Session {
            holder,
            term: Term::begun(ttl, self.time, self.clock.epoch),
            secret,
            waits_only,
            parties: Vec::new(),
            leases: 0,
            waits: 0,
            digest: 0,
            requests: std::collections::VecDeque::new(),
            lowest: 1,
        };
        self.sessions.occupy_as(id.reuse, session);
        self.arm_session(id.slot);
        Ok(())
    }

    pub(super) fn grant(&mut self, granted: &Granted<'_>) -> Result<(), Misfit> {
        self.raise(granted.number)?;
        let LeaseId { slot, reuse } = granted.lease;
        if self.leases.next_place() != (slot, reuse) {
            return Err("a lease in another place than the next");
        }
        let session = match granted.session {
            Some(session) if self.sessions.is_live(session) => session,
            Some(_) => return Err("a grant to a session that is over"),
            None if granted.ttl == 0 => return Err("a lease that neither has a ttl nor a session"),
            None => NONE,
        };
        if let Some(predecessor) = granted.overlaps {
            self.stand_apart(predecessor, granted.resource)?;
        }
        let resource = self.resources.enter(granted.resource);
        let capacity = self.capacity(resource);
        let fits = match self.resources.crowd(resource) {
            Some(crowd) => crowd.fits(granted.access, capacity),
            None => self.resources.sole(resource) == NONE,
        };
        if !fits {
            return Err("more units held than there are");
        }
        let party = self.enter_party(session, granted.holder);
        let term = Term::begun(granted.ttl, self.time, self.clock.epoch);
        let lease = Lease::new(granted.number, self.time, granted.access, granted.slot, granted.priority, term);
        self.leases.occupy(lease);
        self.link_lease(slot, resource, party);
        let asks_more = granted.max_hold.is_some()
            || granted.progress.is_some()
            || granted.overlaps.is_some()
            || !granted.metadata.is_empty();
        if asks_more {
            let (now, epoch) = (self.time, self.clock.epoch);
            self.change_extra(slot, |extra| {
                extra.max_hold = granted.max_hold;
                extra.progress = granted.progress.map(|window| Progress {
                    term: Term::begun(window as u32, now, epoch),
                    at: 0,
                    seen: 0,
                });
                extra.predecessor = granted.overlaps;
                extra.metadata = granted.metadata.into();
            });
        }
        if let Some(predecessor) = granted.overlaps {
            self.change_extra(predecessor, |extra| extra.successor = Some(slot));
        }
        self.arm_lease(slot);
        // Last: a waiter that leaves takes a resource with it that nothing else stands at.
        granted.waiter.map_or(Ok(()), |waiter| self.answer_waiter(waiter, granted.lease))
    }

    /// An overlap handoff: the predecessor drains and is counted apart from now on (L1, H2).
    pub(super) fn stand_apart(&mut self, predecessor: u32, resource: &str) -> Result<(), Misfit> {
        let lease = *self.known(predecessor)?;
        if self.resources.name(lease.resource) != resource || lease.is_apart() {
            return Err("an overlap with a lease of another resource");
        }
        let crowd = self.resources.gather(lease.resource);
        crowd.give_back(lease.access(), lease.slot());
        self.leases.at_mut(predecessor).expect("known").set_apart();
        Ok(())
    }

    /// A wait is over because all it asked for was granted.
    pub(super) fn answer_waiter(&mut self, waiter: u32, lease: LeaseId) -> Result<(), Misfit> {
        let wait = self.waiters.at_mut(waiter).ok_or("no such waiter")?;
        wait.got += 1;
        let (done, sequence, party) = (wait.got as usize == wait.asks.len(), wait.sequence, wait.party);
        if let Some(sequence) = sequence {
            let session = self.parties[party].session;
            self.sessions.at_mut(session).expect("a waiter's session").granted(sequence, lease);
        }
        if done {
            self.dequeue(waiter);
        }
        Ok(())
    }

    pub(super) fn alive(&mut self, slot: u32, ttl: Option<u32>) {
        let (now, epoch) = (self.time, self.clock.epoch);
        let term = &mut self.leases.at_mut(slot).expect("known").term;
        term.ttl = ttl.unwrap_or(term.ttl);
        term.renew(now);
        term.alive = epoch;
        self.arm_lease(slot);
    }

    pub(super) fn wait(&mut self, waiting: &Waiting<'_>) -> Result<(), Misfit> {
        let (slot, _) = self.waiters.next_place();
        if slot != waiting.waiter {
            return Err("a waiter in another place than the next");
        }
        if !self.sessions.is_live(waiting.session) {
            return Err("a wait of a session that is over");
        }
        let names: std::collections::BTreeSet<&str> = waiting.asks.iter().map(|(name, _)| *name).collect();
        if names.len() != waiting.asks.len() {
            return Err("a wait for the same resource twice");
        }
        let party = self.enter_party(waiting.session, waiting.holder);
        let asks =
            waiting.asks.iter().map(|(name, access)| Ask { resource: self.resources.enter(name), access: *access });
        let asks: Vec<Ask> = asks.collect();
        self.next_order += 1;
        self.waiters.occupy(Waiter {
            party,
            asks,
            several: waiting.several,
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
