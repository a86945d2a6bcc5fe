//! Sessions: liveness that leases hang on.

use leasehold_core::command::{Answer, Known, OpenSession, Part, SessionGrant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Reason;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, What};

use super::asks::{Said, invalid};
use super::model::{Memory, Session, Spec, lease_id};

impl Spec {
    pub fn open_session(&mut self, open: &OpenSession<'static>) -> Said {
        if !(limits::TTL_MIN..=self.max_ttl).contains(&open.ttl_ms) {
            return Err(invalid("ttl"));
        }
        // Whatever was lost was believed: it is at most a day ahead.
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

    /// A session that is not over. One past its deadline ends here, unless the grantor itself was late.
    pub fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        let Some(session) = self.sessions.get(id.slot as usize).filter(|session| id.reuse == session.reuse) else {
            return Err(Refusal::NotFound(What::Session));
        };
        let past = self.deadline(&session.term) <= self.now && !self.late;
        if session.over || past {
            if !session.over {
                self.end_session(id.slot);
            }
            return Err(Refusal::Lost(Reason::Session));
        }
        Ok(id.slot)
    }

    pub fn hear(&mut self, slot: u32) {
        self.sessions[slot as usize].term = self.renewed(self.sessions[slot as usize].term);
    }

    pub fn renew_session(&mut self, id: SessionId, known: Option<Known>) -> Said {
        let slot = self.live_session(id)?;
        self.hear(slot);
        let carried = self.carried_by(slot);
        let digest = carried.iter().fold(0, |digest, i| digest ^ self.leases[*i].number);
        let actual = Known { count: carried.len() as u32, digest };
        Ok(self.session_answer(slot, known.is_some_and(|known| known != actual)))
    }

    /// What its client does not know, although the grant was acknowledged, is an orphan.
    pub fn reconcile(&mut self, id: SessionId, known: &[LeaseId], part: Part) -> Said {
        let slot = self.live_session(id)?;
        for i in self.carried_by(slot) {
            let memory = self.sessions[slot as usize].memory.values();
            let mut unacknowledged = memory.filter_map(|(_, memory)| match memory {
                Memory::Granted(leases) => Some(leases),
                _ => None,
            });
            if part.has(lease_id(i))
                && !known.contains(&lease_id(i))
                && !unacknowledged.any(|leases| leases.contains(&i))
            {
                self.end_lease(i, Reason::Released);
            }
        }
        Ok(self.session_answer(slot, false))
    }
}
