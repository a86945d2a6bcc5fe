//! Liveness that leases hang on: open, resume by secret, renew with all that rides on it, end in one step.

use sha2::{Digest, Sha256};

use super::Grantor;
use super::table::lease::NONE;
use super::table::party::Waiter;
use crate::command::{Answer, Known, OpenSession, Part, Secret, SessionGrant};
use crate::ids::{LeaseId, SessionId};
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::HolderName;
use crate::record::{Outcome, Record};
use crate::refusal::{Limit, Refusal, What};
use crate::store::slots::REUSE_MAX;
use crate::token::{Number, believed, lift};

impl Grantor {
    pub(super) fn open_session(&mut self, open: &OpenSession<'_>) -> Result<Answer, Refusal> {
        let holder = HolderName::parse(open.holder)?.as_str();
        let ttl = self.check_ttl("", open.ttl_ms)?;
        if self.table.sessions.count() >= limits::SESSIONS {
            let max = limits::SESSIONS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Sessions, max, got: max + 1 });
        }
        let (slot, reuse) = self.table.sessions.next_place();
        let session = SessionId { slot, reuse: reuse.max(self.reuse_by_clock()) };
        let secret = digest(open.secret);
        self.record(&Record::SessionOpened { session, holder, ttl, secret, waits_only: open.waits_only });
        Ok(self.session_grant(session, false))
    }

    /// What was rolled back or restored gives its places out again, and whoever still knows a session of the lost life would
    /// speak for another's (L5): a session's id is all that a single call shows. So the clock lifts it as it lifts numbers,
    /// once in 1024 ms. While it is known that something was lost, the lost ones may be ahead of the clock by as much as is
    /// believed. The upper half is left to count in, or places would retire when the numbers end.
    fn reuse_by_clock(&self) -> u32 {
        if mutants::on(Mutant::SessionIdAgain) {
            return 0;
        }
        let wall = self.table.wall;
        let lost = self.quarantine_deadline().map_or(0, |_| believed(wall).saturating_add(1 << 32));
        let number = lift(self.table.counter, wall).map_or(self.table.counter, Number::get).max(lost);
        u32::try_from(number >> 32).unwrap_or(REUSE_MAX).min(REUSE_MAX / 2)
    }

    /// S2: by its secret; the same name without it is another session.
    pub(super) fn resume_session(&mut self, id: SessionId, secret: Secret) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        let known = self.table.session(slot).secret;
        let differs = known.iter().zip(digest(secret)).fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs != 0 && !mutants::on(Mutant::SecretNotCompared) {
            return Err(Refusal::Denied("the secret is not this session's; open a session of your own"));
        }
        self.extend_session(slot);
        Ok(self.session_grant(id, false))
    }

    pub(super) fn renew_session(&mut self, id: SessionId, known: Option<Known>) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        self.extend_session(slot);
        let session = self.table.session(slot);
        let actual = Known { count: session.leases, digest: session.digest };
        Ok(self.session_grant(id, known.is_some_and(|known| known != actual)))
    }

    /// A lease that its client does not know, although its grant was acknowledged, is an orphan and ends.
    pub(super) fn reconcile(&mut self, id: SessionId, leases: &[LeaseId], part: Part) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        if !leases.is_sorted() {
            return Err(Refusal::Invalid { field: "leases", reason: "in rising order" });
        }
        if !leases.iter().all(|lease| part.has(*lease)) {
            return Err(Refusal::Invalid { field: "leases", reason: "from `from` up to and without `until`" });
        }
        let unacknowledged: std::collections::BTreeSet<LeaseId> = self
            .table
            .session(slot)
            .requests
            .iter()
            .filter_map(|request| match &request.outcome {
                Outcome::Granted(leases) => Some(leases),
                _ => None,
            })
            .flatten()
            .copied()
            .collect();
        for lease in self.table.session_leases(slot) {
            let known = self.table.lease_id(lease);
            if part.has(known) && leases.binary_search(&known).is_err() && !unacknowledged.contains(&known) {
                self.end_lease(lease, Reason::Released, "not known to its client");
            }
        }
        Ok(self.session_grant(id, false))
    }

    pub(super) fn close_session(&mut self, id: SessionId) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        self.end_session(slot, Reason::Released);
        Ok(Answer::Done)
    }

    /// The place of a session that is not over. One found past its deadline ends here, on record.
    pub(super) fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        if self.table.sessions.live(id.slot, id.reuse).is_none() {
            let told = self.table.sessions.tombstone(id.slot, id.reuse).is_some();
            return Err(if told { Refusal::Lost(Reason::Session) } else { Refusal::NotFound(What::Session) });
        }
        if self.table.session_deadline(id.slot, self.now()) <= self.now() && !self.turn().late {
            self.end_session(id.slot, Reason::Ttl);
            return Err(Refusal::Lost(Reason::Session));
        }
        Ok(id.slot)
    }

    fn extend_session(&mut self, slot: u32) {
        let now = self.now();
        if self.table.session(slot).term.alive_in_tenure(&self.table.clock) {
            self.table.sessions.at_mut(slot).expect("live").term.renew(now);
            return;
        }
        self.record(&Record::SessionAlive { session: slot });
        // Heard for the first time in this tenure: what it waits for may be free already.
        for waiter in self.table.session_waits(slot) {
            // And from now on it stands before others.
            self.cycles.suspect(self.table.waiter(waiter).party);
            for i in 0..self.table.waiter(waiter).asks.len() {
                self.table.offer_later(self.table.waiter(waiter).asks[i].resource);
            }
        }
    }

    /// Ends a session with all that it holds and waits for; whoever listened to a wait of its is told.
    pub(super) fn end_session(&mut self, slot: u32, reason: Reason) {
        let (mut touched, mut holders) = (Vec::new(), Vec::new());
        for waiter in self.table.session_waits(slot) {
            self.suspect_followers(waiter);
            let leaves = |other: &Waiter| self.table.parties[other.party].session == slot;
            holders.extend(self.heirs_of(waiter, leaves));
            let wait = self.table.waiter(waiter);
            touched.extend(wait.asks.iter().map(|ask| ask.resource));
            if let Some(tag) = wait.tag {
                self.reply(tag, Answer::Refused(Refusal::Lost(Reason::Session)));
            }
        }
        let session = self.session_id(slot);
        let read = self.table.cache.read_by(session);
        let received = self.table.queues.received_by(session);
        self.record(&Record::SessionEnded { session, reason });
        self.tell_cleared(read);
        self.no_longer_idle(session, &received);
        self.wait_left(&holders, &touched);
    }

    fn session_grant(&self, id: SessionId, mismatch: bool) -> Answer {
        let remaining_ms = self.now().until(self.table.session_deadline(id.slot, self.now()));
        let ttl_ms = u64::from(self.table.session(id.slot).term.ttl);
        Answer::Session(SessionGrant { session: id, ttl_ms, remaining_ms, mismatch })
    }

    /// Whether a party can act at all: those without a session are not nodes of the wait-for graph.
    pub(super) fn is_actor(&self, party: u32) -> bool {
        self.table.parties[party].session != NONE
    }
}

fn digest(secret: Secret) -> [u8; 32] {
    Sha256::digest(secret.0).into()
}
