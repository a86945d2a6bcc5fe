//! Planned handoff: the predecessor drains, and the successor gets the next token. It always terminates (H3).

use super::Grantor;
use super::table::lease::StoredDrainCause;
use crate::charter::HandoffTerms;
use crate::command::{Answer, Handoff, HandoffMode, LeaseRef};
use crate::lease::{Access, EndReason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{DrainCause, Record};
use crate::refusal::{Limit, Refusal, RefusalSubject};

/// What a handoff does.
struct HandoffPlan {
    mode: HandoffMode,
    drain_ms: u64,
    /// The waiter that is granted at once in an overlap.
    successor: Option<u32>,
}

impl Grantor {
    pub(super) fn handoff(&mut self, handoff: &Handoff<'_>) -> Result<Answer, Refusal> {
        let slot = self.handoff_lease(handoff)?;
        if handoff.number.is_some() {
            self.end_if_over(slot, false)?;
        }
        let HandoffPlan { mode, drain_ms, successor } = self.plan_handoff(slot, handoff)?;
        let to = handoff.to.unwrap_or_default();
        self.announce(slot, DrainCause::Handoff { mode, to }, drain_ms);
        if let Some(successor) = successor {
            self.grant_waiter(successor, Some(slot))?;
        }
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Checks that a handoff could start now. Returns its lease.
    pub(super) fn check_handoff(&self, handoff: &Handoff<'_>) -> Result<u32, Refusal> {
        let slot = self.handoff_lease(handoff)?;
        self.plan_handoff(slot, handoff).map(|_| slot)
    }

    fn plan_handoff(&self, slot: u32, handoff: &Handoff<'_>) -> Result<HandoffPlan, Refusal> {
        let lease = self.table.lease(slot);
        if !matches!(lease.access(), Access::Exclusive | Access::Slot) {
            return Err(Refusal::Invalid {
                field: "access",
                reason: "only an exclusive or slot lease can be handed off",
            });
        }
        if self.announced(slot).is_some() {
            return Err(Refusal::Conflict(RefusalSubject::Handoff));
        }
        let resource = lease.resource;
        let rule = self.handoff_terms(self.table.resources.name(resource));
        let mode = handoff.mode.unwrap_or(rule.mode);
        let drain_ms = handoff.drain_ms.unwrap_or(rule.drain_ms);
        if !(limits::TTL_MIN..=limits::GRACE_MAX).contains(&drain_ms) {
            return Err(Refusal::Invalid { field: "drain", reason: "from 100 ms to 10 minutes" });
        }
        let drain_ms = drain_ms.max(self.max_silent_hold(slot, rule.drain_ms));
        let mode = if mutants::on(Mutant::GapOverlaps) { HandoffMode::Overlap } else { mode };
        if mode == HandoffMode::Gap {
            return Ok(HandoffPlan { mode, drain_ms, successor: None });
        }
        // An overlap needs a waiting successor: the resource never has no holder.
        self.check_quarantine()?;
        let to = handoff.to.unwrap_or_default();
        let successor = self.successor(resource, to, lease.access()).ok_or(Refusal::NotFound(RefusalSubject::Wait))?;
        self.check_fits_instead(slot)?;
        self.next_number()?;
        Ok(HandoffPlan { mode, drain_ms, successor: Some(successor) })
    }

    /// The lease of a handoff: selected with a token by its holder, or without one by an operator.
    fn handoff_lease(&self, handoff: &Handoff<'_>) -> Result<u32, Refusal> {
        match handoff.number {
            Some(number) => {
                self.find_held(&LeaseRef { selector: handoff.selector, number, session: None, holder: None })
            }
            None => match self.leases_of(&handoff.selector)?[..] {
                [slot] => Ok(slot),
                _ => Err(Refusal::Invalid {
                    field: "lease",
                    reason: "the resource has several leases; select one by its id",
                }),
            },
        }
    }

    /// Checks that a successor can replace its predecessor: the resource is not held for an operator, and a reduced
    /// capacity still has this slot.
    fn check_fits_instead(&self, slot: u32) -> Result<(), Refusal> {
        let lease = self.table.lease(slot);
        let Some(state) = self.table.resources.state(lease.resource) else {
            return Ok(());
        };
        if state.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let max = u64::from(self.table.capacity(lease.resource));
        let got = u64::from(state.used) + state.confirmed;
        if lease.access() == Access::Slot && (got > max || u64::from(lease.slot()) >= max) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        Ok(())
    }

    /// How long a holder without contact may continue: the remaining time of its lease, or the drain period of its grant if
    /// that is shorter. No handoff ends the lease earlier (L2), whatever drain period was requested since.
    fn max_silent_hold(&self, slot: u32, drain_ms: u64) -> u64 {
        let left = self.remaining(slot);
        if mutants::on(Mutant::ShortDrainObeyed) {
            0
        } else if self.table.granted_under_current_charters(self.table.lease(slot)) {
            left.min(drain_ms)
        } else {
            left
        }
    }

    fn handoff_terms(&self, name: &str) -> HandoffTerms {
        self.table.charter(name).and_then(|charter| charter.handoff).unwrap_or_default()
    }

    /// The drain period that grants of this resource carry.
    pub(super) fn drain_period(&self, name: &str) -> u64 {
        self.handoff_terms(name).drain_ms
    }

    /// Remaining drain time of a predecessor.
    pub(super) fn drain_remaining(&self, predecessor: u32) -> u64 {
        let drain = self.table.extra(predecessor).and_then(|extra| extra.drain.as_ref());
        drain.map_or(0, |drain| self.now().until(drain.until))
    }

    /// The waiter that follows: the named one, or the first that can be granted. A waiter for several resources cannot.
    fn successor(&self, resource: u32, to: &str, access: Access) -> Option<u32> {
        let state = self.table.resources.state(resource)?;
        state.queue.iter().map(|position| position.waiter).find(|waiter| {
            let wait = self.table.waiter(*waiter);
            let named = to.is_empty() || self.table.holder_name(wait.actor) == to;
            named && wait.resources.len() == 1 && wait.resources[0].access == access && self.may_be_granted(*waiter)
        })
    }

    /// Ends the lease of a predecessor that has stopped and whose writes were all answered.
    pub(super) fn drained(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(lease_ref)?;
        if self.announced(slot) != Some(EndReason::HandedOff) {
            return Err(Refusal::NotFound(RefusalSubject::Handoff));
        }
        self.end_drained(slot);
        Ok(Answer::Done)
    }

    /// Ends a draining lease. The named successor of a gap handoff is granted before all other waiters.
    pub(super) fn end_drained(&mut self, slot: u32) {
        let lease = *self.table.lease(slot);
        let drain = self.table.extra(slot).and_then(|extra| extra.drain.clone());
        let Some(drain) = drain else {
            self.end_lease(slot, EndReason::Released, "");
            return;
        };
        let (resource, access) = (lease.resource, lease.access());
        self.end_lease(slot, drain.cause.reason(), "");
        let StoredDrainCause::Handoff { mode: HandoffMode::Gap, to } = drain.cause else {
            return;
        };
        if to.is_empty() || self.check_quarantine().is_err() || self.table.resources.at(resource).is_none() {
            return;
        }
        self.settle_priorities(limits::EDGES_PER_STEP);
        if let Some(waiter) = self.successor(resource, &to, access) {
            let fits = self
                .table
                .resources
                .state(resource)
                .is_some_and(|state| state.fits(access, self.table.capacity(resource)));
            if fits {
                // If no number is left, it stays in the queue and is refused there.
                let _ = self.grant_waiter(waiter, None);
            }
        }
    }

    /// Cancels a pending preemption that no waiter needs any more.
    pub(super) fn drop_preemption(&mut self, slot: u32) {
        let pending = self.table.extra(slot).and_then(|extra| extra.drain.as_ref());
        if pending.is_some_and(|drain| drain.cause == StoredDrainCause::Priority) {
            self.record(&Record::DrainDropped { lease: slot });
        }
    }
}
