//! What is done to leases by somebody with authority: revoked, handed off, refused for good.

use leasehold_core::command::{Answer, HandOff, Held, Revoke, Style, Which};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::limits;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal, What};

use super::asks::{Said, invalid};
use super::model::{Cause, Spec};

impl Spec {
    /// The leases that somebody with authority means.
    pub fn leases_of(&self, which: &Which<'static>) -> Result<Vec<usize>, Refusal> {
        match *which {
            Which::Id(id) => match self.leases.get(id.slot as usize).filter(|_| id.reuse == 0) {
                None => Err(Refusal::NotCurrent(NotCurrent::Unknown)),
                Some(lease) => lease.end.map_or(Ok(vec![id.slot as usize]), |reason| Err(Refusal::Lost(reason))),
            },
            Which::Resource(resource) => {
                let leases = self.live_on(resource);
                if leases.is_empty() { Err(Refusal::NotFound(What::Lease)) } else { Ok(leases) }
            }
        }
    }

    pub fn revoke(&mut self, revoke: &Revoke<'static>) -> Said {
        if !matches!(revoke.reason, Reason::Operator | Reason::Policy) {
            return Err(invalid("reason"));
        }
        for i in self.leases_of(&revoke.which)? {
            if revoke.grace_ms == 0 {
                self.end_lease(i, revoke.reason);
            } else {
                self.announce(i, Cause::Revoked(revoke.reason), revoke.grace_ms);
            }
        }
        Ok(Answer::Done)
    }

    pub fn hand_off(&mut self, handoff: &HandOff<'static>) -> Said {
        let i = match handoff.number {
            Some(number) => self.current(&Held { lease: handoff.which, number, session: None, holder: None })?,
            None => match self.leases_of(&handoff.which)?[..] {
                [i] => i,
                _ => return Err(invalid("lease")),
            },
        };
        let (resource, access) = (self.leases[i].resource, self.leases[i].access);
        if !matches!(access, Access::Exclusive | Access::Slot) {
            return Err(invalid("access"));
        }
        if self.leases[i].drain.is_some() {
            return Err(Refusal::Conflict(What::Handoff));
        }
        let rule = self.charter(resource).handoff.unwrap_or_default();
        let style = handoff.style.unwrap_or(rule.style);
        let drain = handoff.drain_ms.unwrap_or(rule.drain_ms);
        if !(limits::TTL_MIN..=limits::GRACE_MAX).contains(&drain) {
            return Err(invalid("drain"));
        }
        // Who hears nothing goes on for as long as it was told with its grant (L2).
        let drain = drain.max(rule.drain_ms.min(self.current_now(i).remaining_ms));
        let to = handoff.to.unwrap_or_default();
        if style == Style::Overlap {
            self.quarantined()?;
            let successor = self.successor(resource, to, access).ok_or(Refusal::NotFound(What::Wait))?;
            self.fits_instead(i)?;
            self.announce(i, Cause::HandOff(style, to), drain);
            self.grant_wait(successor, Some(i));
        } else {
            self.announce(i, Cause::HandOff(style, to), drain);
        }
        Ok(Answer::Current(self.current_now(i)))
    }

    /// Whether a successor fits where its predecessor stands.
    pub fn fits_instead(&self, i: usize) -> Result<(), Refusal> {
        let lease = &self.leases[i];
        let place = self.place(lease.resource);
        if place.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let (max, got) = (u64::from(self.capacity(lease.resource)), self.used(lease.resource) + place.confirmed);
        if lease.access == Access::Slot && (got > max || u64::from(lease.slot) >= max) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        Ok(())
    }

    /// A wait that can never come true is told so at once.
    pub fn refuse_hopeless(&mut self, resource: &str) {
        let left = u64::from(self.capacity(resource)).saturating_sub(self.place(resource).confirmed);
        let hopeless = self.queue(resource).into_iter().filter_map(|wait| {
            let got = match wait.asks_for(resource)? {
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
