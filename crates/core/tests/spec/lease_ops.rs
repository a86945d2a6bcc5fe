//! Operations of a holder on its own lease.

use leasehold_core::charter::{AtExpiry, TokenOnRenewal};
use leasehold_core::command::{Answer, LeaseRef, LeaseSelector, Renew};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::limits;
use leasehold_core::refusal::{Limit, NotCurrent, Refusal, RefusalSubject};

use super::charters;
use super::command_effects::{SpecResult, invalid};
use super::model::Spec;

impl Spec {
    /// The current lease that the caller refers to with the right token (L4, L5).
    pub fn current(&mut self, held: &LeaseRef<'static>) -> Result<usize, Refusal> {
        let i = self.find_held(held)?;
        self.end_if_over(i, false)?;
        Ok(i)
    }

    pub fn find_held(&self, held: &LeaseRef<'static>) -> Result<usize, Refusal> {
        let i = match held.selector {
            LeaseSelector::Id(id) => self.by_id(id, held)?,
            LeaseSelector::Resource(resource) => {
                let found = self.live_on(resource).into_iter().find(|i| self.leases[*i].number == held.number.get());
                let otherwise = if self.is_known(resource) { NotCurrent::Superseded } else { NotCurrent::Unknown };
                found.ok_or_else(|| self.ended_or(held, otherwise))?
            }
        };
        let actor = self.leases[i].actor;
        let right_session = held.session.is_none_or(|id| actor.session.map(|slot| self.session_id(slot)) == Some(id));
        if !right_session || held.holder.is_some_and(|holder| holder != actor.holder) {
            return Err(Refusal::NotCurrent(NotCurrent::NotHolder));
        }
        Ok(i)
    }

    pub fn by_id(&self, id: LeaseId, held: &LeaseRef<'static>) -> Result<usize, Refusal> {
        let i = id.slot as usize;
        match self.leases.get(i).filter(|_| id.reuse == 0) {
            None => Err(self.ended_or(held, NotCurrent::Unknown)),
            Some(lease) if lease.number != held.number.get() => Err(Refusal::NotCurrent(NotCurrent::Superseded)),
            Some(lease) => lease.end.map_or(Ok(i), |reason| Err(Refusal::Lost(reason))),
        }
    }

    pub fn ended_or(&self, held: &LeaseRef<'static>, otherwise: NotCurrent) -> Refusal {
        let ended = self.leases.iter().find(|lease| lease.end.is_some() && lease.number == held.number.get());
        ended.and_then(|lease| lease.end).map_or(Refusal::NotCurrent(otherwise), Refusal::Lost)
    }

    /// Ends a lease whose deadline has passed. A late turn does not count against a holder if the grantor itself
    /// stalled; no other end has this grace (L12).
    pub fn end_if_over(&mut self, i: usize, brings_progress: bool) -> Result<(), Refusal> {
        let (deadline, reason) = self.lease_deadline(&self.leases[i]);
        let excused = reason == EndReason::Ttl || (reason == EndReason::Stalled && brings_progress);
        if deadline <= self.now && !(self.late && excused) {
            self.end_lease(i, reason);
            return Err(Refusal::Lost(reason));
        }
        if let Some(slot) = self.leases[i].actor.session.filter(|_| self.leases[i].follows_session)
            && self.deadline(&self.sessions[slot as usize].lifetime) <= self.now
            && !self.late
        {
            self.end_session(slot);
            return Err(Refusal::Lost(EndReason::Session));
        }
        Ok(())
    }

