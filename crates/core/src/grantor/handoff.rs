//! Planned transfer: the predecessor drains, the successor follows at the next token; whoever vanishes, it ends (H3).

use super::Grantor;
use super::table::lease::DrainCause;
use crate::charter::Handoff;
use crate::command::{Answer, HandOff, Held, Style};
use crate::lease::{Access, Reason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Cause, Record};
use crate::refusal::{Limit, Refusal, What};

impl Grantor {
    pub(super) fn hand_off(&mut self, handoff: &HandOff<'_>) -> Result<Answer, Refusal> {
        let slot = self.handed_off(handoff)?;
        let lease = self.table.lease(slot);
        if !matches!(lease.access(), Access::Exclusive | Access::Slot) {
            return Err(Refusal::Invalid { field: "access", reason: "only an exclusive or slot lease is handed off" });
        }
        if self.announced(slot).is_some() {
            return Err(Refusal::Conflict(What::Handoff));
        }
        let resource = lease.resource;
        let rule = self.handoff_rule(self.table.resources.name(resource));
        let style = handoff.style.unwrap_or(rule.style);
        let drain_ms = handoff.drain_ms.unwrap_or(rule.drain_ms);
        if !(limits::TTL_MIN..=limits::GRACE_MAX).contains(&drain_ms) {
            return Err(Refusal::Invalid { field: "drain", reason: "from 100 ms to 10 minutes" });
        }
        let drain_ms = drain_ms.max(self.goes_on_unheard(slot, rule.drain_ms));
        let to = handoff.to.unwrap_or_default();
        let style = if mutants::on(Mutant::GapOverlaps) { Style::Overlap } else { style };
        if style == Style::Gap {
            self.announce(slot, Cause::HandOff { style, to }, drain_ms);
            return Ok(Answer::Current(self.current_now(slot)));
        }
        // The successor must be there: in an overlap the resource is never unheld.
        self.check_quarantine()?;
        let successor =
            self.successor(resource, to, self.table.lease(slot).access()).ok_or(Refusal::NotFound(What::Wait))?;
        self.check_fits_instead(slot)?;
        self.next_number()?;
        self.announce(slot, Cause::HandOff { style, to }, drain_ms);
        self.grant_waiter(successor, Some(slot))?;
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// The holder names its token; an operator does not.
    fn handed_off(&mut self, handoff: &HandOff<'_>) -> Result<u32, Refusal> {
        match handoff.number {
            Some(number) => self.current(&Held { lease: handoff.which, number, session: None, holder: None }),
            None => match self.leases_of(&handoff.which)?[..] {
                [slot] => Ok(slot),
                _ => Err(Refusal::Invalid { field: "lease", reason: "the resource has several; name one by its id" }),
            },
        }
    }

    /// Whether a successor fits where its predecessor stands: nothing is left to an operator, and a shrunk capacity still
    /// has this slot.
    fn check_fits_instead(&self, slot: u32) -> Result<(), Refusal> {
        let lease = self.table.lease(slot);
        let Some(crowd) = self.table.resources.crowd(lease.resource) else {
            return Ok(());
        };
        if crowd.for_operator {
            return Err(Refusal::HeldForOperator);
        }
        let max = u64::from(self.table.capacity(lease.resource));
        let got = u64::from(crowd.used) + crowd.confirmed;
        if lease.access() == Access::Slot && (got > max || u64::from(lease.slot()) >= max) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        Ok(())
    }

    /// How long a holder that hears nothing may still go on: for what is left of its lease, or for the drain period it was
    /// told with its grant if that is shorter. No handoff ends it before (L2), whatever drain period was asked for since.
    fn goes_on_unheard(&self, slot: u32, drain_ms: u64) -> u64 {
        let left = self.remaining(slot);
        if mutants::on(Mutant::ShortDrainObeyed) {
            0
        } else if self.table.told_as_agreed(self.table.lease(slot)) {
            left.min(drain_ms)
        } else {
            left
        }
    }

    fn handoff_rule(&self, name: &str) -> Handoff {
        self.table.charter(name).and_then(|charter| charter.handoff).unwrap_or_default()
    }

    /// The drain period that every holder of this resource is told with its grant.
    pub(super) fn drain_period(&self, name: &str) -> u64 {
        self.handoff_rule(name).drain_ms
    }

    /// How long a predecessor still drains.
    pub(super) fn drains_for(&self, predecessor: u32) -> u64 {
        let drain = self.table.extra(predecessor).and_then(|extra| extra.drain.as_ref());
        drain.map_or(0, |drain| self.now().until(drain.until))
    }

    /// The waiter that follows: the named one, or the first that can be granted. One that waits for several cannot.
    fn successor(&self, resource: u32, to: &str, access: Access) -> Option<u32> {
        let crowd = self.table.resources.crowd(resource)?;
        crowd.queue.iter().map(|turn| turn.waiter).find(|waiter| {
            let wait = self.table.waiter(*waiter);
            let named = to.is_empty() || self.table.holder_name(wait.party) == to;
            named && wait.asks.len() == 1 && wait.asks[0].access == access && self.may_be_granted(*waiter)
        })
    }

    /// The predecessor has stopped, and every write of its was answered.
    pub(super) fn drained(&mut self, held: &Held<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        if self.announced(slot) != Some(Reason::HandedOff) {
            return Err(Refusal::NotFound(What::Handoff));
        }
        self.end_drained(slot);
        Ok(Answer::Done)
    }

    /// Ends a lease that was told to drain. A named successor of a gap handoff is granted before anybody else.
    pub(super) fn end_drained(&mut self, slot: u32) {
        let lease = *self.table.lease(slot);
        let drain = self.table.extra(slot).and_then(|extra| extra.drain.clone());
        let Some(drain) = drain else {
            self.end_lease(slot, Reason::Released, "");
            return;
        };
        let (resource, access) = (lease.resource, lease.access());
        self.end_lease(slot, drain.cause.reason(), "");
        let DrainCause::HandOff { style: Style::Gap, to } = drain.cause else {
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
                .crowd(resource)
                .is_some_and(|crowd| crowd.fits(access, self.table.capacity(resource)));
            if fits {
                // Without a number left it stays in the queue, and is told so there.
                let _ = self.grant_waiter(waiter, None);
            }
        }
    }

    /// Drops an announced pre-emption that nobody needs any more.
    pub(super) fn drop_preemption(&mut self, slot: u32) {
        let pending = self.table.extra(slot).and_then(|extra| extra.drain.as_ref());
        if pending.is_some_and(|drain| drain.cause == DrainCause::Priority) {
            self.record(&Record::DrainDropped { lease: slot });
        }
    }
}
