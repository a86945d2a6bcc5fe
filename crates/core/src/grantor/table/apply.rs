//! Application of records to the state, in service and in replay. Nothing else changes the state.

mod begin;
mod end;

use super::actors::StoredReply;
use super::lease::{Drain, StoredLease};
use super::proposals::Proposal;
use super::{ClusterIdentity, Deadlock, GrantorTable, Quarantine};
use crate::access::{IdentityUsage, LOCAL_OWNER};
use crate::charter::Charter;
use crate::coverage::CoverageRecord;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Record, StoredOutcome};
use crate::time::GrantorTime;
use crate::token::Number;

/// Why a record does not apply to the state. In replay it means corruption, in service a broken invariant.
pub(crate) type ApplyError = &'static str;

impl GrantorTable {
    /// Applies one record at the time of its batch.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), ApplyError> {
        self.due.applied += 1;
        match record {
            Record::Created { cluster, incarnation, max_ttl } => {
                if self.identity.is_some() {
                    return Err("a cluster is created once");
                }
                self.identity =
                    Some(ClusterIdentity { cluster: *cluster, incarnation: *incarnation, max_ttl: *max_ttl });
            }
            Record::Opened { generation, counter } => self.open(*generation, *counter)?,
            Record::Idle | Record::ActedAlone { .. } | Record::AttributedTo(_) | Record::AttributionEnded => {}
            Record::Stalled { ms } => {
                if !mutants::on(Mutant::CreditNotRecorded) || self.due.listening {
                    self.clock.stalled(self.time, *ms);
                }
            }
            Record::Restored { incarnation, counter, quarantine } => {
                self.raise_to(*counter)?;
                self.restore();
                self.gaps.clear();
                self.quarantine = Some(Quarantine { until: *quarantine, rolled_back: false });
                let identity = self.identity.as_mut().ok_or("restored before it was created")?;
                identity.incarnation = *incarnation;
            }
            Record::RolledBack { presented, counter, quarantine } => {
                if *counter < presented.get() {
                    return Err("a rollback that does not raise the counter to the presented number");
                }
                self.raise_to(*counter)?;
                self.gaps.clear();
                self.quarantine = Some(Quarantine { until: *quarantine, rolled_back: true });
            }
            Record::QuarantineWaived { .. } => {
                let waived = self.quarantine.take().filter(|quarantine| quarantine.rolled_back);
                self.waived_until = waived.map_or(self.waived_until, |quarantine| quarantine.until);
            }
            Record::MaxTtlSet { max_ttl, .. } => {
                self.identity.as_mut().ok_or("a longest ttl before the cluster exists")?.max_ttl = *max_ttl;
            }
            Record::Proposed { proposal, proposer, credential, command, until } => {
                let new = Proposal {
                    proposer: (*proposer).into(),
                    credential: (*credential).into(),
                    command: (*command).into(),
                    until: *until,
                };
                self.proposals.add(*proposal, new, self.time)?;
            }
            Record::ProposalApproved { proposal, .. } | Record::ProposalCanceled { proposal, .. } => {
                self.proposals.remove(*proposal)?;
            }
            Record::SessionOpened { session, owner, holder, ttl, secret, waits_only } => {
                self.open_session(*session, *owner, holder, *ttl, *secret, *waits_only)?;
            }
            Record::SessionAlive { session } => {
                let (now, epoch) = (self.time, self.clock.epoch);
                let renewal = &mut self.sessions.at_mut(*session).ok_or("no such session")?.renewal;
                renewal.renew(now);
                renewal.alive = epoch;
                self.arm_session(*session);
            }
            Record::SessionEnded { session, reason } => {
                self.due.holds.session_ending(Some(*reason));
                self.end_session(*session)?;
                self.due.holds.session_ending(None);
            }
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
                if self.known(*lease)?.follows_session() || *ttl == 0 {
                    return Err("a ttl for a lease that follows its session");
                }
                self.alive(*lease, Some(*ttl));
            }
            Record::Ended { lease, number, reason, hold, comment: _ } => {
                self.guard_end(*lease, *number)?;
                self.unlink_lease(*lease, *reason, *hold);
            }
            Record::Expired(ends) => self.expire(&ends.0)?,
            Record::Rotated { lease, number } => {
                self.raise(*number)?;
                let old = self.known(*lease)?.number().get();
                let actor = self.lease(*lease).actor;
                self.leases.at_mut(*lease).expect("known").set_number(*number);
                if let Some(session) = self.sessions.at_mut(self.actors[actor].session) {
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
                    progress.renewal.renew(now);
                    progress.renewal.alive = epoch;
                    Some(())
                });
                known.ok_or("progress of a lease that needs none")?;
                self.arm_lease(*lease);
            }
            Record::Waiting(waiting) => self.wait(waiting)?,
            Record::WaitEnded { waiter, refusal } => {
                let (_, wait) = self.waiters.at(*waiter).ok_or("no such waiter")?;
                let (sequence, session) = (wait.sequence, self.actors[wait.actor].session);
                if let Some(sequence) = sequence {
                    let session = self.sessions.at_mut(session).expect("a waiter's session");
                    if let Some(digest) = session.stored_reply(sequence).map(|known| known.digest) {
                        let outcome = StoredOutcome::Refused(refusal.clone());
                        session.store_reply(StoredReply { sequence, digest, outcome });
                    }
                }
                self.dequeue(*waiter);
            }
            Record::Draining { lease, cause, until } => {
                self.known(*lease)?;
                let drain = Drain { until: *until, cause: (*cause).into() };
                self.change_extra(*lease, |extra| extra.drain = Some(drain));
                self.due.holds.drain_began(*lease, self.time);
                self.arm_lease(*lease);
            }
            Record::DrainDropped { lease } => {
                self.known(*lease)?;
                self.change_extra(*lease, |extra| extra.drain = None);
                self.due.holds.drain_dropped(*lease);
                self.arm_lease(*lease);
            }
            Record::Capacity { resource, units, lasting } => {
                let at = self.resources.enter(resource);
                let state = self.resources.ensure_state(at);
                state.capacity = Some(*units);
                state.lasting |= lasting;
                self.schedule_offer(at);
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
                let pins = &mut self.resources.ensure_state(resource).pins;
                if let Some(old) = old {
                    pins.remove(&(old, *lease));
                }
                pins.insert((*at, *lease));
            }
            Record::Floor { resource, at } => {
                let slot = self.resources.enter(resource);
                let floor = &mut self.resources.ensure_state(slot).floor;
                *floor = (*floor).max(*at);
                self.resources.vacate_if_empty(slot);
            }
            Record::Freed { resource, .. } => {
                let slot = self.resources.find(resource).ok_or("no such resource")?;
                self.resources.ensure_state(slot).for_operator = false;
                self.schedule_offer(slot);
                self.resources.vacate_if_empty(slot);
            }
            Record::CharterSet { prefix, charter, owner, .. } => {
                let charter = Charter::decode(charter).map_err(|_| "a charter that cannot be decoded")?;
                let owner = self.owners.intern(*owner);
                self.holes.before_charter_change(prefix, &self.charters, &self.coverage);
                if self.charters.set(prefix, charter, owner).map_err(|_| "too many charters")?.is_none() {
                    self.owners.usage_mut(owner).add(IdentityUsage::CHARTER);
                }
                self.holes.after_charter_change(prefix, &self.charters, &self.coverage);
                self.store_charter_change();
            }
            Record::CharterRemoved { prefix, .. } => {
                self.holes.before_charter_change(prefix, &self.charters, &self.coverage);
                let (_, owner) = self.charters.remove(prefix).ok_or("no such charter")?;
                self.holes.after_charter_change(prefix, &self.charters, &self.coverage);
                self.owners.usage_mut(owner).remove(IdentityUsage::CHARTER);
                self.store_charter_change();
            }
            Record::Answered { session, sequence, lowest, digest, outcome } => {
                let session = self.sessions.at_mut(*session).ok_or("no such session")?;
                session.acknowledge(*lowest);
                session.store_reply(StoredReply { sequence: *sequence, digest: *digest, outcome: outcome.clone() });
            }
            Record::Deadlocked { cycle, victim, .. } => {
                self.deadlocks_found += 1;
                self.deadlocks.push_back(Deadlock {
                    at: self.time,
                    cycle: cycle.clone(),
                    victim: (*victim).to_owned(),
                });
                if self.deadlocks.len() > limits::DEADLOCKS {
                    self.deadlocks.pop_front();
                }
            }
            Record::State(fact) => {
                self.numbers(fact.numbers())?;
                let owner = self.owners.intern(fact.owner());
                self.state_table.apply(fact, self.time, owner)?;
            }
            Record::Delivery(fact) => {
                self.numbers(fact.numbers())?;
                let owner = self.owners.intern(fact.owner());
                self.queues.apply(fact, self.time, owner)?;
            }
            Record::Cache(fact) => {
                self.numbers(fact.numbers())?;
                let owner = self.owners.intern(fact.owner());
                self.cache.apply(fact, self.time, owner)?;
            }
            Record::Coverage(fact) => self.apply_coverage(fact)?,
            Record::LeaseTraced { lease, trace } => {
                self.known(*lease)?;
                self.traces.set_lease(*lease, *trace);
            }
            Record::WaitTraced { waiter, trace } => {
                self.waiters.at(*waiter).ok_or("no such waiter")?;
                self.traces.set_wait(*waiter, *trace);
            }
        }
        Ok(())
    }

    /// Applies a change of the coverage, and counts target slots at their owners.
    fn apply_coverage(&mut self, fact: &CoverageRecord) -> Result<(), ApplyError> {
        let owner = match fact {
            CoverageRecord::Reported { owner, .. } => self.owners.intern(owner.as_deref()),
            CoverageRecord::Zombie { .. } | CoverageRecord::Forgotten { .. } => LOCAL_OWNER,
        };
        let before = self.coverage.places();
        self.holes.before_record(fact, &self.charters, &self.coverage);
        let removed = self.coverage.apply(fact, owner, self.wall)?;
        self.holes.after_record(fact, &self.charters, &self.coverage);
        let new = self.coverage.places().saturating_sub(before);
        self.owners.usage_mut(owner).add(IdentityUsage::of_targets(new));
        for owner in removed {
            self.owners.usage_mut(owner).remove(IdentityUsage::of_targets(1));
        }
        Ok(())
    }

    fn known(&self, lease: u32) -> Result<&StoredLease, ApplyError> {
        self.leases.at(lease).map(|(_, lease)| lease).ok_or("no such lease")
    }

    /// Raises the counter to a new number, which must be above all earlier ones (T1). It is checked here and when granting.
    fn raise(&mut self, number: Number) -> Result<(), ApplyError> {
        if number.get() <= self.counter {
            return Err("a token not above the counter");
        }
        self.gaps.close(number.get() - 1);
        self.counter = number.get();
        Ok(())
    }

    /// Raises the counter, or leaves it unchanged.
    fn raise_to(&mut self, counter: u64) -> Result<(), ApplyError> {
        if counter < self.counter || counter > Number::MAX.get() {
            return Err("a counter that decreases or is too large");
        }
        self.counter = counter;
        Ok(())
    }

    fn numbers(&mut self, highest: Option<Number>) -> Result<(), ApplyError> {
        highest.map_or(Ok(()), |highest| {
            // The record issued lower numbers too, from the counter on at the lowest.
            self.gaps.close(self.counter);
            self.raise(highest)
        })
    }

    /// Advances grantor time.
    pub fn advance_time(&mut self, time: GrantorTime) {
        self.time = self.time.max(time);
    }
}