    pub fn renew(&mut self, renew: &Renew<'static>) -> SpecResult {
        let i = self.find_held(&renew.lease)?;
        self.end_if_over(i, renew.progress.is_some())?;
        if let Some(at) = renew.progress {
            self.progress(i, at);
            self.end_if_over(i, false)?;
        }
        if let Some(ttl) = renew.ttl_ms {
            if self.leases[i].follows_session || !(limits::TTL_MIN..=self.max_ttl).contains(&ttl) {
                return Err(invalid("ttl"));
            }
            let lifetime = &mut self.leases[i].lifetime;
            if lifetime.ttl != ttl {
                // A changed ttl is recorded, and with it the renewal.
                (lifetime.ttl, lifetime.stalls) = (ttl, self.stalls.len());
            }
        }
        self.leases[i].lifetime = self.renewed(self.leases[i].lifetime);
        let rotates = self.charter(self.leases[i].resource).token_on_renewal == TokenOnRenewal::Rotate;
        if rotates && !self.leases[i].is_predecessor && self.check_quarantine().is_ok() {
            self.rotate(i);
        }
        Ok(Answer::Current(self.current_lease(i)))
    }

    pub fn rotate(&mut self, i: usize) {
        self.leases[i].number = self.issue();
    }

    /// Reporting the same position twice is not progress (G1).
    pub fn progress(&mut self, i: usize, at: u64) {
        let Some(mut progress) = self.leases[i].progress.filter(|progress| at > progress.seen) else {
            return;
        };
        progress.seen = at;
        if progress.lifetime.tenure != self.tenure {
            progress.recorded = at;
        }
        progress.lifetime = self.renewed(progress.lifetime);
        self.leases[i].progress = Some(progress);
    }

    pub fn release(&mut self, held: &LeaseRef<'static>) -> SpecResult {
        let i = self.current(held)?;
        match self.leases[i].depth {
            0 if self.is_handed_off(i) => self.end_drained(i),
            0 => match self.leases[i].drain.map(|drain| drain.cause.reason()) {
                Some(reason @ (EndReason::Operator | EndReason::Policy)) => self.end_lease(i, reason),
                _ => self.end_lease(i, EndReason::Released),
            },
            depth => self.leases[i].depth = depth - 1,
        }
        Ok(Answer::Done)
    }

    pub fn is_handed_off(&self, i: usize) -> bool {
        self.leases[i].drain.is_some_and(|drain| drain.cause.reason() == EndReason::HandedOff)
    }

    pub fn reservation(&mut self, held: &LeaseRef<'static>) -> Result<(usize, u32), Refusal> {
        let i = self.current(held)?;
        match self.leases[i].access {
            Access::Units(units) => Ok((i, units)),
            _ => Err(Refusal::Conflict(RefusalSubject::Hold)),
        }
    }

    pub fn resize(&mut self, held: &LeaseRef<'static>, units: u32) -> SpecResult {
        let (i, before) = self.reservation(held)?;
        if units == 0 {
            return Err(invalid("units"));
        }
        let resource = self.leases[i].resource;
        let max = u64::from(self.capacity(resource));
        let got = self.used(resource) - u64::from(before) + u64::from(units) + self.settings_of(resource).confirmed;
        if units > before && got > max {
            return Err(Refusal::Exhausted { limit: Limit::Units, max, got });
        }
        self.leases[i].access = Access::Units(units);
        self.units.reserved = self.units.reserved - u64::from(before) + u64::from(units);
        Ok(Answer::Current(self.current_lease(i)))
    }

    /// Defers the expiry while an obligation is in flight, for a bounded time.
    pub fn veto(&mut self, held: &LeaseRef<'static>, for_ms: u64) -> SpecResult {
        let (i, _) = self.reservation(held)?;
        let lease = &self.leases[i];
        let limit = match charters::of(lease.resource).map(|charter| charter.at_expiry) {
            None => lease.lifetime.ttl,
            Some(AtExpiry::Veto { max_ms }) => max_ms,
            Some(AtExpiry::Free) => return Err(invalid("veto")),
        };
        if for_ms == 0 || lease.follows_session {
            return Err(invalid("veto"));
        }
        let until = (self.now + for_ms).min(self.deadline(&lease.lifetime) + limit);
        self.leases[i].veto = Some(until);
        Ok(Answer::Current(self.current_lease(i)))
    }
}
