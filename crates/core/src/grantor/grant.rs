//! Granting leases: all resources of a request or none, each with the next token number.

use super::Grantor;
use super::acquire::{AcquirePlan, Requester};
use super::table::lease::NONE;
use crate::charter::AfterRevocation;
use crate::command::{AcquireOptions, Answer, Grant, SessionEvent};
use crate::ids::LeaseId;
use crate::lease::{Access, EndReason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{GrantRecord, Record};
use crate::refusal::Refusal;
use crate::token::Number;

/// A lease to be granted, without its number and slot.
#[derive(Clone, Copy)]
pub(super) struct NewLease<'a> {
    pub resource: &'a str,
    pub session: u32,
    /// The identity that owns a lease without a session, as it is recorded.
    pub owner: Option<&'a str>,
    pub holder: &'a str,
    pub access: Access,
    pub ttl: u32,
    pub priority: u8,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

impl Grantor {
    pub(super) fn grant_all(
        &mut self,
        requester: &Requester<'_>,
        plan: &AcquirePlan<'_>,
        options: &AcquireOptions<'_>,
    ) -> Result<Answer, Refusal> {
        // All or none: enough numbers are left, or nothing is recorded.
        let last = self.next_number()?.get().checked_add(plan.resources.len() as u64 - 1);
        last.and_then(Number::new).ok_or(Refusal::TokensExhausted)?;
        self.set_initial_capacity(plan);
        let mut grants = Vec::new();
        for (name, access) in plan.resources {
            let (max_hold, progress) = self.effective_limits(name, options.max_hold_ms, options.progress_ms);
            let session = if requester.waits_only { NONE } else { requester.session };
            let new_lease = NewLease {
                resource: name,
                session,
                owner: plan.owner.filter(|_| session == NONE),
                holder: requester.holder,
                access: *access,
                ttl: plan.ttl,
                priority: options.priority,
                max_hold,
                progress,
                metadata: options.metadata,
            };
            let slot = self.grant(&new_lease, None, None);
            if let Some(trace) = plan.trace {
                self.record(&Record::LeaseTraced { lease: slot, trace });
            }
            self.after_hold_grew(self.table.lease(slot).actor);
            if !plan.atomic {
                return Ok(Answer::Granted(self.grant_answer(slot)));
            }
            grants.push(self.grant_answer(slot));
        }
        Ok(Answer::GrantedAll(grants.into()))
    }

    /// Updates priorities and deadlock suspects after a waiting actor got another lease.
    pub(super) fn after_hold_grew(&mut self, actor: u32) {
        if !self.table.actors[actor].waits.is_empty() {
            self.priority_raises.push_back(actor);
            self.settle_priorities(limits::EDGES_PER_STEP);
            self.deadlock_detector.suspect(actor);
        }
    }

    /// Maximum hold and progress window: the tighter of the request and the charter.
    pub(super) fn effective_limits(
        &self,
        name: &str,
        max_hold: Option<u64>,
        progress: Option<u64>,
    ) -> (Option<u64>, Option<u64>) {
        let Some(charter) = self.table.charter(name) else {
            return (max_hold, progress);
        };
        let tighter = |requested: Option<u64>, rule: Option<u64>| match (requested, rule) {
            (Some(requested), Some(rule)) => Some(requested.min(rule)),
            (requested, rule) => requested.or(rule),
        };
        (tighter(max_hold, charter.max_hold_ms), tighter(progress, charter.progress_window()))
    }

    /// Records a grant and notifies watchers. The caller has checked that it fits.
    pub(super) fn grant(&mut self, new_lease: &NewLease<'_>, waiter: Option<u32>, overlaps: Option<u32>) -> u32 {
        let number = self.next_number().expect("the caller checked that enough numbers are left");
        let (slot, reuse) = self.table.leases.next_slot();
        let lease = LeaseId { slot, reuse };
        let own_slot = match (new_lease.access, overlaps) {
            (_, Some(predecessor)) => self.table.lease(predecessor).slot(),
            (Access::Slot, None) => {
                let resource = self.table.resources.find(new_lease.resource);
                resource.and_then(|at| self.table.resources.state(at)).map_or(0, |state| state.free_slot())
            }
            _ => 0,
        };
        self.record(&Record::Granted(GrantRecord {
            lease,
            number,
            resource: new_lease.resource,
            session: (new_lease.session != NONE).then_some(new_lease.session),
            owner: new_lease.owner,
            holder: new_lease.holder,
            access: new_lease.access,
            slot: own_slot,
            ttl: new_lease.ttl,
            priority: new_lease.priority,
            waiter,
            overlaps,
            max_hold: new_lease.max_hold,
            progress: new_lease.progress,
            metadata: new_lease.metadata,
        }));
        if self.watched {
            self.notify(None, SessionEvent::Granted { lease, number });
        }
        slot
    }

    /// The grant as an answer to its holder.
    pub(super) fn grant_answer(&self, slot: u32) -> Grant {
        let lease = self.table.lease(slot);
        let current = self.current_answer(slot);
        let ttl_ms = if lease.follows_session() {
            let session = self.table.actors[lease.actor].session;
            u64::from(self.table.session(session).renewal.ttl)
        } else {
            u64::from(lease.renewal.ttl)
        };
        Grant {
            lease: self.table.lease_id(slot),
            number: lease.number(),
            scope: lease.scope(),
            ttl_ms,
            remaining_ms: current.remaining_ms,
            validity: self.validity,
            drain_ms: self.drain_period(self.table.resources.name(lease.resource)),
            overlaps_ms: current.overlaps_ms,
            depth: 1 + self.table.extra(slot).map_or(0, |extra| extra.depth),
            rotates: self.rotates(slot),
        }
    }

    /// Refuses grants during a quarantine; it stops nothing else.
    pub(super) fn check_quarantine(&self) -> Result<(), Refusal> {
        match self.table.quarantine {
            Some(quarantine) if quarantine.until > self.now() && !mutants::on(Mutant::NoQuarantine) => {
                let remaining = self.now().until(quarantine.until);
                Err(Refusal::Quarantined { remaining, rolled_back: quarantine.rolled_back })
            }
            _ => Ok(()),
        }
    }

    /// Whether a revoked resource stays blocked for an operator: after an operator's or policy revocation, if the charter
    /// says so.
    pub(super) fn blocks_for_operator(&self, slot: u32, reason: EndReason) -> bool {
        matches!(reason, EndReason::Operator | EndReason::Policy) && {
            let name = self.table.resources.name(self.table.lease(slot).resource);
            let rule = self.table.charter(name).map(|charter| charter.after_revocation);
            rule == Some(AfterRevocation::HoldForOperator)
        }
    }
}
