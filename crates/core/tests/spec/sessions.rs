//! Sessions of the spec: open, renew and reconcile them, also those of idempotency keys.

use leasehold_core::command::{Answer, HeldDigest, IdRange, OpenSession, SessionGrant};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::EndReason;
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::secret::SecretDigest;

use super::command_effects::{SpecResult, invalid};
use super::model::{Session, Spec, StoredReply, lease_id};

/// The holder of the sessions of idempotency keys.
pub const KEY_HOLDER: &str = "idempotency key";

impl Spec {
    pub fn open_session(&mut self, open: &OpenSession<'static>) -> SpecResult {
        // Such a session would count as an idempotency key.
        if open.waits_only && open.holder == KEY_HOLDER {
            return Err(invalid("holder"));
        }
        self.open_any_session(open)
    }

    fn open_any_session(&mut self, open: &OpenSession<'static>) -> SpecResult {
        if !(limits::TTL_MIN..=self.max_ttl).contains(&open.ttl_ms) {
            return Err(invalid("ttl"));
        }
        // A lost number was plausible, so it is at most one day ahead.
        let lost = if self.check_quarantine().is_err() { ((self.wall + 86_400_000) << 22) + (1 << 32) } else { 0 };
        self.sessions.push(Session {
            reuse: (self.next_number().max(lost) >> 32).min((1 << 30) - 1) as u32,
            holder: open.holder,
            lifetime: self.lifetime(open.ttl_ms),
            secret: open.secret.bytes(),
            waits_only: open.waits_only,
            ended: false,
            stored: std::collections::BTreeMap::new(),
            lowest: 1,
        });
        Ok(self.session_answer(self.sessions.len() as u32 - 1, false))
    }

    /// The live session of an idempotency key, or a new one for a request (L11).
    pub fn open_key_session(&mut self, key: SecretDigest, has_request: bool) -> SpecResult {
        let has_key = |session: &Session| !session.ended && session.waits_only && session.secret == key.bytes();
        if let Some(slot) = self.sessions.iter().position(has_key) {
            let slot = slot as u32;
            // One past its deadline ends here.
            if self.live_session(self.session_id(slot)).is_ok() {
                self.confirm_session(slot);
                return Ok(self.session_answer(slot, false));
            }
        }
        if !has_request {
            return Err(Refusal::NotFound(RefusalSubject::Session));
        }
        let ttl_ms = limits::KEY_TTL.min(self.max_ttl);
        self.open_any_session(&OpenSession { holder: KEY_HOLDER, ttl_ms, secret: key, waits_only: true })
    }

    pub fn session_answer(&self, slot: u32, mismatch: bool) -> Answer {
        let lifetime = &self.sessions[slot as usize].lifetime;
        let remaining_ms = self.deadline(lifetime).saturating_sub(self.now);
        Answer::Session(SessionGrant { session: self.session_id(slot), ttl_ms: lifetime.ttl, remaining_ms, mismatch })
    }

    /// A live session. One past its deadline ends here, unless the grantor itself was late.
    pub fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        let Some(session) = self.sessions.get(id.slot as usize).filter(|session| id.reuse == session.reuse) else {
            return Err(Refusal::NotFound(RefusalSubject::Session));
        };
        let past = self.deadline(&session.lifetime) <= self.now && !self.late;
        if session.ended || past {
            if !session.ended {
                self.end_session(id.slot);
            }
            return Err(Refusal::Lost(EndReason::Session));
        }
        Ok(id.slot)
    }

    pub fn confirm_session(&mut self, slot: u32) {
        self.sessions[slot as usize].lifetime = self.renewed(self.sessions[slot as usize].lifetime);
    }

    pub fn renew_session(&mut self, id: SessionId, known: Option<HeldDigest>) -> SpecResult {
        let slot = self.live_session(id)?;
        self.confirm_session(slot);
        let own_leases = self.leases_in(slot);
        let digest = own_leases.iter().fold(0, |digest, i| digest ^ self.leases[*i].number);
        let actual = HeldDigest { count: own_leases.len() as u32, digest };
        Ok(self.session_answer(slot, known.is_some_and(|known| known != actual)))
    }

    /// A lease that the client does not know, although its grant was acknowledged, is an orphan and ends.
    pub fn reconcile(&mut self, id: SessionId, known: &[LeaseId], range: IdRange) -> SpecResult {
        let slot = self.live_session(id)?;
        for i in self.leases_in(slot) {
            let stored = self.sessions[slot as usize].stored.values();
            let mut unacknowledged = stored.filter_map(|(_, stored)| match stored {
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
