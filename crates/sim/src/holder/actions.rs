//! Actions of a holder: acquire, write, report progress, release, resume its session, misuse.

use leasehold_core::lease::Access;
use leasehold_core::time::Instant;
use leasehold_core::token::{Cluster, Number, Token};

use super::{HolderMode, LateWrite, SimHolder, SimLease};
use crate::clock::MS;
use crate::fault::Fault;
use crate::history::HistoryEvent;
use crate::impostor::secret_of;
use crate::message::{Message, SimActor};
use crate::request::{SimAcquireOptions, SimRequest};
use crate::rng::SimRng;
use crate::run_constants::{EXCLUSIVE, READ, RUSH, SLOTS, UNITS, WORK};
use crate::scheduler::Scheduler;

impl SimLease {
    /// Progress to report, where it is required. A stuck holder continues to renew.
    pub(super) fn report_progress(&mut self, rng: &mut SimRng) -> Option<u64> {
        if self.resource != WORK {
            return None;
        }
        self.stuck |= rng.one_in(6);
        self.work += u64::from(!self.stuck);
        Some(self.work)
    }
}

impl SimHolder {
    /// Secret of this holder's sessions.
    pub(super) const fn secret(&self) -> u8 {
        secret_of(self.index)
    }

    /// Resumes its session as after a broken connection, or tries another session with its own secret.
    pub(super) fn resume(&mut self, scheduler: &mut Scheduler) {
        let Some(mut session) = self.session else { return };
        if scheduler.should_inject(Fault::Misuse, 2) {
            session = scheduler.another_session(session);
            scheduler.record_fault(Fault::Misuse, format!("holder {} guesses the secret of {session}", self.index));
        }
        self.request(scheduler, SimRequest::Resume { session, secret: self.secret() });
    }

    pub(super) fn act(&mut self, scheduler: &mut Scheduler, now: Instant) {
        if self.mode != HolderMode::Plain && self.session.is_none() {
            if !self.pending.values().any(|pending| matches!(pending.request, SimRequest::Open { .. })) {
                let waits_only = self.mode == HolderMode::WaitSession;
                self.request(scheduler, SimRequest::Open { ttl: self.ttl, waits_only, secret: self.secret() });
            }
            return;
        }
        // A draining holder stores its checkpoint while it can.
        if scheduler.rng.one_in(3)
            && let Some(entry) = self.leases.iter().find(|entry| entry.draining && entry.target().is_some())
        {
            let held = entry.known;
            let value = scheduler.next_op();
            return self.request(scheduler, SimRequest::Put { held, value });
        }
        match scheduler.rng.below(100) {
            0..=29 => self.write(scheduler, now),
            30..=33 => self.change_reservation(scheduler),
            34..=55 => self.acquire(scheduler),
            56..=65 => self.release(scheduler),
            66..=69 => self
                .request_with_lease(scheduler, |held, scheduler| SimRequest::Put { held, value: scheduler.next_op() }),
            70..=71 => self.request_with_lease(scheduler, |held, _| SimRequest::Confirm { held }),
            72 => self.request_with_lease(scheduler, |held, _| SimRequest::Rotate { held }),
            73..=80 => self.queue(scheduler),
            81..=83 => self.pin_or_collect(scheduler),
            84..=87 => self.cache(scheduler),
            88 => self.resume(scheduler),
            89 => self.cancel(scheduler),
            90 => {
                if let Some(session) = self.session {
                    self.request(scheduler, SimRequest::Close { session });
                }
            }
            91..=93 => self.change_reservation(scheduler),
            _ if scheduler.faults.has(Fault::Misuse) => self.misuse(scheduler),
            _ => self.write(scheduler, now),
        }
    }

    fn request_with_lease(
        &mut self,
        scheduler: &mut Scheduler,
        make: impl FnOnce(crate::request::KnownLease, &mut Scheduler) -> SimRequest,
    ) {
        if self.leases.is_empty() {
            return;
        }
        let index = scheduler.rng.below(self.leases.len() as u64) as usize;
        if self.leases[index].target().is_none() {
            return;
        }
        let request = make(self.leases[index].known, scheduler);
        self.request(scheduler, request);
    }

