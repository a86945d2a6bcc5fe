//! One door for change: what each record does to the state, in service and in replay.

use super::lease::{Drain, Lease, NONE, Progress};
use super::party::{Ask, Remembered, Session, Waiter};
use super::term::Term;
use super::{Deadlock, Identity, Quarantine, Table};
use crate::charter::Charter;
use crate::ids::{LeaseId, SessionId};
use crate::lease::Access;
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Granted, Outcome, Record, Waiting};
use crate::time::Millis;
use crate::token::Number;

/// A record that does not fit the state it is applied to. In replay it means damage, in service a broken promise.
pub(crate) type Misfit = &'static str;

impl Table {
    /// Changes the state by one fact, at the time of its batch.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), Misfit> {
        match record {
            Record::Created { cluster, incarnation, max_ttl } => {
                if self.identity.is_some() {
                    return Err("a cluster is created once");
                }
                self.identity = Some(Identity { cluster: *cluster, incarnation: *incarnation, max_ttl: *max_ttl });
            }
            Record::Opened { generation, counter } => self.open(*generation, *counter)?,
            Record::Idle => {}
            Record::Stalled { ms } => {
                if !mutants::on(Mutant::CreditNotRecorded) || self.due.listening {
                    self.clock.stalled(self.time, *ms);
                }
            }
            Record::Restored { incarnation, counter, quarantine } => {
                self.raise_to(*counter)?;
                self.restore();
                self.quarantine = Some(Quarantine { until: *quarantine, rolled_back: false });
                let identity = self.identity.as_mut().ok_or("restored before it was created")?;
                identity.incarnation = *incarnation;
            }
            Record::RolledBack { shown, counter, quarantine } => {
                if *counter < shown.get() {
                    return Err("a rollback is answered by a number above the shown one");
                }
                self.raise_to(*counter)?;
                self.quarantine = Some(Quarantine { until: *quarantine, rolled_back: true });
            }
            Record::QuarantineWaived { .. } => self.quarantine = None,
            Record::SessionOpened { session, holder, ttl, secret, waits_only } => {
                self.open_session(*session, holder, *ttl, *secret, *waits_only)?;
            }
            Record::SessionAlive { session } => {
                let (now, epoch) = (self.time, self.clock.epoch);
                let term = &mut self.sessions.at_mut(*session).ok_or("no such session")?.term;
                term.renew(now);
                term.alive = epoch;
                self.arm_session(*session);
            }
            Record::SessionEnded { session, reason: _ } => self.end_session(*session)?,
            Record::Granted(granted) => self.grant(granted)?,
            Record::Depth { lease, depth } => {
                self.known(*lease)?;
                self.change_extra(*lease, |extra| extra.depth = *depth);
            }
            Record::Alive { lease } => {
                self.known(*lease)?;
                self.alive(*lease, None);
            }
            Record::Retimed { lease, ttl } => {
                if self.known(*lease)?.rides() || *ttl == 0 {
                    return Err("a lease that rides on a session has no ttl");
                }
                self.alive(*lease, Some(*ttl));
            }
            Record::Ended { lease, number, reason, hold, why: _ } => {
                if self.known(*lease)?.number() != *number {
                    return Err("an end is guarded by the lease's token");
                }
                self.unlink_lease(*lease, *reason, *hold);
            }
            Record::Rotated { lease, number } => {
                self.raise(*number)?;
                let old = self.known(*lease)?.number().get();
                let party = self.lease(*lease).party;
                self.leases.at_mut(*lease).expect("known").set_number(*number);
                if let Some(session) = self.sessions.at_mut(self.parties[party].session) {
                    session.digest ^= old ^ number.get();
                }
            }
            Record::Progressed { lease, at } => {
                self.known(*lease)?;
                let (now, epoch) = (self.time, self.clock.epoch);
                let known = self.change_extra(*lease, |extra| {
                    let progress = extra.progress.as_mut()?;
                    progress.at = progress.at.max(*at);
                    progress.seen = progress.seen.max(*at);
                    progress.term.renew(now);
                    progress.term.alive = epoch;
                    Some(())
                });
                known.ok_or("progress of a lease that needs none")?;
                self.arm_lease(*lease);
            }
            Record::Waiting(waiting) => self.wait(waiting)?,
            Record::WaitEnded { waiter, why } => {
                let (_, wait) = self.waiters.at(*waiter).ok_or("no such waiter")?;
                let (sequence, session) = (wait.sequence, self.parties[wait.party].session);
                if let Some(sequence) = sequence {
                    let session = self.sessions.at_mut(session).expect("a waiter's session");
                    if let Some(digest) = session.remembered(sequence).map(|known| known.digest) {
                        let outcome = Outcome::Refused(why.clone());
                        session.remember(Remembered { sequence, digest, outcome });
                    }
                }
                self.dequeue(*waiter);
            }
            Record::Draining { lease, cause, until } => {
                self.known(*lease)?;
                let drain = Drain { until: *until, cause: (*cause).into() };
                self.change_extra(*lease, |extra| extra.drain = Some(drain));
                self.arm_lease(*lease);
            }
            Record::DrainDropped { lease } => {
                self.known(*lease)?;
                self.change_extra(*lease, |extra| extra.drain = None);
                self.arm_lease(*lease);
            }
            Record::Capacity { resource, units, lasting } => {
                let at = self.resources.enter(resource);
                let crowd = self.resources.gather(at);
                crowd.capacity = Some(*units);
                crowd.lasting |= lasting;
                self.offer_later(at);
            }
            Record::HoldConfirmed { lease, number } => self.confirm_hold(*lease, *number)?,
            Record::HoldResized { lease, units } => self.resize_hold(*lease, *units)?,
            Record::Vetoed { lease, until } => {
                self.known(*lease)?;
                self.change_extra(*lease, |extra| extra.veto = Some(*until));
                self.arm_lease(*lease);
            }
            Record::Pinned { lease, at } => {
                let resource = self.known(*lease)?.resource;
                let old = self.change_extra(*lease, |extra| extra.pinned.replace(*at));
                let pins = &mut self.resources.gather(resource).pins;
                if let Some(old) = old {
                    pins.remove(&(old, *lease));
                }
                pins.insert((*at, *lease));
            }
            Record::Floor { resource, at } => {
                let place = self.resources.enter(resource);
                let floor = &mut self.resources.gather(place).floor;
                *floor = (*floor).max(*at);
                self.resources.leave_if_empty(place);
            }
            Record::Freed { resource, .. } => {
                let place = self.resources.find(resource).ok_or("no such resource")?;
                self.resources.gather(place).for_operator = false;
                self.offer_later(place);
                self.resources.leave_if_empty(place);
            }
            Record::CharterSet { prefix, charter, .. } => {
                let charter = Charter::decode(charter).map_err(|_| "a charter that cannot be read")?;
                self.charters.set(prefix, charter).map_err(|_| "too many charters")?;
                self.count_rotating();
            }
            Record::CharterRemoved { prefix, .. } => {
                self.charters.remove(prefix).ok_or("no such charter")?;
                self.count_rotating();
            }
            Record::Answered { session, sequence, lowest, digest, outcome } => {
                let session = self.sessions.at_mut(*session).ok_or("no such session")?;
                session.acknowledge(*lowest);
                session.remember(Remembered { sequence: *sequence, digest: *digest, outcome: outcome.clone() });
            }
            Record::Deadlocked { cycle, victim, .. } => {
                self.deadlocks_found += 1;
                self.deadlocks.push_back(Deadlock {
                    at: self.time,
                    cycle: cycle.clone(),
                    victim: (*victim).to_owned(),
                });
                if self.deadlocks.len() > limits::DEADLOCKS_KEPT {
                    self.deadlocks.pop_front();
                }
            }
            Record::State(fact) => {
                self.numbers(fact.numbers())?;
                self.small.apply(fact, self.time)?;
            }
            Record::Delivery(fact) => {
                self.numbers(fact.numbers())?;
                self.queues.apply(fact, self.time)?;
            }
            Record::Cache(fact) => {
                self.numbers(fact.numbers())?;
                self.cache.apply(fact, self.time)?;
            }
        }
        Ok(())
    }

    fn known(&self, lease: u32) -> Result<&Lease, Misfit> {
        self.leases.at(lease).map(|(_, lease)| lease).ok_or("no such lease")
    }

    /// Every number given out is higher than all before it (T1), and said so twice: when granted and when applied.
    fn raise(&mut self, number: Number) -> Result<(), Misfit> {
        if number.get() <= self.counter {
            return Err("a token not above the counter");
        }
        self.counter = number.get();
        Ok(())
    }

    /// The counter is lifted, or stays.
    fn raise_to(&mut self, counter: u64) -> Result<(), Misfit> {
        if counter < self.counter || counter > Number::MAX.get() {
            return Err("a counter that falls, or is none");
        }
        self.counter = counter;
        Ok(())
    }

    fn numbers(&mut self, highest: Option<Number>) -> Result<(), Misfit> {
        highest.map_or(Ok(()), |highest| self.raise(highest))
    }

    /// A tenure begins: what was alive in the one before gets a full ttl from here (L2), everything else keeps its deadline (L9).
    fn open(&mut self, generation: u64, counter: u64) -> Result<(), Misfit> {
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

    /// Nothing in a backup is renewable (T5).
    fn restore(&mut self) {
        if mutants::on(Mutant::BackupRenewable) {
            return;
        }
        let sessions: Vec<(u32, u32)> = self.sessions.iter_live().map(|(slot, reuse, _)| (slot, reuse)).collect();
        for (slot, reuse) in sessions {
            self.end_session_as(SessionId { slot, reuse }, Reason::Restored).expect("live");
        }
        let leases: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in leases {
            self.unlink_lease(slot, Reason::Restored, false);
        }
        self.queues.restored(self.time);
        self.cache.restored(self.time);
    }

    fn open_session(
        &mut self,
        id: SessionId,
        holder: &str,
        ttl: u32,
        secret: [u8; 32],
        waits_only: bool,
    ) -> Result<(), Misfit> {
        if self.sessions.next_place() != (id.slot, id.reuse) {
            return Err("a session in another place than the next");
        }
        let holder = self.parties.enter_holder(holder, &mut self.resources.names);
        self.parties.holder_mut(holder).sessions += 1;
        self.sessions.occupy(Session {
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
        });
        self.arm_session(id.slot);
        Ok(())
    }

    /// S1: a session's end ends all that it holds and waits for, in one step.
    fn end_session(&mut self, id: SessionId) -> Result<(), Misfit> {
        self.end_session_as(id, Reason::Session)
    }

    fn end_session_as(&mut self, id: SessionId, reason: Reason) -> Result<(), Misfit> {
        self.sessions.live(id.slot, id.reuse).ok_or("no such session")?;
        for slot in self.session_waits(id.slot) {
            self.dequeue(slot);
        }
        if !mutants::on(Mutant::SessionLeavesLeases) {
            for slot in self.session_leases(id.slot) {
                self.unlink_lease(slot, reason, false);
            }
        }
        self.queues.session_ended(id, self.time);
        self.cache.session_ended(id, self.time);
        self.due.sessions.disarm(id.slot);
        let session = self.sessions.vacate(id.slot);
        session.requests = std::collections::VecDeque::new();
        session.parties = Vec::new();
        let holder = session.holder;
        self.parties.holder_mut(holder).sessions -= 1;
        self.parties.leave_holder_if_empty(holder, &mut self.resources.names);
        Ok(())
    }

    fn grant(&mut self, granted: &Granted<'_>) -> Result<(), Misfit> {
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
    fn stand_apart(&mut self, predecessor: u32, resource: &str) -> Result<(), Misfit> {
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
    fn answer_waiter(&mut self, waiter: u32, lease: LeaseId) -> Result<(), Misfit> {
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

    fn alive(&mut self, slot: u32, ttl: Option<u32>) {
        let (now, epoch) = (self.time, self.clock.epoch);
        let term = &mut self.leases.at_mut(slot).expect("known").term;
        term.ttl = ttl.unwrap_or(term.ttl);
        term.renew(now);
        term.alive = epoch;
        self.arm_lease(slot);
    }

    fn wait(&mut self, waiting: &Waiting<'_>) -> Result<(), Misfit> {
        let (slot, _) = self.waiters.next_place();
        if slot != waiting.waiter {
            return Err("a waiter in another place than the next");
        }
        if !self.sessions.is_live(waiting.session) {
            return Err("a wait of a session that is over");
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

    /// The units stay taken; the lease is over.
    fn confirm_hold(&mut self, slot: u32, number: Number) -> Result<(), Misfit> {
        let lease = *self.known(slot)?;
        let Access::Units(units) = lease.access() else {
            return Err("only a hold is confirmed");
        };
        if lease.number() != number {
            return Err("an end is guarded by the lease's token");
        }
        if !mutants::on(Mutant::ConfirmForgetsUnits) {
            self.resources.gather(lease.resource).confirmed += u64::from(units);
        }
        self.unlink_lease(slot, Reason::Released, false);
        Ok(())
    }

    fn resize_hold(&mut self, slot: u32, units: u32) -> Result<(), Misfit> {
        let lease = *self.known(slot)?;
        let Access::Units(before) = lease.access() else {
            return Err("only a hold is resized");
        };
        let capacity = self.capacity(lease.resource);
        let crowd = self.resources.gather(lease.resource);
        let used = u64::from(crowd.used - before) + u64::from(units);
        let oversold = units > before && used + crowd.confirmed > u64::from(capacity);
        if units == 0 || (oversold && !mutants::on(Mutant::ResizeOversells)) {
            return Err("more units held than there are");
        }
        crowd.used = used as u32;
        self.leases.at_mut(slot).expect("known").units = units;
        self.offer_later(lease.resource);
        Ok(())
    }

    /// A moment later, nothing else.
    pub fn time_is(&mut self, time: Millis) {
        self.time = self.time.max(time);
    }
}
