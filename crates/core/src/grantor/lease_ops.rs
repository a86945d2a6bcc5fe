//! Operations of a holder on its lease: renew, confirm, release, rotate, report progress.

use super::Grantor;
use super::table::lease::NONE;
use crate::charter::TokenOnRenewal;
use crate::command::{Answer, CurrentLease, LeaseRef, LeaseSelector, Renew};
use crate::ids::LeaseId;
use crate::lease::EndReason;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{NotCurrent, Refusal, RefusalSubject};
use crate::token::Number;

impl Grantor {
    /// The slot of a lease that the caller holds and that has not ended. A lease past its deadline ends here, and the end
    /// is recorded before the reply (L4).
    pub(super) fn current(&mut self, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        let slot = self.find_held(lease_ref)?;
        self.end_if_over(slot, false)?;
        Ok(slot)
    }

    pub(super) fn find_held(&self, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        let slot = match lease_ref.selector {
            LeaseSelector::Id(id) => self.by_id(id, lease_ref)?,
            LeaseSelector::Resource(name) => self.by_name(name, lease_ref)?,
        };
        self.check_holder(slot, lease_ref)?;
        Ok(slot)
    }

    /// Whether a lease with this token is held, by any holder.
    pub(super) fn is_held(&self, lease_ref: &LeaseRef<'_>) -> bool {
        self.find_held(&LeaseRef { session: None, holder: None, ..*lease_ref }).is_ok()
    }

    fn by_id(&self, id: LeaseId, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        if let Some(lease) = self.table.live(id) {
            return if lease.number() == lease_ref.number || mutants::on(Mutant::TokenNotCompared) {
                Ok(id.slot)
            } else {
                Err(Refusal::NotCurrent(NotCurrent::Superseded))
            };
        }
        match self.table.leases.tombstone(id.slot, id.reuse) {
            Some(ended) if ended.number() == lease_ref.number => Err(Refusal::Lost(ended.end_reason())),
            Some(_) => Err(Refusal::NotCurrent(NotCurrent::Superseded)),
            None => Err(self.ended_or(lease_ref, NotCurrent::Unknown)),
        }
    }

    fn by_name(&self, name: &str, lease_ref: &LeaseRef<'_>) -> Result<u32, Refusal> {
        let name = Name::parse(name)?;
        let Some(resource) = self.table.resources.find(name.as_str()) else {
            return Err(self.ended_or(lease_ref, NotCurrent::Unknown));
        };
        match self.slot_by_number(resource, lease_ref.number) {
            Some(slot) => Ok(slot),
            None => Err(self.ended_or(lease_ref, NotCurrent::Superseded)),
        }
    }

    /// The slot of the live lease on a resource with this number.
    pub(super) fn slot_by_number(&self, resource: u32, number: Number) -> Option<u32> {
        let sole = self.table.resources.sole(resource);
        let state = self.table.resources.state(resource).map_or(&[][..], |state| &state.leases);
        let mut leases = state.iter().copied().chain((sole != NONE).then_some(sole));
        leases.find(|slot| self.table.lease(*slot).number() == number)
    }

    /// The end reason of the lease with this token if it is still known, or else the given answer.
    fn ended_or(&self, lease_ref: &LeaseRef<'_>, otherwise: NotCurrent) -> Refusal {
        match self.table.ended_leases.reason_of(lease_ref.number.get()) {
            Some(reason) => Refusal::Lost(reason),
            None => Refusal::NotCurrent(otherwise),
        }
    }

    /// Checks that the caller is the holder: session and name must match if they are given (L5).
    fn check_holder(&self, slot: u32, lease_ref: &LeaseRef<'_>) -> Result<(), Refusal> {
        if lease_ref.session.is_none() && lease_ref.holder.is_none() {
            return Ok(());
        }
        let actor = self.table.lease(slot).actor;
        let session = self.table.actors[actor].session;
        let right_session = match lease_ref.session {
            None => true,
            Some(id) => id.slot == session && self.table.sessions.live(id.slot, id.reuse).is_some(),
        };
        let right_name = lease_ref.holder.is_none_or(|name| name == self.table.holder_name(actor));
        if (right_session && right_name) || mutants::on(Mutant::HolderNotCompared) {
            Ok(())
        } else {
            Err(Refusal::NotCurrent(NotCurrent::NotHolder))
        }
    }

