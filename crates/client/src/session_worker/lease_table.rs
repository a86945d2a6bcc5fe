//! The leases that the worker renews, and when it polls each of them next.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::command::{Answer as GrantorReply, CurrentLease, HeldDigest};
use leasehold_core::holder::{
    ReceivedGrant, ReceivedRenewal, Renewal, RenewalAction, RenewalAnswer, RenewalAttempt, Timing,
};
use leasehold_core::ids::LeaseId;
use leasehold_core::time::Instant;

use super::deadline_start;
use super::jitter::Jitter;
use super::lease_shared::LeaseShared;
use super::lease_timers::LeaseTimers;
use super::multi_acquire::PendingGrants;
use super::request_table::LeaseRenewal;
use crate::{Code, Error};

/// A lease under renewal.
pub(super) struct LeaseEntry {
    pub lease: Arc<LeaseShared>,
    pub renewal: Renewal,
    pub timing: Timing,
    pub drain_ms: u64,
    /// Distinguishes this lease from earlier ones at the same index.
    pub serial: u32,
    /// Stamp of its current timer.
    pub stamp: u32,
    pub actor: Option<u32>,
    /// Its session ended; why the lease ended is not known yet.
    pub orphaned: bool,
    /// Renewals raise its token.
    pub rotates: bool,
    /// A request that may have raised its token has no reply yet: until then the current token is unknown.
    pub raising: bool,
    /// When the successor of an overlap may claim even without an event (H3).
    pub claim_from: Option<Instant>,
    /// Granted and not handed out yet: after a long wait, the first renewal shows whether the lease may act. With its position in
    /// the request.
    pub pending_grant: Option<(Arc<PendingGrants>, usize)>,
}

/// Change of a lease's state in a poll.
pub(super) enum LeaseTransition {
    /// Work must stop.
    Suspended,
    /// Work may continue.
    Resumed,
    /// The lease ended and was removed.
    Lost(Box<LeaseEntry>, leasehold_core::holder::Loss),
}

/// All leases under renewal.
#[derive(Default)]
pub(super) struct LeaseTable {
    entries: Vec<Option<LeaseEntry>>,
    free: Vec<u32>,
    /// Indices of the session's leases; events name a lease by its id.
    by_lease: HashMap<LeaseId, u32>,
    next_serial: u32,
    next_stamp: u32,
    pub timers: LeaseTimers,
    /// Renewals to be sent.
    pub outgoing: Vec<LeaseRenewal>,
    pub count: usize,
    deferred: Vec<u32>,
}

