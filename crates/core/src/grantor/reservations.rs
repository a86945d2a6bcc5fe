//! Reservations of units: confirms and resizes them, and vetoes their expiry.

use super::Grantor;
use crate::charter::AtExpiry;
use crate::command::{Answer, LeaseRef};
use crate::lease::Access;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};

impl Grantor {
    /// Turns a reservation into a commitment: its units stay occupied, and the lease ends (C2, C4).
    pub(super) fn confirm_hold(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = if mutants::on(Mutant::ExpiredHoldConfirmed) {
            self.reservation_even_if_over(lease_ref)?
        } else {
            self.hold(lease_ref)?.0
        };
        let number = self.table.lease(slot).number();
        let (mut name, other) = std::mem::take(&mut self.scratch);
        name.clear();
        name.push_str(self.table.resources.name(self.table.lease(slot).resource));
        self.record(&Record::HoldConfirmed { lease: slot, number });
        // Committed units are never freed, so some waits may have become impossible.
        self.refuse_impossible_waits(&name);
        self.suspect_waiters(&name);
        self.scratch = (name, other);
        Ok(Answer::Done)
    }

    pub(super) fn resize_hold(&mut self, lease_ref: &LeaseRef<'_>, units: u32) -> Result<Answer, Refusal> {
        let (slot, before) = self.hold(lease_ref)?;
        if units == 0 {
            return Err(Refusal::Invalid {
                field: "units",
                reason: "at least 1; release the reservation to free all units",
            });
        }
        let resource = self.table.lease(slot).resource;
        let capacity = u64::from(self.table.capacity(resource));
        let state = self.table.resources.state(resource).expect("a reservation has a resource state");
        let got = u64::from(state.used - before) + u64::from(units) + state.confirmed;
        if units > before && got > capacity && !mutants::on(Mutant::ResizeOversells) {
            return Err(Refusal::Exhausted { limit: Limit::Units, max: capacity, got });
        }
        self.record(&Record::HoldResized { lease: slot, units });
        if units > before {
            self.after_hold_grew(self.table.lease(slot).actor);
        }
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Keeps a reservation beyond its expiry, for a time that the charter bounds.
    pub(super) fn veto(&mut self, lease_ref: &LeaseRef<'_>, for_ms: u64) -> Result<Answer, Refusal> {
        let (slot, _) = self.hold(lease_ref)?;
        let now = self.now();
        let lease = self.table.lease(slot);
        let renewal = lease.renewal.deadline(now, &self.table.clock);
        let name = self.table.resources.name(lease.resource);
        let max = match self.table.charter(name).map(|charter| charter.at_expiry) {
            None => u64::from(lease.renewal.ttl),
            Some(AtExpiry::Veto { max_ms }) => max_ms,
            Some(AtExpiry::Free) => {
                return Err(Refusal::Invalid { field: "veto", reason: "the charter frees this reservation at expiry" });
            }
        };
        if for_ms == 0 || lease.follows_session() {
            return Err(Refusal::Invalid {
                field: "veto",
                reason: "at least 1 ms, and only for a reservation with its own ttl",
            });
        }
        let until = now.plus(for_ms).min(renewal.plus(max));
        self.record(&Record::Vetoed { lease: slot, until });
        Ok(Answer::Current(self.current_answer(slot)))
    }

    fn hold(&mut self, lease_ref: &LeaseRef<'_>) -> Result<(u32, u32), Refusal> {
        let slot = self.current(lease_ref)?;
        match self.table.lease(slot).access() {
            Access::Units(units) => Ok((slot, units)),
            _ => Err(Refusal::Conflict(RefusalSubject::Hold)),
        }
    }

    fn reservation_even_if_over(&mut self, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        match lease_ref.selector {
            crate::command::LeaseSelector::Id(id) if self.table.live(id).is_some() => Ok(id.slot),
            _ => self.hold(lease_ref).map(|(slot, _)| slot),
        }
    }
}
