//! What a holder does with its own lease: renew, confirm, release, rotate, show progress.

use super::Grantor;
use super::table::lease::NONE;
use crate::charter::TokenOnRenewal;
use crate::command::{Answer, Current, Held, Renew, Which};
use crate::ids::LeaseId;
use crate::lease::Reason;
use crate::mutants::{self, Mutant};
use crate::name::Name;
use crate::record::Record;
use crate::refusal::{NotCurrent, Refusal, What};

impl Grantor {
    /// The place of a lease that the caller names rightly and that is not over. A lease found past its deadline ends here,
    /// on record, before anybody is told (L4).
    pub(super) fn current(&mut self, held: &Held<'_>) -> Result<u32, Refusal> {
        let slot = self.find_held(held)?;
        self.end_if_over(slot, false)?;
        Ok(slot)
    }

    fn find_held(&self, held: &Held<'_>) -> Result<u32, Refusal> {
        let slot = match held.lease {
            Which::Id(id) => self.by_id(id, held)?,
            Which::Resource(name) => self.by_name(name, held)?,
        };
        self.check_holder(slot, held)?;
        Ok(slot)
    }

    /// Whether a lease is held under this token, by whomever.
    pub(super) fn is_held(&self, held: &Held<'_>) -> bool {
        self.find_held(&Held { session: None, holder: None, ..*held }).is_ok()
    }

    fn by_id(&self, id: LeaseId, held: &Held<'_>) -> Result<u32, Refusal> {
        if let Some(lease) = self.table.live(id) {
            return if lease.number() == held.number || mutants::on(Mutant::TokenNotCompared) {
                Ok(id.slot)
            } else {
                Err(Refusal::NotCurrent(NotCurrent::Superseded))
            };
        }
        match self.table.leases.tombstone(id.slot, id.reuse) {
            Some(ended) if ended.number() == held.number => Err(Refusal::Lost(ended.buried())),
            Some(_) => Err(Refusal::NotCurrent(NotCurrent::Superseded)),
            None => Err(self.ended_or(held, NotCurrent::Unknown)),
        }
    }

    fn by_name(&self, name: &str, held: &Held<'_>) -> Result<u32, Refusal> {
        let name = Name::parse(name)?;
        let Some(resource) = self.table.resources.find(name.as_str()) else {
            return Err(self.ended_or(held, NotCurrent::Unknown));
        };
        let sole = self.table.resources.sole(resource);
        let crowd = self.table.resources.crowd(resource).map_or(&[][..], |crowd| &crowd.leases);
        let mut leases = crowd.iter().copied().chain((sole != NONE).then_some(sole));
        match leases.find(|slot| self.table.lease(*slot).number() == held.number) {
            Some(slot) => Ok(slot),
            None => Err(self.ended_or(held, NotCurrent::Superseded)),
        }
    }

    /// The end of the lease that had this token, if it is remembered, or else the given answer.
    fn ended_or(&self, held: &Held<'_>, otherwise: NotCurrent) -> Refusal {
        match self.table.ends.reason_of(held.number.get()) {
            Some(reason) => Refusal::Lost(reason),
            None => Refusal::NotCurrent(otherwise),
        }
    }

    /// Only the holder: the right session, the right name, where they are told (L5).
    fn check_holder(&self, slot: u32, held: &Held<'_>) -> Result<(), Refusal> {
        if held.session.is_none() && held.holder.is_none() {
            return Ok(());
        }
        let party = self.table.lease(slot).party;
        let session = self.table.parties[party].session;
        let right_session = match held.session {
            None => true,
            Some(id) => id.slot == session && self.table.sessions.live(id.slot, id.reuse).is_some(),
        };
        let right_name = held.holder.is_none_or(|name| name == self.table.holder_name(party));
        if (right_session && right_name) || mutants::on(Mutant::HolderNotCompared) {
            Ok(())
        } else {
            Err(Refusal::NotCurrent(NotCurrent::NotHolder))
        }
    }

    /// Ends a lease whose time is over and tells why. In a late turn the grantor's own standing still is not held against
    /// a renewal that waited at its door, nor against the progress that it brings (L12); a maximum hold and an announced
    /// end get no such grace.
    fn end_if_over(&mut self, slot: u32, brings_progress: bool) -> Result<(), Refusal> {
        let now = self.now();
        let late = self.turn().late;
        let (deadline, reason) = self.table.lease_deadline(slot, now);
        let late = late && !mutants::on(Mutant::LateRenewalRefused);
        let excused = reason == Reason::Ttl || (reason == Reason::Stalled && brings_progress);
        if deadline <= now && !(late && excused) {
            if !mutants::on(Mutant::RefusalNotRecorded) {
                self.end_lease(slot, reason, "");
            }
            return Err(Refusal::Lost(reason));
        }
        let lease = self.table.lease(slot);
        if lease.rides() && !late {
            let session = self.table.parties[lease.party].session;
            if self.table.session_deadline(session, now) <= now {
                self.end_session(session, Reason::Ttl);
                return Err(Refusal::Lost(Reason::Session));
            }
        }
        Ok(())
    }

    pub(super) fn end_lease(&mut self, slot: u32, reason: Reason, why: &str) {
        let number = self.table.lease(slot).number();
        let hold = self.held_for_operator(slot, reason);
        self.record(&Record::Ended { lease: slot, number, reason, hold, why });
    }