    /// Ends an expired lease and returns the reason. In a late turn the grantor itself was stalled, so a renewal that was
    /// queued is still accepted, and so is the progress it reports (L12). A maximum hold and a scheduled end get no grace.
    pub(super) fn end_if_over(&mut self, slot: u32, brings_progress: bool) -> Result<(), Refusal> {
        let now = self.now();
        let late = self.turn().late;
        let (deadline, reason) = self.table.lease_deadline(slot, now);
        let late = late && !mutants::on(Mutant::LateRenewalRefused);
        let excused = reason == EndReason::Ttl || (reason == EndReason::Stalled && brings_progress);
        if deadline <= now && !(late && excused) {
            if !mutants::on(Mutant::RefusalNotRecorded) {
                self.end_lease(slot, reason, "");
            }
            return Err(Refusal::Lost(reason));
        }
        let lease = self.table.lease(slot);
        if lease.follows_session() && !late {
            let session = self.table.actors[lease.actor].session;
            if self.table.session_deadline(session, now) <= now {
                self.end_session(session, EndReason::Ttl);
                return Err(Refusal::Lost(EndReason::Session));
            }
        }
        Ok(())
    }

    pub(super) fn end_lease(&mut self, slot: u32, reason: EndReason, comment: &str) {
        let number = self.table.lease(slot).number();
        let hold = self.blocks_for_operator(slot, reason);
        self.record(&Record::Ended { lease: slot, number, reason, hold, comment });
    }

    pub(super) fn renew(&mut self, renew: &Renew<'_>) -> Result<Answer, Refusal> {
        let slot = self.find_held(&renew.lease)?;
        self.renew_held(slot, renew)
    }

