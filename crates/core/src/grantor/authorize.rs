//! The one authorization check: every request passes it before anything of the request is read, replayed or changed (A4).
//!
//! It has two halves. The rights of the caller are compared with the action and the names that the request gives; then a token that
//! the request presents counts as evidence of a rollback; then the subject is looked up. A holder whose session or lease was lost in
//! a rollback passes the first half, so that its token is seen. What a request names by id is judged by the resource that it belongs to, at this moment. What the caller may not see is answered
//! like what does not exist, before any other field of the request is looked at (A5). Only the identity that was granted something
//! acts on it, and it proves that it was: by the session's stream, or by the secret of the session or the lease (A6). A caller
//! without restrictions passes; its requests are not checked.

mod access_check;
mod access_subject;

use super::Grantor;
use super::table::actors::SessionEntry;
use crate::access::{Action, Caller};
use crate::command::{Command, LeaseRef, LeaseSelector, Proof, Renew, Request};
use crate::ids::{LeaseId, SessionId};
use crate::mutants::{self, Mutant};
use crate::refusal::Refusal;
use crate::secret::SecretDigest;
use access_check::AccessCheck;
pub(super) use access_subject::action;
use access_subject::{AccessSubject, subject};

/// A request that the access rules refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The tag of the request.
    pub tag: u64,
    /// What it requested.
    pub action: Action,
    /// Whether the reply says that the subject does not exist, because the caller may not see it.
    pub hidden: bool,
}

/// What is known about a request after the first half of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    /// Nothing is left to check.
    Complete,
    /// Nothing is left to check, and the lease in this slot was found: the caller owns it, and holds it with the token that the
    /// request names, in the session whose stream carries the request.
    OwnLease(u32),
    /// The rights suffice; its subject is not checked yet.
    ByRights,
}

