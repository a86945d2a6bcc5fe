//! What time has brought: ends in order of deadlines, then offers, then cycles; as much as one turn may, the rest next turn.

use super::Grantor;
use super::table::lease_deadline;
use crate::command::Event;
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::Millis;

/// Timers looked at in one go.
const PORTION: usize = 256;

impl Grantor {
    pub(super) fn tick(&mut self) {
        let mut timers = limits::TICK_TIMERS;
        self.time_out_waits(&mut timers);
        self.expire_sessions(&mut timers);
        self.expire_leases(&mut timers);
        self.payloads_due();
        self.quarantine_over();
        self.settle_priorities(limits::EDGES_PER_STEP);
        self.make_offers(limits::TICK_OFFERS);
        self.look_for_cycles(limits::EDGES_PER_STEP);
        self.tell_ends();
        let idle = self.now().since(self.table.recorded.0) >= limits::IDLE_RECORD_EVERY;
        if self.out.batch.is_empty() && idle {
            self.record(&Record::Idle);
        }
    }

    fn has_room(&self) -> bool {
        self.out.batch.len() < limits::TICK_BYTES
    }

    fn time_out_waits(&mut self, timers: &mut usize) {
        let now = self.now();
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let (wheel, waiters) = (&mut self.table.due.waiters, &self.table.waiters);
        wheel.advance(now, timers, |slot| waiters.at(slot).map_or(Millis(0), |(_, waiter)| waiter.until), &mut due);
        for waiter in due.drain(..) {
            if !mutants::on(Mutant::WaitNeverEnds) {
                self.end_wait(waiter, Refusal::Timeout);
            }
        }
        self.due = due;
    }

    /// A session's end is one record, whatever hangs on it (S1); what hangs on it counts as looked at.
    fn expire_sessions(&mut self, timers: &mut usize) {
        let now = self.now();
        let mut due = std::mem::take(&mut self.due);
        while *timers > 0 && self.has_room() {
            due.clear();
            let (wheel, sessions, clock) = (&mut self.table.due.sessions, &self.table.sessions, &self.table.clock);
            let deadline = |slot| sessions.at(slot).map_or(Millis(0), |(_, session)| session.term.deadline(now, clock));
            let mut portion = PORTION.min(*timers);
            *timers -= portion;
            wheel.advance(now, &mut portion, deadline, &mut due);
            for slot in due.drain(..) {
                if *timers > 0 {
                    let session = self.table.session(slot);
                    *timers = timers.saturating_sub((session.leases + session.waits) as usize);
                    self.end_session(slot, Reason::Ttl);
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

    /// L7: an expiry is a recorded fact, guarded by the lease's token; L9: it comes.
    fn expire_leases(&mut self, timers: &mut usize) {
        let now = self.now();
        let early = if mutants::on(Mutant::EndsEarly) { 60 } else { 0 };
        let mut due = std::mem::take(&mut self.due);
        // In small portions, so that a turn stops where its room ends and the wheel goes on there.
        while *timers > 0 && self.has_room() {
            due.clear();
            let (wheel, leases) = (&mut self.table.due.leases, &self.table.leases);
            let (clock, extras) = (&self.table.clock, &self.table.extras);
            let deadline = |slot| match leases.at(slot) {
                Some((_, lease)) => lease_deadline(clock, extras, lease, slot, now).0,
                None => Millis(0),
            };
            let mut portion = PORTION.min(*timers);
            *timers -= portion;
            wheel.advance(now.plus(early), &mut portion, deadline, &mut due);
            for slot in due.drain(..) {
                let lease = self.table.lease(slot);
                if !lease.has_extra() {
                    // Nothing but its own renewal moves it, and the wheel has just asked.
                    self.expiring.0.push((slot, lease.number()));
                    continue;
                }
                self.end_expired();
                match self.table.lease_deadline(slot, now) {
                    // An end before it in this turn has moved it, and has armed it anew.
                    (at, _) if at > now.plus(early) => {}
                    (_, Reason::HandedOff) => self.end_drained(slot),
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

    /// Puts on record what has gathered.
    fn end_expired(&mut self) {
        match self.expiring.0[..] {
            [] => {}
            [(lease, _)] => self.end_lease(lease, Reason::Ttl, ""),
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

    fn quarantine_over(&mut self) {
        match self.table.quarantine {
            Some(quarantine) if quarantine.until > self.now() => self.quarantine_seen = false,
            Some(_) if !self.quarantine_seen => {
                self.quarantine_seen = true;
                self.offer_everything();
            }
            _ => {}
        }
    }

    /// Everybody who waits is looked at: after an opening, and when a quarantine is over.
    pub(super) fn offer_everything(&mut self) {
        let waited: Vec<u32> = self
            .table
            .resources
            .crowds()
            .filter(|(_, crowd)| !crowd.queue.is_empty())
            .map(|(resource, _)| resource)
            .collect();
        waited.into_iter().for_each(|resource| self.table.offer_later(resource));
    }

    pub(super) fn quarantine_deadline(&self) -> Option<Millis> {
        self.table.quarantine.map(|quarantine| quarantine.until).filter(|until| *until > self.now())
    }

    /// Tells holders and watchers what ended in this turn, and successors that they may claim.
    fn tell_ends(&mut self) {
        let mut ended = std::mem::take(&mut self.table.due.ended);
        for end in ended.drain(..) {
            if end.session.is_some() || self.watched {
                let event = Event::Ended { lease: end.lease, number: end.number, reason: end.reason };
                self.notify(end.session.map(|(slot, reuse)| SessionId { slot, reuse }), event);
            }
            if let Some(successor) = end.successor
                && let Some((reuse, lease)) = self.table.leases.at(successor)
            {
                let session = self.table.parties[lease.party].session;
                let lease = crate::ids::LeaseId { slot: successor, reuse };
                let to = self.table.sessions.at(session).map(|_| self.session_id(session));
                self.notify(to, Event::Drained { lease });
            }
        }
        self.table.due.ended = ended;
    }
}
