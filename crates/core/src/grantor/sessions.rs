//! Sessions: open, resume with the secret, renew, reconcile and end.

use std::sync::Arc;

use super::Grantor;
use super::table::actors::Waiter;
use super::table::lease::NONE;
use crate::access::{Action, Caller, IdentityUsage, KEY_HOLDER, Permission, Rights, SECRET_DIFFERS, recorded_owner};
use crate::command::{Answer, Command, HeldDigest, IdRange, OpenSession, Request, SessionGrant};
use crate::ids::{LeaseId, SessionId};
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::HolderName;
use crate::record::{DrainCause, Record, StoredOutcome};
use crate::refusal::{Limit, Refusal, RefusalSubject};
use crate::secret::SecretDigest;
use crate::store::slab::REUSE_MAX;
use crate::token::{Number, next_number, plausible_max};

impl Grantor {
    pub(super) fn open_session(&mut self, caller: &Caller<'_>, open: &OpenSession<'_>) -> Result<Answer, Refusal> {
        // A recorded session with this holder counts as an idempotency key, so only a key may open one (A12).
        if open.waits_only && open.holder == KEY_HOLDER && !mutants::on(Mutant::KeyHolderAccepted) {
            let reason = "reserved for the sessions of idempotency keys; choose another holder";
            return Err(Refusal::Invalid { field: "holder", reason });
        }
        self.open_any_session(caller, open)
    }