    pub(super) fn renew(&mut self, renew: &Renew<'_>) -> Result<Answer, Refusal> {
        let slot = self.find_held(&renew.held)?;
        self.end_if_over(slot, renew.progress.is_some())?;
        if let Some(at) = renew.progress {
            self.make_progress(slot, at);
            // What it brought may have been no progress.
            self.end_if_over(slot, false)?;
        }
        if let Some(ttl) = renew.ttl_ms {
            self.retime(slot, ttl)?;
        } else {
            self.extend(slot);
        }
        if self.rotates(slot) && !self.table.lease(slot).is_apart() && self.check_quarantine().is_ok() {
            self.rotate_number(slot)?;
        }
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// Whether renewals of a lease raise its token.
    pub(super) fn rotates(&self, slot: u32) -> bool {
        let charter = || self.table.charter(self.table.resources.name(self.table.lease(slot).resource));
        self.table.due.rotating > 0
            && charter().is_some_and(|charter| charter.token_on_renewal == TokenOnRenewal::Rotate)
    }

    /// Moves a deadline. The first renewal of a tenure goes on record; the others cost no commit.
    fn extend(&mut self, slot: u32) {
        let now = self.now();
        let lease = self.table.lease(slot);
        if lease.rides() {
            return;
        }
        if lease.term.alive_in_tenure(&self.table.clock) || mutants::on(Mutant::AliveNotRecorded) {
            self.table.leases.at_mut(slot).expect("current").term.renew(now);
        } else {
            self.record(&Record::Alive { lease: slot });
        }
    }

    fn retime(&mut self, slot: u32, ttl: u64) -> Result<(), Refusal> {
        if self.table.lease(slot).rides() {
            return Err(Refusal::Invalid {
                field: "ttl",
                reason: "the lease lives as long as its session; renew the session, or acquire with a ttl",
            });
        }
        let name = self.table.resources.name(self.table.lease(slot).resource);
        let ttl = self.check_ttl(name, ttl)?;
        if ttl == self.table.lease(slot).term.ttl {
            self.extend(slot);
        } else {
            self.record(&Record::Retimed { lease: slot, ttl });
        }
        Ok(())
    }

    pub(super) fn confirm(&mut self, held: &Held<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// What a holder is told about its lease.
    pub(super) fn current_now(&self, slot: u32) -> Current {
        let now = self.now();
        let lease = self.table.lease(slot);
        let (drain_ms, overlaps_ms) = match self.table.extra(slot) {
            None => (None, None),
            Some(extra) => (
                extra.drain.as_ref().map(|drain| now.until(drain.until)),
                extra.predecessor.map(|predecessor| self.drains_for(predecessor)),
            ),
        };
        Current { number: lease.number(), remaining_ms: self.remaining(slot), drain_ms, overlaps_ms }
    }

    /// How long a lease lives unless something moves its deadline: the truth, also at the maximum hold (L10).
    pub(super) fn remaining(&self, slot: u32) -> u64 {
        let now = self.now();
        let lease = self.table.lease(slot);
        let (deadline, _) = self.table.lease_deadline(slot, now);
        let deadline = if lease.rides() {
            let session = self.table.parties[lease.party].session;
            deadline.min(self.table.session_deadline(session, now))
        } else {
            deadline
        };
        now.until(deadline)
    }

    pub(super) fn release(&mut self, held: &Held<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        match self.table.extra(slot).map_or(0, |extra| extra.depth) {
            0 => {
                match self.announced(slot) {
                    Some(Reason::HandedOff) => self.end_drained(slot),
                    // Authority has taken it; that the holder went before its grace was over changes nothing (L6).
                    Some(reason @ (Reason::Operator | Reason::Policy)) => self.end_lease(slot, reason, ""),
                    _ => self.end_lease(slot, Reason::Released, ""),
                }
            }
            depth => self.record(&Record::Depth { lease: slot, depth: depth - 1 }),
        }
        Ok(Answer::Done)
    }

    /// The predecessor of an overlap keeps its token: a new one would stand above its successor's (H2). And a quarantine
    /// gives out no number, whoever asks (T9).
    pub(super) fn rotate(&mut self, held: &Held<'_>) -> Result<Answer, Refusal> {
        let slot = self.current(held)?;
        if self.table.lease(slot).is_apart() {
            return Err(Refusal::Conflict(What::Handoff));
        }
        self.check_quarantine()?;
        self.rotate_number(slot)?;
        Ok(Answer::Current(self.current_now(slot)))
    }

    fn rotate_number(&mut self, slot: u32) -> Result<(), Refusal> {
        let number = self.next_number()?;
        self.record(&Record::Rotated { lease: slot, number });
        Ok(())
    }

    pub(super) fn progress(&mut self, held: &Held<'_>, at: u64) -> Result<Answer, Refusal> {
        let slot = self.find_held(held)?;
        self.end_if_over(slot, true)?;
        self.make_progress(slot, at);
        self.end_if_over(slot, false)?;
        Ok(Answer::Current(self.current_now(slot)))
    }

    /// Evidence of progress renews the progress window; the same position twice is no progress (G1).
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
        if progress.term.alive_in_tenure(clock) {
            progress.seen = at;
            progress.term.renew(now);
        } else {
            self.record(&Record::Progressed { lease: slot, at });
        }
    }
}