    /// Renews the lease in a slot, which the caller holds.
    #[inline]
    pub(super) fn renew_held(&mut self, slot: u32, renew: &Renew<'_>) -> Result<Answer, Refusal> {
        self.end_if_over(slot, renew.progress.is_some())?;
        if let Some(at) = renew.progress {
            self.make_progress(slot, at);
            // The reported position may not be progress.
            self.end_if_over(slot, false)?;
        }
        if let Some(ttl) = renew.ttl_ms {
            self.retime(slot, ttl)?;
        } else {
            self.extend(slot);
        }
        if self.rotates(slot) && !self.table.lease(slot).is_predecessor() && self.check_quarantine().is_ok() {
            self.rotate_number(slot)?;
        }
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Whether renewals of a lease rotate its token.
    pub(super) fn rotates(&self, slot: u32) -> bool {
        let charter = || self.table.charter(self.table.resources.name(self.table.lease(slot).resource));
        self.table.due.rotating > 0
            && charter().is_some_and(|charter| charter.token_on_renewal == TokenOnRenewal::Rotate)
    }

    /// Extends a lease. Only the first renewal in a tenure is recorded; later ones need no commit.
    fn extend(&mut self, slot: u32) {
        let now = self.now();
        let lease = self.table.lease(slot);
        if lease.follows_session() {
            return;
        }
        if lease.renewal.alive_in_tenure(&self.table.clock) || mutants::on(Mutant::AliveNotRecorded) {
            self.table.leases.at_mut(slot).expect("current").renewal.renew(now);
        } else {
            self.record(&Record::Alive { lease: slot });
        }
    }

    fn retime(&mut self, slot: u32, ttl: u64) -> Result<(), Refusal> {
        if self.table.lease(slot).follows_session() {
            return Err(Refusal::Invalid {
                field: "ttl",
                reason: "the lease lasts as long as its session; renew the session, or acquire with a ttl",
            });
        }
        let name = self.table.resources.name(self.table.lease(slot).resource);
        let ttl = self.check_ttl(name, ttl)?;
        if ttl == self.table.lease(slot).renewal.ttl {
            self.extend(slot);
        } else {
            self.record(&Record::Retimed { lease: slot, ttl });
        }
        Ok(())
    }

    pub(super) fn confirm(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = self.find_held(lease_ref)?;
        self.confirm_held(slot)
    }

    /// Confirms the lease in a slot, which the caller holds.
    pub(super) fn confirm_held(&mut self, slot: u32) -> Result<Answer, Refusal> {
        self.end_if_over(slot, false)?;
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// The answer to a holder about its lease.
    pub(super) fn current_answer(&self, slot: u32) -> CurrentLease {
        let now = self.now();
        let lease = self.table.lease(slot);
        let (drain_ms, overlaps_ms) = match self.table.extra(slot) {
            None => (None, None),
            Some(extra) => (
                extra.drain.as_ref().map(|drain| now.until(drain.until)),
                extra.predecessor.map(|predecessor| self.drain_remaining(predecessor)),
            ),
        };
        CurrentLease { number: lease.number(), remaining_ms: self.remaining(slot), drain_ms, overlaps_ms }
    }

    /// Time until a lease ends unless its deadline moves, with its maximum hold included (L10).
    pub(super) fn remaining(&self, slot: u32) -> u64 {
        let now = self.now();
        let lease = self.table.lease(slot);
        let (deadline, _) = self.table.lease_deadline(slot, now);
        let deadline = if lease.follows_session() {
            let session = self.table.actors[lease.actor].session;
            deadline.min(self.table.session_deadline(session, now))
        } else {
            deadline
        };
        now.until(deadline)
    }

    pub(super) fn release(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(lease_ref)?;
        match self.table.extra(slot).map_or(0, |extra| extra.depth) {
            0 => {
                match self.announced(slot) {
                    Some(EndReason::HandedOff) => self.end_drained(slot),
                    // The lease is being revoked: a release during the grace period does not change that (L6).
                    Some(reason @ (EndReason::Operator | EndReason::Policy)) => self.end_lease(slot, reason, ""),
                    _ => self.end_lease(slot, EndReason::Released, ""),
                }
            }
            depth => self.record(&Record::Depth { lease: slot, depth: depth - 1 }),
        }
        Ok(Answer::Done)
    }

    /// Rotates the token. The predecessor of an overlap handoff cannot: a new token would be above its successor's (H2). No
    /// number is issued during a quarantine (T9).
    pub(super) fn rotate(&mut self, lease_ref: &LeaseRef<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(lease_ref)?;
        if self.table.lease(slot).is_predecessor() {
            return Err(Refusal::Conflict(RefusalSubject::Handoff));
        }
        self.check_quarantine()?;
        self.rotate_number(slot)?;
        Ok(Answer::Current(self.current_answer(slot)))
    }

    fn rotate_number(&mut self, slot: u32) -> Result<(), Refusal> {
        let number = self.next_number()?;
        self.record(&Record::Rotated { lease: slot, number });
        Ok(())
    }

    pub(super) fn progress(&mut self, lease_ref: &LeaseRef<'_>, at: u64) -> Result<Answer, Refusal> {
        let slot = self.find_held(lease_ref)?;
        self.end_if_over(slot, true)?;
        self.make_progress(slot, at);
        self.end_if_over(slot, false)?;
        Ok(Answer::Current(self.current_answer(slot)))
    }

    /// Applies a progress report. A higher position renews the progress window; the same position is no progress (G1).
    fn make_progress(&mut self, slot: u32, at: u64) {
        let now = self.now();
        let clock = &self.table.clock;
        let progress = self.table.extras.get_mut(&slot).and_then(|extra| extra.progress.as_mut());
        let Some(progress) = progress else {
            return;
        };
        if at <= progress.seen && !mutants::on(Mutant::PulseIsProgress) {
            return;
        }
        if progress.renewal.alive_in_tenure(clock) {
            progress.seen = at;
            progress.renewal.renew(now);
        } else {
            self.record(&Record::Progressed { lease: slot, at });
        }
    }
}
