//! One door for change: what each record does to the state, in service and in replay.

mod begin;
mod end;

use super::lease::{Drain, Lease};
use super::party::Remembered;
use super::{Deadlock, Identity, Quarantine, Table};
use crate::charter::Charter;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Outcome, Record};
use crate::time::Millis;
use crate::token::Number;

/// A record that does not fit the state it is applied to. In replay it means damage, in service a broken promise.
pub(crate) type Misfit = &'static str;

impl Table {
    /// Changes the state by one fact, at the time of its batch.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), Misfit> {
        self.due.applied += 1;
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
                self.guard_end(*lease, *number)?;
                self.unlink_lease(*lease, *reason, *hold);
            }
            Record::Expired(ends) => self.expire(&ends.0)?,
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
                self.agreed_now();
            }
            Record::CharterRemoved { prefix, .. } => {
                self.charters.remove(prefix).ok_or("no such charter")?;
                self.agreed_now();
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
            Record::Coverage(fact) => self.coverage.apply(fact, self.wall)?,
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

    /// A moment later, nothing else.
    pub fn time_is(&mut self, time: Millis) {
        self.time = self.time.max(time);
    }
}
