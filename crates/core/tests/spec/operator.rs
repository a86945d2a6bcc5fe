//! Operations with authority over leases: revoke, handoff, and refusal of impossible waits.

use leasehold_core::command::{Answer, Handoff, HandoffMode, LeaseRef, LeaseSelector, Revoke};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::limits;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal, RefusalSubject};

use super::command_effects::{SpecResult, invalid};
use super::model::{Cause, Spec};

impl Spec {
    /// The leases that a selector matches.
    pub fn leases_of(&self, selector: &LeaseSelector<'static>) -> Result<Vec<usize>, Refusal> {
        match *selector {
            LeaseSelector::Id(id) => match self.leases.get(id.slot as usize).filter(|_| id.reuse == 0) {
                None => Err(Refusal::NotCurrent(NotCurrent::Unknown)),
                Some(lease) => lease.end.map_or(Ok(vec![id.slot as usize]), |reason| Err(Refusal::Lost(reason))),
            },
            LeaseSelector::Resource(resource) => {
                let leases = self.live_on(resource);
                if leases.is_empty() { Err(Refusal::NotFound(RefusalSubject::Lease)) } else { Ok(leases) }
            }
        }
    }

    pub fn revoke(&mut self, revoke: &Revoke<'static>) -> SpecResult {
        if !matches!(revoke.reason, EndReason::Operator | EndReason::Policy) {
            return Err(invalid("reason"));
        }
        for i in self.leases_of(&revoke.selector)? {
            if revoke.grace_ms == 0 {
                self.end_lease(i, revoke.reason);
            } else {
                self.announce(i, Cause::Revoked(revoke.reason), revoke.grace_ms);
            }
        }
        Ok(Answer::Done)
    }

    pub fn handoff(&mut self, handoff: &Handoff<'static>) -> SpecResult {
        let i = match handoff.number {
            Some(number) => {
                self.current(&LeaseRef { selector: handoff.selector, number, session: None, holder: None })?
            }
            None => match self.leases_of(&handoff.selector)?[..] {
                [i] => i,
                _ => return Err(invalid("lease")),
            },
        };
        let (resource, access) = (self.leases[i].resource, self.leases[i].access);
        if !matches!(access, Access::Exclusive | Access::Slot) {
            return Err(invalid("access"));
        }
        if self.leases[i].drain.is_some() {
            return Err(Refusal::Conflict(RefusalSubject::Handoff));
        }
        let rule = self.charter(resource).handoff.unwrap_or_default();
        let mode = handoff.mode.unwrap_or(rule.mode);
        let drain = handoff.drain_ms.unwrap_or(rule.drain_ms);
        if !(limits::TTL_MIN..=limits::GRACE_MAX).contains(&drain) {
            return Err(invalid("drain"));
        }
        // A holder that receives no message continues until the deadline of its grant (L2).
        let drain = drain.max(rule.drain_ms.min(self.current_lease(i).remaining_ms));
        let to = handoff.to.unwrap_or_default();
        if mode == HandoffMode::Overlap {
            self.check_quarantine()?;
            let successor = self.successor(resource, to, access).ok_or(Refusal::NotFound(RefusalSubject::Wait))?;
            self.fits_as_successor(i)?;
            self.announce(i, Cause::HandOff(mode, to), drain);
            self.grant_wait(successor, Some(i));
        } else {
            self.announce(i, Cause::HandOff(mode, to), drain);
        }
        Ok(Answer::Current(self.current_lease(i)))
    }

    /// Whether a successor fits next to its draining predecessor.
    pub fn fits_as_successor(&self, i: usize) -> Result<(), Refusal> {
        let lease = &self.leases[i];
        let settings = self.settings_of(lease.resource);
        if settings.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let (max, got) = (u64::from(self.capacity(lease.resource)), self.used(lease.resource) + settings.confirmed);
        if lease.access == Access::Slot && (got > max || u64::from(lease.slot) >= max) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        Ok(())
    }

    /// Refuses waits that can no longer be satisfied.
    pub fn refuse_impossible_waits(&mut self, resource: &str) {
        let left = u64::from(self.capacity(resource)).saturating_sub(self.settings_of(resource).confirmed);
        let hopeless = self.queue(resource).into_iter().filter_map(|wait| {
            let got = match wait.access_to(resource)? {
                Access::Units(units) => u64::from(units),
                Access::Slot => 1,
                Access::Exclusive | Access::Shared => 0,
            };
            (got > left).then_some((wait.order, got))
        });
        for (order, got) in hopeless.collect::<Vec<_>>() {
            self.end_wait(order, &Refusal::Exhausted { limit: Limit::Units, max: left, got });
        }
    }
}