    fn open_any_session(&mut self, caller: &Caller<'_>, open: &OpenSession<'_>) -> Result<Answer, Refusal> {
        let holder = HolderName::parse(open.holder)?.as_str();
        let owner = recorded_owner(caller)?;
        let ttl = self.check_ttl("", open.ttl_ms)?;
        if self.table.sessions.count() >= limits::SESSIONS {
            let max = limits::SESSIONS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Sessions, max, got: max + 1 });
        }
        self.check_identity_limits(caller, IdentityUsage::of_session(open.waits_only, holder))?;
        let (slot, reuse) = self.table.sessions.next_slot();
        let session = SessionId { slot, reuse: reuse.max(self.reuse_by_clock()) };
        let secret = open.secret.bytes();
        let waits_only = open.waits_only;
        self.record(&Record::SessionOpened { session, owner, holder, ttl, secret, waits_only });
        Ok(self.session_grant(session, false))
    }

    /// The session of an idempotency key: the one that was opened for it, or a new one. A second request under the key finds the
    /// stored reply in it, also after a failover (L11). Only the same identity finds it, because the digest covers the identity (A6).
    ///
    /// A request that the access rules refuse opens nothing, because denials are not recorded (A13). Without a request only a session
    /// that exists is extended: nothing opens one unchecked (A4).
    pub(super) fn open_key_session(
        &mut self,
        request: &Request<'_>,
        key: SecretDigest,
        command: Option<&Command<'_>>,
    ) -> Result<Answer, Refusal> {
        let caller = &request.caller;
        if let Some(slot) = self.table.key_session(&key.bytes()) {
            let id = self.session_id(slot);
            let is_own = self.table.owners.name(self.table.session(slot).owner) == caller.principal;
            // One that is past its deadline ends here, and the key is new.
            if is_own && self.live_session(id).is_ok() && !mutants::on(Mutant::KeyAlwaysNew) {
                self.extend_session(slot);
                return Ok(self.session_grant(id, false));
            }
        }
        match command {
            Some(command) => self.check_command_under_key(request, command)?,
            None if mutants::on(Mutant::KeyOpenedUnchecked) => {}
            None => return Err(Refusal::NotFound(RefusalSubject::Session)),
        }
        if self.table.key_sessions.len() >= limits::KEY_SESSIONS {
            let max = limits::KEY_SESSIONS as u64;
            return Err(Refusal::Exhausted { limit: Limit::Sessions, max, got: max + 1 });
        }
        let ttl_ms = limits::KEY_TTL.min(self.table.max_ttl());
        self.open_any_session(caller, &OpenSession { holder: KEY_HOLDER, ttl_ms, secret: key, waits_only: true })
    }

    /// The lowest reuse count for a new session, from the wall clock.
    ///
    /// After a rollback or a restore, slots are assigned again. A client that still knows a lost session could then act for
    /// another client's session (L5), because a single call presents only the session id. The clock therefore raises the
    /// reuse count as it raises token numbers, once in 1024 ms. During a quarantine, lost sessions may be as far ahead of the
    /// clock as is plausible. The upper half of the range is left for counting, or slots would retire when numbers run out.
    fn reuse_by_clock(&self) -> u32 {
        if mutants::on(Mutant::SessionIdAgain) {
            return 0;
        }
        let wall = self.table.wall;
        let lost = self.quarantine_deadline().map_or(0, |_| plausible_max(wall).saturating_add(1 << 32));
        let number = next_number(self.table.counter, wall).map_or(self.table.counter, Number::get).max(lost);
        u32::try_from(number >> 32).unwrap_or(REUSE_MAX).min(REUSE_MAX / 2)
    }

    /// Resumes a session with its secret; the name alone does not identify it (S2).
    pub(super) fn resume_session(&mut self, id: SessionId, secret: SecretDigest) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        let known = SecretDigest::stored(self.table.session(slot).secret);
        if known != secret && !mutants::on(Mutant::SecretNotCompared) {
            return Err(Refusal::Denied(SECRET_DIFFERS));
        }
        self.extend_session(slot);
        Ok(self.session_grant(id, false))
    }

    pub(super) fn renew_session(&mut self, id: SessionId, known: Option<HeldDigest>) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        self.extend_session(slot);
        let session = self.table.session(slot);
        let actual = HeldDigest { count: session.leases, digest: session.digest };
        Ok(self.session_grant(id, known.is_some_and(|known| known != actual)))
    }

    /// Ends orphaned leases: those whose grant was acknowledged but that the client does not know.
    pub(super) fn reconcile(&mut self, id: SessionId, leases: &[LeaseId], range: IdRange) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        if !leases.is_sorted() {
            return Err(Refusal::Invalid { field: "leases", reason: "must be in ascending order" });
        }
        if !leases.iter().all(|lease| range.contains(*lease)) {
            return Err(Refusal::Invalid {
                field: "leases",
                reason: "must be within `from` (inclusive) and `until` (exclusive)",
            });
        }
        let unacknowledged: std::collections::BTreeSet<LeaseId> = self
            .table
            .session(slot)
            .requests
            .iter()
            .filter_map(|request| match &request.outcome {
                StoredOutcome::Granted(leases) => Some(leases),
                _ => None,
            })
            .flatten()
            .copied()
            .collect();
        for lease in self.table.session_leases(slot) {
            let known = self.table.lease_id(lease);
            if range.contains(known) && leases.binary_search(&known).is_err() && !unacknowledged.contains(&known) {
                self.end_lease(lease, EndReason::Released, "unknown to its client");
            }
        }
        Ok(self.session_grant(id, false))
    }

    pub(super) fn close_session(&mut self, id: SessionId) -> Result<Answer, Refusal> {
        let slot = self.live_session(id)?;
        self.end_session(slot, EndReason::Released);
        Ok(Answer::Done)
    }

    /// The slot of a live session. A session past its deadline ends here, and the end is recorded.
    pub(super) fn live_session(&mut self, id: SessionId) -> Result<u32, Refusal> {
        if self.table.sessions.live(id.slot, id.reuse).is_none() {
            let ended = self.table.sessions.tombstone(id.slot, id.reuse).is_some();
            return Err(if ended {
                Refusal::Lost(EndReason::Session)
            } else {
                Refusal::NotFound(RefusalSubject::Session)
            });
        }
        if self.table.session_deadline(id.slot, self.now()) <= self.now() && !self.turn().late {
            self.end_session(id.slot, EndReason::Ttl);
            return Err(Refusal::Lost(EndReason::Session));
        }
        Ok(id.slot)
    }

    fn extend_session(&mut self, slot: u32) {
        let now = self.now();
        if self.table.session(slot).renewal.alive_in_tenure(&self.table.clock) {
            self.table.sessions.at_mut(slot).expect("live").renewal.renew(now);
            return;
        }
        self.record(&Record::SessionAlive { session: slot });
        // The first renewal in this tenure: the resources it waits for may be free already.
        for waiter in self.table.session_waits(slot) {
            // From now on its waits block others.
            self.deadlock_detector.suspect(self.table.waiter(waiter).actor);
            for i in 0..self.table.waiter(waiter).resources.len() {
                self.table.schedule_offer(self.table.waiter(waiter).resources[i].resource);
            }
        }
    }

    /// Ends a session with all its leases and waits, and replies to the callers of its waits.
    pub(super) fn end_session(&mut self, slot: u32, reason: EndReason) {
        let (mut touched, mut holders) = (Vec::new(), Vec::new());
        for waiter in self.table.session_waits(slot) {
            self.suspect_followers(waiter);
            let leaves = |other: &Waiter| self.table.actors[other.actor].session == slot;
            holders.extend(self.inheritors_of(waiter, leaves));
            let wait = self.table.waiter(waiter);
            touched.extend(wait.resources.iter().map(|wanted| wanted.resource));
            if let Some(tag) = wait.tag {
                self.reply(tag, Answer::Refused(Refusal::Lost(EndReason::Session)));
            }
        }
        let session = self.session_id(slot);
        let read = self.table.cache.read_by(session);
        let received = self.table.queues.received_by(session);
        self.record(&Record::SessionEnded { session, reason });
        self.notify_cleared(read);
        self.remove_idle_consumer(session, &received);
        self.after_wait_left(&holders, &touched);
    }

    fn session_grant(&self, id: SessionId, mismatch: bool) -> Answer {
        let remaining_ms = self.now().until(self.table.session_deadline(id.slot, self.now()));
        let ttl_ms = u64::from(self.table.session(id.slot).renewal.ttl);
        Answer::Session(SessionGrant { session: id, ttl_ms, remaining_ms, mismatch })
    }

    /// Revokes the leases that live as long as a session and that its owner may no longer renew. They end when they would have ended
    /// without this renewal.
    pub(super) fn revoke_uncovered_leases(&mut self, slot: u32, rights: &Rights) {
        let grace_ms = u64::from(self.table.session(slot).renewal.ttl).min(limits::GRACE_MAX);
        let cause = DrainCause::Revoked { reason: EndReason::Policy, comment: "the access rules changed" };
        for lease in self.table.session_leases(slot) {
            let name = self.table.resources.name(self.table.lease(lease).resource);
            let covered = rights.permission(Action::Renew, name) != Permission::No;
            if self.table.lease(lease).follows_session() && !covered {
                self.announce(lease, cause, grace_ms);
            }
        }
    }

    /// The owner of a live session as it is recorded: `None` for `local`.
    pub(super) fn session_owner(&self, id: SessionId) -> Option<Arc<str>> {
        let session = self.table.sessions.live(id.slot, id.reuse)?;
        self.table.owners.recorded(session.owner).cloned()
    }

    /// Whether an actor has a session. An actor without one is not a node of the wait-for graph.
    pub(super) fn has_session(&self, actor: u32) -> bool {
        self.table.actors[actor].session != NONE
    }
}