    fn acquire(&mut self, scheduler: &mut Scheduler) {
        let waits = self.pending.values();
        let busy =
            waits.filter(|p| matches!(p.request, SimRequest::Acquire { .. } | SimRequest::AcquireAll { .. })).count();
        if self.leases.len() + busy >= 3 {
            return;
        }
        let session = self.session;
        let ttl = (self.mode != HolderMode::Session).then_some(self.ttl);
        let ttl =
            if scheduler.should_inject(Fault::Misuse, 30) { Some(*scheduler.rng.pick(&[0, u64::MAX])) } else { ttl };
        let may_wait = session.is_some() && scheduler.rng.below(10) < 8;
        let wait = if may_wait { scheduler.rng.between(300, 4_000) } else { 0 };
        let max_hold = scheduler.rng.one_in(10).then_some(2 * self.ttl);
        let priority = *scheduler.rng.pick(&[100, 100, 100, 50, 150, 200]);
        let options = SimAcquireOptions { ttl, wait, max_hold, priority: 100, reentrant: false };
        match scheduler.rng.below(16) {
            0 | 9 => {
                self.request(scheduler, SimRequest::Acquire { resource: SLOTS, session, access: Access::Slot, options })
            }
            1 => {
                let options = SimAcquireOptions { max_hold: scheduler.rng.one_in(2).then_some(self.ttl), ..options };
                let access = Access::Units(scheduler.rng.between(1, 4) as u32);
                self.request(scheduler, SimRequest::Acquire { resource: UNITS, session, access, options });
            }
            3 | 4 => {
                let access = if scheduler.rng.one_in(3) { Access::Exclusive } else { Access::Shared };
                self.request(scheduler, SimRequest::Acquire { resource: READ, session, access, options });
            }
            5 | 6 => {
                let options = SimAcquireOptions { priority, ..options };
                self.request(
                    scheduler,
                    SimRequest::Acquire { resource: RUSH, session, access: Access::Exclusive, options },
                );
            }
            7 => self.request(
                scheduler,
                SimRequest::Acquire { resource: WORK, session, access: Access::Exclusive, options },
            ),
            8 if self.mode == HolderMode::Session => {
                let Some(entry) = self.leases.iter().find(|entry| entry.target().is_some()) else { return };
                let (resource, options) = (entry.resource, SimAcquireOptions { reentrant: true, ..options });
                self.request(scheduler, SimRequest::Acquire { resource, session, access: Access::Exclusive, options });
            }
            2 if session.is_some() => {
                let first = scheduler.rng.below(4) as usize;
                let resources = vec![EXCLUSIVE[first], EXCLUSIVE[(first + 1) % 4]];
                let session = session.expect("just seen");
                self.request(scheduler, SimRequest::AcquireAll { resources, session, ttl, wait });
            }
            _ => {
                let resource = scheduler.rng.pick(&EXCLUSIVE);
                self.request(scheduler, SimRequest::Acquire { resource, session, access: Access::Exclusive, options });
            }
        }
    }

    /// Claims or writes. Anything may happen between the check and the act.
    fn write(&mut self, scheduler: &mut Scheduler, now: Instant) {
        let actor = self.actor().index() as u32;
        let Some((target, entry)) = self.leases.iter_mut().find_map(|entry| Some((entry.target()?, entry))) else {
            return;
        };
        let believes = entry.renewal.may_act(now);
        if self.checks_belief && !believes {
            return;
        }
        if believes {
            let clock_ok = self.clock_ok;
            scheduler.record(HistoryEvent::HolderActed { actor, number: entry.known.number, clock_ok });
        }
        let value = if entry.claimed { Some(scheduler.next_op()) } else { None };
        entry.claimed = true;
        entry.sequence += 1;
        let (text, sequence) = (entry.token.to_string(), entry.sequence);
        if scheduler.should_inject(Fault::HolderPause, 12) || scheduler.should_inject(Fault::HolderSleep, 25) {
            let sleeps = scheduler.faults.has(Fault::HolderSleep) && scheduler.rng.one_in(2);
            let length = scheduler.rng.between(50, 10 * self.ttl) * MS;
            let fault = if sleeps { Fault::HolderSleep } else { Fault::HolderPause };
            scheduler.record_fault(
                fault,
                format!("holder {} for {} ms, between its check and its write", self.index, length / MS),
            );
            let until = scheduler.now + length;
            self.late.push(LateWrite { at: until, target, text, sequence, value });
            return self.pause(scheduler, until, sleeps);
        }
        let (id, from) = (scheduler.next_op(), self.actor());
        scheduler.send(from, SimActor::Target(target), Message::Write { id, from, token: text, sequence, value });
    }