impl LeaseTable {
    /// Index and serial for the next lease.
    pub(super) fn next_index(&mut self) -> (u32, u32) {
        self.next_serial = self.next_serial.wrapping_add(1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        (index, self.next_serial)
    }

    pub(super) fn insert(&mut self, index: u32, entry: LeaseEntry) {
        self.by_lease.insert(entry.lease.id, index);
        self.entries[index as usize] = Some(entry);
        self.count += 1;
    }

    pub(super) fn new_entry(
        lease: Arc<LeaseShared>,
        renewal: Renewal,
        timing: Timing,
        drain_ms: u64,
        serial: u32,
    ) -> LeaseEntry {
        let (stamp, actor, orphaned, raising, claim_from, pending_grant) = (0, None, false, false, None, None);
        let rotates = false;
        LeaseEntry {
            lease,
            renewal,
            timing,
            drain_ms,
            serial,
            stamp,
            actor,
            orphaned,
            rotates,
            raising,
            claim_from,
            pending_grant,
        }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut LeaseEntry> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// The entry of a guard's lease; none if it was removed.
    pub(super) fn find(&mut self, lease: &Arc<LeaseShared>) -> Option<&mut LeaseEntry> {
        self.get_mut(lease.index).filter(|entry| Arc::ptr_eq(&entry.lease, lease))
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<LeaseEntry> {
        let entry = self.entries.get_mut(index as usize)?.take()?;
        if !entry.orphaned {
            self.by_lease.remove(&entry.lease.id);
        }
        self.free.push(index);
        self.count -= 1;
        Some(entry)
    }

    pub(super) fn indices(&self) -> Vec<u32> {
        let live = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        live.map(|(index, _)| index as u32).collect()
    }

    /// Remembers a lease that could not be handed out immediately.
    pub(super) fn defer(&mut self, index: u32) {
        if self.get_mut(index).is_some_and(|entry| entry.pending_grant.is_some()) {
            self.deferred.push(index);
        }
    }

    /// Grants whose request timed out before they could be handed out.
    pub(super) fn take_overdue_grants(&mut self, now: Instant) -> Vec<(Arc<LeaseShared>, Arc<PendingGrants>)> {
        let (entries, mut late) = (&mut self.entries, Vec::new());
        self.deferred.retain(|index| {
            let Some(entry) = &mut entries[*index as usize] else {
                return false;
            };
            if let Some((grants, _)) = entry.pending_grant.take_if(|(grants, _)| now >= grants.timeout_at) {
                late.push((entry.lease.clone(), grants));
            }
            entry.pending_grant.is_some()
        });
        late
    }

    fn in_session(&self) -> impl Iterator<Item = &LeaseEntry> {
        self.entries.iter().flatten().filter(|entry| !entry.orphaned)
    }

    /// Count and digest of the held leases.
    pub(super) fn digest(&self) -> HeldDigest {
        let start = HeldDigest { count: 0, digest: 0 };
        self.in_session().fold(start, |sum, entry| HeldDigest {
            count: sum.count + 1,
            digest: sum.digest ^ entry.renewal.token().get(),
        })
    }

    /// Ids of the held leases in ascending order.
    pub(super) fn ids(&self) -> Vec<LeaseId> {
        let mut ids: Vec<LeaseId> = self.in_session().map(|entry| entry.lease.id).collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn index_of(&self, lease: LeaseId) -> Option<u32> {
        self.by_lease.get(&lease).copied()
    }

    /// The session ended with everything it carried. The next session queries why each lease ended.
    pub(super) fn session_ended(&mut self) {
        self.by_lease.clear();
        self.outgoing.clear();
        for entry in self.entries.iter_mut().flatten() {
            (entry.orphaned, entry.raising) = (true, false);
        }
    }

    /// Runs the due actions of a lease and publishes its state to the guard.
    pub(super) fn poll(
        &mut self,
        index: u32,
        now: Instant,
        jitter: &Jitter,
        connected: bool,
        mut on_transition: impl FnMut(&mut Self, LeaseTransition),
    ) {
        loop {
            let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::as_mut) else {
                return;
            };
            if entry.claim_from.is_some_and(|from| now >= from) {
                entry.predecessor_drained();
            }
            match entry.renewal.poll(now, jitter.at(index)) {
                RenewalAction::Suspend => {
                    entry.lease.update(|view| {
                        view.working = false;
                        view.suspensions = view.suspensions.wrapping_add(1);
                    });
                    on_transition(self, LeaseTransition::Suspended);
                }
                RenewalAction::Resume(_) => {
                    entry.publish();
                    on_transition(self, LeaseTransition::Resumed);
                }
                RenewalAction::Rotated(_) => entry.publish(),
                RenewalAction::Drain { until } => entry.lease.update(|view| view.draining = Some(until)),
                RenewalAction::Send(attempt) => {
                    if connected {
                        let (serial, raises) = (entry.serial, entry.rotates);
                        self.outgoing.push(LeaseRenewal { index, serial, attempt, raises });
                    }
                }
                RenewalAction::Wait(at) => {
                    self.next_stamp = self.next_stamp.wrapping_add(1);
                    entry.stamp = self.next_stamp;
                    let latest = entry.renewal.deadline().earliest;
                    // Past its deadline it waits only for its next attempt.
                    let latest = if latest > now { latest } else { Instant(u64::MAX) };
                    let at = entry.claim_from.map_or(at, |from| from.min(at));
                    self.timers.set(now, at, latest, (index, self.next_stamp));
                    return;
                }
                RenewalAction::Lost(loss) => {
                    entry.lease.update(|view| {
                        view.working = false;
                        view.loss = Some(loss);
                    });
                    let entry = self.remove(index).expect("the entry exists");
                    on_transition(self, LeaseTransition::Lost(Box::new(entry), loss));
                    return;
                }
            }
        }
    }

    /// Whether this is the lease's current timer.
    pub(super) fn is_current(&self, (index, stamp): (u32, u32)) -> bool {
        self.entries.get(index as usize).and_then(Option::as_ref).is_some_and(|entry| entry.stamp == stamp)
    }
}

impl LeaseEntry {
    /// Publishes a renewal to the guard.
    pub(super) fn publish(&self) {
        let (number, deadline) = (self.renewal.token(), self.renewal.deadline());
        let fixed_end = self.renewal.fixed_end();
        self.lease.update(|view| {
            view.token.set_number(number);
            (view.deadline, view.fixed_end) = (deadline, fixed_end);
            view.working = true;
        });
    }

    /// Handles the reply to a renewal.
    pub(super) fn handle_renewal(
        &mut self,
        attempt: RenewalAttempt,
        now: Instant,
        reply: &Result<GrantorReply, Error>,
    ) {
        let answer = match reply {
            Ok(GrantorReply::Current(current)) => {
                if !self.rotates && current.number > self.renewal.token() {
                    // The charter did not raise tokens at the time of the grant; this reply shows that it does now.
                    self.rotates = true;
                    self.token_raised(attempt.sent(), now, current);
                }
                if current.overlaps_ms.is_none() {
                    self.predecessor_drained();
                }
                RenewalAnswer::Renewed(ReceivedRenewal {
                    token: current.number,
                    remaining_ms: current.remaining_ms,
                    draining_ms: current.drain_ms,
                })
            }
            Ok(_) => RenewalAnswer::Unavailable,
            Err(error) => match (error.end_reason(), error.code()) {
                (Some(reason), _) => RenewalAnswer::Ended(reason),
                (None, Some(Code::NotCurrent)) => RenewalAnswer::NotCurrent,
                _ => RenewalAnswer::Unavailable,
            },
        };
        self.renewal.handle_answer(attempt, now, answer);
        if deadline_start::is_broken()
            && let Ok(GrantorReply::Current(current)) = reply
        {
            self.grant_again(now, now, current);
        }
        if matches!(answer, RenewalAnswer::Renewed(_)) && self.renewal.may_act(now) {
            self.publish();
        }
    }

    /// The predecessor of an overlap has drained, or its time is over.
    pub(super) fn predecessor_drained(&mut self) {
        if self.claim_from.take().is_some() {
            self.lease.update(|view| view.overlap = None);
        }
    }

    /// Continues the lease under a raised token as if newly granted: measured from the request that raised it, and not beyond the
    /// drain period.
    pub(super) fn token_raised(&mut self, sent: Instant, now: Instant, current: &CurrentLease) {
        if current.number <= self.renewal.token() {
            return;
        }
        let stopped = self.lease.view().working && !self.renewal.may_act(now);
        if self.grant_again(sent, now, current) {
            self.lease.update(|view| {
                view.token.set_number(current.number);
                view.suspensions = view.suspensions.wrapping_add(u32::from(stopped));
            });
        }
    }

    /// Measures the lease as if newly granted by a request that was sent at this time.
    fn grant_again(&mut self, sent: Instant, now: Instant, current: &CurrentLease) -> bool {
        let granted = ReceivedGrant {
            token: current.number,
            sent,
            received: now,
            ttl_ms: current.drain_ms.map_or(current.remaining_ms, |drain| drain.min(current.remaining_ms)),
            drain_ms: Some(self.drain_ms),
            rotates: self.rotates,
        };
        // `new` checks only the drain period, which was valid at the grant.
        match Renewal::new(self.timing, granted) {
            Ok(renewal) => self.renewal = renewal,
            Err(_) => return false,
        }
        true
    }
}