impl Grantor {
    /// The first half of the check: whether the caller may do this at all, to the names that it gives. It depends on the request and
    /// the rights alone. After it, a token that the request presents counts as evidence, also if the state that knew the subject of
    /// the request is lost (T9).
    #[inline]
    pub(super) fn authorize(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<Authorization, Refusal> {
        if request.caller.rights.is_unrestricted() {
            return Ok(Authorization::Complete);
        }
        if let Some(authorization) = self.find_checked_renewal(request, command) {
            return Ok(authorization);
        }
        let checked = self.access_check(request, command).rights();
        self.count_denial(request, command, checked)?;
        Ok(Authorization::ByRights)
    }

    /// The second half: whether the subject of the request is the caller's to act on, judged by the resource that it belongs to.
    #[inline]
    pub(super) fn authorize_subject(
        &mut self,
        authorization: Authorization,
        request: &Request<'_>,
        command: &Command<'_>,
    ) -> Result<(), Refusal> {
        if authorization != Authorization::ByRights {
            return Ok(());
        }
        let checked = self.access_check(request, command).request_id(request, command);
        self.count_denial(request, command, checked)?;
        self.remember_check(request, command);
        Ok(())
    }

    fn access_check<'a>(&'a mut self, request: &'a Request<'_>, command: &'a Command<'_>) -> AccessCheck<'a> {
        let me = self.table.owners.resolve(request.caller.principal);
        let (caller, proof) = (&request.caller, &request.proof);
        AccessCheck { grantor: self, caller, proof, me, action: action(command), subject: subject(command) }
    }

    /// Whether a caller may execute a command now, without an effect.
    pub(super) fn may(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        if request.caller.rights.is_unrestricted() {
            return Ok(());
        }
        let check = self.access_check(request, command);
        check.rights()?;
        check.subject()
    }

    /// Whether the first half of the check passes, without an effect.
    pub(super) fn is_covered(&mut self, request: &Request<'_>, command: &Command<'_>) -> bool {
        request.caller.rights.is_unrestricted() || self.access_check(request, command).rights().is_ok()
    }

    /// Whether a caller may execute a command for which it opens the session of a key. A denial counts as one of the command.
    pub(super) fn check_command_under_key(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
    ) -> Result<(), Refusal> {
        let checked = self.may(request, command);
        self.count_denial(request, command, checked)
    }

    /// Whether a caller may read what belongs to a session, without an effect: as its owner, with its secret (A6).
    pub(super) fn authorize_session(
        &self,
        caller: &Caller<'_>,
        action: Action,
        session: SessionId,
        secret: Option<SecretDigest>,
    ) -> Result<(), Refusal> {
        if caller.rights.is_unrestricted() {
            return Ok(());
        }
        let proof = &Proof { session: secret, ..Proof::NONE };
        let (me, subject) = (self.table.owners.find(caller.principal), AccessSubject::Session(session));
        let check = AccessCheck { grantor: self, caller, proof, me, action, subject };
        check.rights()?;
        check.subject()
    }

    /// Whether the caller was granted a lease and proves it, as its holder does, whatever else its roles allow (A6).
    pub(super) fn is_holder(&mut self, request: &Request<'_>, command: &Command<'_>, slot: u32) -> bool {
        let check = self.access_check(request, command);
        let lease = check.grantor.table.lease(slot);
        Some(lease.owner) == check.me && check.proves_lease(lease)
    }

    fn count_denial(
        &mut self,
        request: &Request<'_>,
        command: &Command<'_>,
        checked: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if let Err(refusal) = &checked {
            let hidden = !matches!(refusal, Refusal::Denied(_) | Refusal::DeniedField { .. });
            self.out.denials.push(Denial { tag: request.tag, action: action(command), hidden });
        }
        checked
    }

    /// The authorization of a renewal by the owner that was checked under the same access rules. The hot path compares numbers and
    /// the identity; it looks up the lease once, for the check and for the renewal.
    #[inline]
    fn find_checked_renewal(&mut self, request: &Request<'_>, command: &Command<'_>) -> Option<Authorization> {
        let subject = renewal_subject(command)?;
        // The answer may be a stored one.
        if request.id.is_some() && self.uses_request_id(command) {
            return None;
        }
        if mutants::on(Mutant::RenewUnchecked) {
            return Some(Authorization::Complete);
        }
        // Only over the stream of the session; other proofs take the full check.
        let stream = request.proof.stream?;
        let (authorization, known) = match subject {
            RenewalSubject::Lease(id, held) => {
                let lease = self.table.live(id)?;
                let is_held = lease.number() == held.number && held.session == Some(stream) && held.holder.is_none();
                let in_session = self.table.actors[lease.actor].session == stream.slot
                    && self.table.sessions.is_live_as(stream.slot, stream.reuse);
                let known = (is_held && in_session).then_some((lease.owner, lease.checked))?;
                (Authorization::OwnLease(id.slot), known)
            }
            RenewalSubject::Session(id) => {
                let session = self.table.sessions.live(id.slot, id.reuse).filter(|_| id == stream)?;
                (Authorization::Complete, (session.owner, session.checked))
            }
        };
        let me = self.table.owners.resolve(request.caller.principal)?;
        (known == (me, request.caller.rights.epoch())).then_some(authorization)
    }

    /// Remembers that the owner may renew, until the access rules change. A session renews all its leases at once, so those that the
    /// rules no longer cover are revoked here.
    fn remember_check(&mut self, request: &Request<'_>, command: &Command<'_>) {
        if !matches!(command, Command::Renew(_) | Command::RenewSession { .. } | Command::ResumeSession { .. }) {
            return;
        }
        let (me, epoch) = (self.table.owners.resolve(request.caller.principal), request.caller.rights.epoch());
        if let Command::Renew(Renew { lease: LeaseRef { selector: LeaseSelector::Id(id), .. }, .. }) = command
            && self.table.live(*id).is_some_and(|lease| Some(lease.owner) == me)
        {
            self.table.leases.at_mut(id.slot).expect("live").checked = epoch;
        }
        // Resuming a session renews it too.
        if let Command::RenewSession { session: id, .. } | Command::ResumeSession { session: id, .. } = command {
            let first = |session: &SessionEntry| Some(session.owner) == me && session.checked != epoch;
            if self.table.sessions.live(id.slot, id.reuse).is_some_and(first) {
                self.table.sessions.at_mut(id.slot).expect("live").checked = epoch;
                self.revoke_uncovered_leases(id.slot, request.caller.rights);
            }
        }
    }

    /// Whether the answer to the command may come from the stored replies of the session that its id names.
    fn uses_request_id(&self, command: &Command<'_>) -> bool {
        match command {
            Command::Renew(_) => self.table.due.rotating > 0,
            Command::RenewSession { .. } | Command::Confirm(_) | Command::ObserveToken => false,
            _ => true,
        }
    }

    /// The identity that owns a held lease.
    pub fn owner_of_lease(&self, id: LeaseId) -> Option<&str> {
        self.table.live(id).map(|lease| self.table.owners.name(lease.owner))
    }

    /// The identity that owns a live session.
    pub fn owner_of_session(&self, id: SessionId) -> Option<&str> {
        self.table.sessions.live(id.slot, id.reuse).map(|session| self.table.owners.name(session.owner))
    }
}

/// What the most frequent commands renew.
enum RenewalSubject<'a> {
    Lease(LeaseId, &'a LeaseRef<'a>),
    Session(SessionId),
}

#[inline]
fn renewal_subject<'a>(command: &'a Command<'_>) -> Option<RenewalSubject<'a>> {
    match command {
        Command::Renew(Renew { lease: held, .. }) | Command::Confirm(held) => match held.selector {
            LeaseSelector::Id(id) => Some(RenewalSubject::Lease(id, held)),
            LeaseSelector::Resource(_) => None,
        },
        Command::RenewSession { session, .. } => Some(RenewalSubject::Session(*session)),
        _ => None,
    }
}