    fn release(&mut self, scheduler: &mut Scheduler) {
        if self.leases.is_empty() {
            return;
        }
        let index = scheduler.rng.below(self.leases.len() as u64) as usize;
        let held = self.leases[index].known;
        if scheduler.rng.one_in(8) {
            // The holder forgets the lease; only its ttl ends it.
            let entry = self.leases.remove(index);
            return self.maybe_write_late(scheduler, &entry);
        }
        if self.leases[index].draining && self.leases[index].renewal.finish_drain(0).is_ok() {
            self.drained.insert(held.number);
            return self.request(scheduler, SimRequest::Drained { held });
        }
        self.request(scheduler, SimRequest::Release { held });
        // A reentrant lease is released once per acquire. It counts as held until the last release is sent, since replies may
        // be lost.
        self.leases[index].depth -= 1;
        if self.leases[index].depth > 0 {
            return;
        }
        let entry = self.leases.remove(index);
        self.maybe_write_late(scheduler, &entry);
    }

    fn queue(&mut self, scheduler: &mut Scheduler) {
        let receipt = (!self.receipts.is_empty())
            .then(|| scheduler.rng.below(self.receipts.len() as u64) as usize)
            .map(|index| self.receipts[index]);
        match (scheduler.rng.below(10), receipt) {
            (0..=2, _) => {
                let body = scheduler.next_op();
                self.request(scheduler, SimRequest::Enqueue { body, attempts: 3 });
            }
            (3..=5, _) => {
                let visibility = scheduler.rng.between(200, 2_000);
                let session = self.session.filter(|_| self.mode == HolderMode::Session);
                self.request(scheduler, SimRequest::Receive { session, visibility, limit: 2 });
            }
            // Old receipts stay in the list: they are presented again and must change nothing.
            (6..=7, Some((item, receipt))) => self.request(scheduler, SimRequest::Ack { item, receipt }),
            (8, Some((item, receipt))) => self.request(scheduler, SimRequest::Nack { item, receipt }),
            (9, Some((item, receipt))) => {
                let visibility = scheduler.rng.between(200, 2_000);
                self.request(scheduler, SimRequest::Extend { item, receipt, visibility });
            }
            _ => {}
        }
    }

    fn cancel(&mut self, scheduler: &mut Scheduler) {
        let waits = self
            .pending
            .values()
            .filter(|p| matches!(p.request, SimRequest::Acquire { options, .. } if options.wait > 0));
        if let Some(id) = waits.filter_map(|pending| pending.id).next() {
            self.request(scheduler, SimRequest::Cancel { session: id.session, sequence: id.sequence });
        }
    }

    fn change_reservation(&mut self, scheduler: &mut Scheduler) {
        let Some(entry) = self.leases.iter().find(|entry| matches!(entry.access, Access::Units(_))) else { return };
        let held = entry.known;
        if scheduler.rng.one_in(3) {
            self.request(scheduler, SimRequest::ConfirmHold { held });
        } else {
            let units = scheduler.rng.between(1, 5) as u32;
            self.request(scheduler, SimRequest::ResizeHold { held, units });
        }
    }

    /// Presents an invalid token: of another cluster, implausibly high, or for another target.
    fn misuse(&mut self, scheduler: &mut Scheduler) {
        let Some(seen) = self.newest_token else { return };
        let target = scheduler.rng.below(EXCLUSIVE.len() as u64) as usize;
        let far = Number::new((1 << 62) + scheduler.rng.below(1 << 40)).expect("below 2^63");
        let token = match scheduler.rng.below(3) {
            0 => Token { cluster: Cluster(*b"stranger"), ..seen },
            1 => Token { number: far, ..seen },
            _ => seen,
        };
        scheduler
            .record_fault(Fault::Misuse, format!("holder {} presents {} at target {target}", self.index, token.number));
        let (id, from, value) = (scheduler.next_op(), self.actor(), Some(scheduler.next_op()));
        let token = token.to_string();
        scheduler.send(from, SimActor::Target(target), Message::Write { id, from, token, sequence: u64::MAX, value });
        if let Some(entry) = self.leases.first() {
            let held = entry.known;
            if let Some(session) = held.session {
                let session = Some(scheduler.another_session(session));
                self.request(scheduler, SimRequest::Confirm { held: crate::request::KnownLease { session, ..held } });
            }
            let lower = Number::new(held.number.get() - 1).unwrap_or(Number::FIRST);
            self.request(
                scheduler,
                SimRequest::Renew { held: crate::request::KnownLease { number: lower, ..held }, progress: None },
            );
        }
    }
}
