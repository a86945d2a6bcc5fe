//! The tick of a turn: expiries in deadline order, then offers, then deadlock detection, within the budget of one turn.

use super::Grantor;
use super::table::lease_deadline;
use crate::command::SessionEvent;
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::GrantorTime;

/// Timers processed per portion.
const PORTION: usize = 256;

impl Grantor {
    pub(super) fn tick(&mut self) {
        let mut timers = limits::TICK_TIMERS;
        self.expire_waits(&mut timers);
        self.expire_sessions(&mut timers);
        self.expire_leases(&mut timers);
        self.expire_payloads();
        self.check_quarantine_end();
        self.settle_priorities(limits::EDGES_PER_STEP);
        self.offer_resources(limits::TICK_OFFERS);
        self.detect_deadlocks(limits::EDGES_PER_STEP);
        self.notify_ends();
        let idle = self.now().since(self.table.recorded.0) >= limits::IDLE_RECORD_EVERY;
        if self.out.batch.is_empty() && idle {
            self.record(&Record::Idle);
        }
    }

    fn has_space(&self) -> bool {
        self.out.batch.len() < limits::TICK_BYTES
    }

    fn expire_waits(&mut self, timers: &mut usize) {
        let now = self.now();
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let (wheel, waiters) = (&mut self.table.due.waiters, &self.table.waiters);
        wheel.advance(
            now,
            timers,
            |slot| waiters.at(slot).map_or(GrantorTime(0), |(_, waiter)| waiter.until),
            &mut due,
        );
        for waiter in due.drain(..) {
            if !mutants::on(Mutant::WaitNeverEnds) {
                self.end_wait(waiter, Refusal::Timeout);
            }
        }
        self.due = due;
    }

    /// Ends expired sessions. One record ends a session with all its leases (S1), which count against the budget.
    fn expire_sessions(&mut self, timers: &mut usize) {
        let now = self.now();
        let mut due = std::mem::take(&mut self.due);
        while *timers > 0 && self.has_space() {
            due.clear();
            let (wheel, sessions, clock) = (&mut self.table.due.sessions, &self.table.sessions, &self.table.clock);
            let deadline =
                |slot| sessions.at(slot).map_or(GrantorTime(0), |(_, session)| session.renewal.deadline(now, clock));
            let mut portion = PORTION.min(*timers);
            *timers -= portion;
            wheel.advance(now, &mut portion, deadline, &mut due);
            for slot in due.drain(..) {
                if *timers > 0 {
                    let session = self.table.session(slot);
                    *timers = timers.saturating_sub((session.leases + session.waits) as usize);
                    self.end_session(slot, EndReason::Ttl);
                } else {
                    let deadline = self.table.session_deadline(slot, now);
                    self.table.due.sessions.arm(slot, deadline);
                }
            }
            if portion > 0 {
                break;
            }
        }
        self.due = due;
    }

    /// Ends expired leases. An expiry is a record guarded by the token (L7), and it always comes (L9).
    fn expire_leases(&mut self, timers: &mut usize) {
        let now = self.now();
        let early = if mutants::on(Mutant::LeaseEndsEarly) { 60 } else { 0 };
        let mut due = std::mem::take(&mut self.due);
        // In small portions, so that the turn stops at its limit and the timer wheel continues there.
        while *timers > 0 && self.has_space() {
            due.clear();
            let (wheel, leases) = (&mut self.table.due.leases, &self.table.leases);
            let (clock, extras) = (&self.table.clock, &self.table.extras);
            let deadline = |slot| match leases.at(slot) {
                Some((_, lease)) => lease_deadline(clock, extras, lease, slot, now).0,
                None => GrantorTime(0),
            };
            let mut portion = PORTION.min(*timers);
            *timers -= portion;
            wheel.advance(now.plus(early), &mut portion, deadline, &mut due);
            for slot in due.drain(..) {
                let lease = self.table.lease(slot);
                if !lease.has_extra() {
                    // Only its own renewal moves its deadline, and the wheel has just read it.
                    self.expiring.0.push((slot, lease.number()));
                    continue;
                }
                self.end_expired();
                match self.table.lease_deadline(slot, now) {
                    // An earlier end in this turn moved its deadline and armed the timer again.
                    (at, _) if at > now.plus(early) => {}
                    (_, EndReason::HandedOff) => self.end_drained(slot),
                    (_, reason) => self.end_lease(slot, reason, ""),
                }
            }
            self.end_expired();
            if portion > 0 {
                break;
            }
        }
        self.due = due;
    }

    /// Records the collected plain expiries in one batch.
    fn end_expired(&mut self) {
        match self.expiring.0[..] {
            [] => {}
            [(lease, _)] => self.end_lease(lease, EndReason::Ttl, ""),
            _ => {
                let mut record = Record::Expired(std::mem::take(&mut self.expiring));
                self.record(&record);
                if let Record::Expired(ends) = &mut record {
                    self.expiring = std::mem::take(ends);
                }
            }
        }
        self.expiring.0.clear();
    }

    fn check_quarantine_end(&mut self) {
        match self.table.quarantine {
            Some(quarantine) if quarantine.until > self.now() => self.quarantine_seen = false,
            Some(_) if !self.quarantine_seen => {
                self.quarantine_seen = true;
                self.offer_all();
            }
            _ => {}
        }
    }

    /// Schedules an offer for every resource with waiters: after an opening, and when a quarantine ends.
    pub(super) fn offer_all(&mut self) {
        let waited: Vec<u32> = self
            .table
            .resources
            .states()
            .filter(|(_, state)| !state.queue.is_empty())
            .map(|(resource, _)| resource)
            .collect();
        waited.into_iter().for_each(|resource| self.table.schedule_offer(resource));
    }

    pub(super) fn quarantine_deadline(&self) -> Option<GrantorTime> {
        self.table.quarantine.map(|quarantine| quarantine.until).filter(|until| *until > self.now())
    }

    /// Notifies holders and watchers of the ends in this turn, and successors that they may claim.
    fn notify_ends(&mut self) {
        let mut ended = std::mem::take(&mut self.table.due.ended);
        for end in ended.drain(..) {
            if end.session.is_some() || self.watched {
                let event = SessionEvent::Ended { lease: end.lease, number: end.number, reason: end.reason };
                self.notify(end.session.map(|(slot, reuse)| SessionId { slot, reuse }), event);
            }
            if let Some(successor) = end.successor
                && let Some((reuse, lease)) = self.table.leases.at(successor)
            {
                let session = self.table.actors[lease.actor].session;
                let lease = crate::ids::LeaseId { slot: successor, reuse };
                let to = self.table.sessions.at(session).map(|_| self.session_id(session));
                self.notify(to, SessionEvent::Drained { lease });
            }
        }
        self.table.due.ended = ended;
    }
}
