//! Sessions.

use leasehold_core::command::{Answer, HeldDigest, IdRange, OpenSession, SessionGrant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::EndReason;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalSubject};

use super::commands::{SpecResult, invalid};
use super::model::{Session, Spec, StoredReply, lease_id};

impl Spec {
    pub fn open_session(&mut self, open: &OpenSession<'static>) -> SpecResult {
        if !(limits::TTL_MIN..=self.max_ttl).contains(&open.ttl_ms) {
            return Err(invalid("ttl"));
        }
        // A lost number was plausible, so it is at most one day ahead.
        let lost = if self.quarantined().is_err() { ((self.wall + 86_400_000) << 22) + (1 << 32) } else { 0 };
        self.sessions.push(Session {
            reuse: (self.next_number().max(lost) >> 32).min((1 << 30) - 1) as u32,
            holder: open.holder,
            term: self.term(open.ttl_ms),
            secret: open.secret.0,
            waits_only: open.waits_only,
            over: false,
            memory: std::collections::BTreeMap::new(),
            lowest: 1,
        });
        Ok(self.session_answer(self.sessions.len() as u32 - 1, false))
    }

    pub fn session_answer(&self, slot: u32, mismatch: bool) -> Answer {
        let term = &self.sessions[slot as usize].term;
        let remaining_ms = self.deadline(term).saturating_sub(self.now);
        Answer::Session(SessionGrant { session: self.session_id(slot), ttl_ms: term.ttl, remaining_ms, mismatch })
    }

    /// A live session. One past its deadline ends here, unless the grantor itself was late.
    pub fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        let Some(session) = self.sessions.get(id.slot as usize).filter(|session| id.reuse == session.reuse) else {
            return Err(Refusal::NotFound(RefusalSubject::Session));
        };
        let past = self.deadline(&session.term) <= self.now && !self.late;
        if session.over || past {
            if !session.over {
                self.end_session(id.slot);
            }
            return Err(Refusal::Lost(EndReason::Session));
        }
        Ok(id.slot)
    }

    pub fn confirm_session(&mut self, slot: u32) {
        self.sessions[slot as usize].term = self.renewed(self.sessions[slot as usize].term);
    }

    pub fn renew_session(&mut self, id: SessionId, known: Option<HeldDigest>) -> SpecResult {
        let slot = self.live_session(id)?;
        self.confirm_session(slot);
        let carried = self.carried_by(slot);
        let digest = carried.iter().fold(0, |digest, i| digest ^ self.leases[*i].number);
        let actual = HeldDigest { count: carried.len() as u32, digest };
        Ok(self.session_answer(slot, known.is_some_and(|known| known != actual)))
    }

    /// A lease that the client does not know, although its grant was acknowledged, is an orphan and ends.
    pub fn reconcile(&mut self, id: SessionId, known: &[LeaseId], range: IdRange) -> SpecResult {
        let slot = self.live_session(id)?;
        for i in self.carried_by(slot) {
            let memory = self.sessions[slot as usize].memory.values();
            let mut unacknowledged = memory.filter_map(|(_, memory)| match memory {
                StoredReply::Granted(leases) => Some(leases),
                _ => None,
            });
            if range.contains(lease_id(i))
                && !known.contains(&lease_id(i))
                && !unacknowledged.any(|leases| leases.contains(&i))
            {
                self.end_lease(i, EndReason::Released);
            }
        }
        Ok(self.session_answer(slot, false))
    }
}
