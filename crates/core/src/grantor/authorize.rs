//! The one authorization check: every request passes it before anything of the request is read, replayed or changed (A4).
//!
//! It has two halves. The rights of the caller are compared with the action and the names that the request gives; then a token that
//! the request presents counts as evidence of a rollback; then the subject is looked up. A holder whose session or lease was lost in
//! a rollback passes the first half, so that its token is seen. What a request names by id is judged by the resource that it belongs to, at this moment. What the caller may not see is answered
//! like what does not exist, before any other field of the request is looked at (A5). Only the identity that was granted something
//! acts on it, and it proves that it was: by the session's stream, or by the secret of the session or the lease (A6). A caller
//! without restrictions passes; its requests are not checked.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new command must say which action it is")]

use super::Grantor;
use super::payloads::{key_of, queue_of};
use super::table::actors::SessionEntry;
use super::table::lease::{NONE, StoredLease};
use crate::access::{Action, Caller, LOCAL_PRINCIPAL, NO_LEASE_PROOF, NO_SESSION_PROOF, NOT_OWNER, Permission};
use crate::charter::Charter;
use crate::command::{Command, LeaseRef, LeaseSelector, Proof, Renew, Request};
use crate::coverage::FenceReport;
use crate::ids::{LeaseId, SessionId};
use crate::lease::Access;
use crate::mutants::{self, Mutant};
use crate::payload::PayloadOwner;
use crate::payload::cache::CacheCommand;
use crate::payload::delivery::DeliveryCommand;
use crate::refusal::{NotCurrent, Refusal, RefusalSubject};
use crate::secret::SecretDigest;
use crate::token::Number;

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
    /// The rights suffice; its subject is not checked yet.
    ByRights,
}

/// The reply for a lease that does not exist.
const NO_LEASE: Refusal = Refusal::NotCurrent(NotCurrent::Unknown);
const NO_SESSION: Refusal = Refusal::NotFound(RefusalSubject::Session);
const NO_MESSAGE: Refusal = Refusal::NotFound(RefusalSubject::Message);

const OTHER_REPORTER: &str =
    "the charter names another identity as the reporter of this target; report with that identity";
const REPORTER_BY_ADMIN: &str = "only an administrator sets, changes or removes the reporters of targets; keep those that apply here, or ask an administrator";

impl Grantor {
    /// The first half of the check: whether the caller may do this at all, to the names that it gives. It depends on the request and
    /// the rights alone. After it, a token that the request presents counts as evidence, also if the state that knew the subject of
    /// the request is lost (T9).
    #[inline]
    pub(super) fn authorize(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<Authorization, Refusal> {
        if request.caller.rights.is_unrestricted() || self.is_checked_renewal(request, command) {
            return Ok(Authorization::Complete);
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
        if authorization == Authorization::Complete {
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

    /// Whether this is a renewal by the owner that was checked under the same access rules: the hot path compares two numbers.
    #[inline]
    fn is_checked_renewal(&mut self, request: &Request<'_>, command: &Command<'_>) -> bool {
        let Some(subject) = renewal_subject(command) else { return false };
        // The answer may be a stored one.
        if request.id.is_some() && self.uses_request_id(command) {
            return false;
        }
        if mutants::on(Mutant::RenewUnchecked) {
            return true;
        }
        let Some(me) = self.table.owners.resolve(request.caller.principal) else { return false };
        // Only over the stream of the session; other proofs take the full check.
        let Some(stream) = request.proof.stream else { return false };
        let known = match subject {
            RenewalSubject::Lease(id) => {
                let lease = self.table.live(id).filter(|lease| self.table.actors[lease.actor].session == stream.slot);
                lease.map(|lease| (lease.owner, lease.checked))
            }
            RenewalSubject::Session(id) => {
                let session = self.table.sessions.live(id.slot, id.reuse).filter(|_| id == stream);
                session.map(|session| (session.owner, session.checked))
            }
        };
        known == Some((me, request.caller.rights.epoch()))
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
    #[allow(clippy::wildcard_enum_match_arm, reason = "all other commands do")]
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
enum RenewalSubject {
    Lease(LeaseId),
    Session(SessionId),
}

#[inline]
#[allow(clippy::wildcard_enum_match_arm, reason = "all other commands take the full check")]
fn renewal_subject(command: &Command<'_>) -> Option<RenewalSubject> {
    match command {
        // The renewal itself compares the session of the stream with the lease's.
        Command::Renew(Renew { lease: LeaseRef { selector: LeaseSelector::Id(id), session: Some(_), .. }, .. })
        | Command::Confirm(LeaseRef { selector: LeaseSelector::Id(id), session: Some(_), .. }) => {
            Some(RenewalSubject::Lease(*id))
        }
        Command::RenewSession { session, .. } => Some(RenewalSubject::Session(*session)),
        _ => None,
    }
}

/// What a request is about.
#[derive(Clone, Copy)]
enum AccessSubject<'a> {
    /// Nothing in particular.
    Nothing,
    /// The whole cluster.
    Cluster,
    Session(SessionId),
    /// A name that need not exist, and the session that carries what is granted.
    Name(&'a str, Option<SessionId>),
    /// All names of an atomic acquire.
    Names(&'a [(&'a str, Access)], Option<SessionId>),
    Reports(&'a [FenceReport<'a>]),
    /// The charter of a prefix, and the new one; without a new one it is removed.
    Charter {
        prefix: &'a str,
        new: Option<&'a Charter>,
    },
    /// A proposal, which is judged by the name that it concerns.
    Proposal(u64),
    /// Something that must exist under a name.
    Existing(&'a str, RefusalSubject),
    /// A lease with its token number.
    Lease(LeaseRef<'a>),
    /// Leases without a token number.
    Leases(LeaseSelector<'a>),
    Receipt {
        queue: &'a str,
        item: u64,
        receipt: Number,
    },
    CacheGrant {
        key: &'a str,
        number: Number,
    },
}

/// One check of one request.
struct AccessCheck<'a> {
    grantor: &'a Grantor,
    caller: &'a Caller<'a>,
    proof: &'a Proof,
    /// The number of the caller among the owners, if it was ever given anything.
    me: Option<u32>,
    action: Action,
    subject: AccessSubject<'a>,
}

impl AccessCheck<'_> {
    /// Checks the rights alone.
    fn rights(&self) -> Result<(), Refusal> {
        match self.subject {
            AccessSubject::Nothing | AccessSubject::Session(_) | AccessSubject::Proposal(_) => self.anywhere(),
            AccessSubject::Cluster => self.everywhere(),
            AccessSubject::Name(name, _) | AccessSubject::Charter { prefix: name, new: Some(_) } => {
                self.name(name, None).map(drop)
            }
            AccessSubject::Charter { prefix, new: None } => {
                self.name(prefix, Some(Refusal::NotFound(RefusalSubject::Charter))).map(drop)
            }
            AccessSubject::Names(names, _) => {
                let leaves = if mutants::on(Mutant::LeafUnchecked) { 1 } else { names.len() };
                names.iter().take(leaves).try_for_each(|(name, _)| self.name(name, None).map(drop))
            }
            AccessSubject::Reports(reports) => {
                reports.iter().try_for_each(|report| self.name(report.resource, None).map(drop))
            }
            AccessSubject::Existing(name, subject) => self.name(name, Some(Refusal::NotFound(subject))).map(drop),
            // Who may not do this anywhere learns nothing about ids.
            AccessSubject::Lease(LeaseRef { selector: LeaseSelector::Id(_), .. })
            | AccessSubject::Leases(LeaseSelector::Id(_)) => self.anywhere(),
            AccessSubject::Lease(LeaseRef { selector: LeaseSelector::Resource(name), .. })
            | AccessSubject::CacheGrant { key: name, .. } => self.name(name, Some(NO_LEASE)).map(drop),
            AccessSubject::Leases(LeaseSelector::Resource(name)) => {
                self.name(name, Some(Refusal::NotFound(RefusalSubject::Lease))).map(drop)
            }
            AccessSubject::Receipt { queue, .. } => self.name(queue, Some(NO_MESSAGE)).map(drop),
        }
    }

    /// Checks the session of a request id, whose stored replies only its owner receives, and the subject.
    fn request_id(&self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        let Some(id) = request.id.filter(|_| self.grantor.uses_request_id(command)) else { return self.subject() };
        if mutants::on(Mutant::ReplayUnchecked) {
            let session = self.grantor.table.sessions.live(id.session.slot, id.session.reuse);
            if session.is_some_and(|session| session.stored_reply(id.sequence).is_some()) {
                return Ok(());
            }
        }
        self.subject()?;
        if mutants::on(Mutant::ReplayToStranger) { Ok(()) } else { self.session(id.session) }
    }

    /// Checks ownership, and what is named by id.
    fn subject(&self) -> Result<(), Refusal> {
        let table = &self.grantor.table;
        match self.subject {
            AccessSubject::Nothing | AccessSubject::Cluster | AccessSubject::Existing(..) => Ok(()),
            AccessSubject::Reports(reports) => reports.iter().try_for_each(|report| self.report(report)),
            AccessSubject::Charter { prefix, new } => self.reporters(prefix, new),
            AccessSubject::Session(session) => self.session(session),
            AccessSubject::Proposal(id) => self.proposal(id),
            AccessSubject::Name(_, session) | AccessSubject::Names(_, session) => {
                session.map_or(Ok(()), |id| self.session(id))
            }
            AccessSubject::Lease(LeaseRef { selector: LeaseSelector::Id(id), number, .. }) => match table.live(id) {
                Some(lease) => self.live_lease(lease),
                None => self.ended_lease(id, Some(number)),
            },
            AccessSubject::Lease(LeaseRef { selector: LeaseSelector::Resource(name), number, .. }) => {
                if let Some(lease) = self.leases_on(name).find(|lease| lease.number() == number) {
                    return self.own_lease(name, lease);
                }
                if self.hides_end_of(number) {
                    let exists = table.resources.find(name).is_some();
                    let reason = if exists { NotCurrent::Superseded } else { NotCurrent::Unknown };
                    return Err(Refusal::NotCurrent(reason));
                }
                Ok(())
            }
            AccessSubject::Leases(LeaseSelector::Id(id)) => match table.live(id) {
                Some(lease) => self.live_lease(lease),
                None => self.ended_lease(id, None),
            },
            AccessSubject::Leases(LeaseSelector::Resource(name)) => {
                self.leases_on(name).try_for_each(|lease| self.own_lease(name, lease))
            }
            AccessSubject::Receipt { queue, item, receipt } => {
                self.own_payload(queue, receipt, table.queues.owner_of(queue, item, receipt))
            }
            AccessSubject::CacheGrant { key, number } => {
                self.own_payload(key, number, table.cache.owner_of(key, number))
            }
        }
    }

    /// Checks a proposal by the name that it concerns. One that may not be seen is answered like one that does not exist.
    fn proposal(&self, id: u64) -> Result<(), Refusal> {
        let absent = Refusal::NotFound(RefusalSubject::Proposal);
        let proposal = self.grantor.table.proposals.get(id, self.grantor.now()).ok_or(absent.clone())?;
        let permission = match self.grantor.table.proposed_name(&proposal.proposed().command) {
            Some(name) => self.name(name, Some(absent))?,
            None => self.allowed(self.caller.rights.permission_everywhere(self.action)).map_err(|_| absent)?,
        };
        if permission == Permission::Own && *proposal.proposer != *self.caller.principal {
            return Err(Refusal::Denied(NOT_OWNER));
        }
        Ok(())
    }

    /// Checks that no other identity reports for a target that has a reporter (A9).
    fn report(&self, report: &FenceReport<'_>) -> Result<(), Refusal> {
        match self.grantor.reporter_of(report) {
            Some(reporter) if reporter != self.caller.principal => Err(Refusal::Denied(OTHER_REPORTER)),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that only an administrator changes which reporters apply to a prefix: what they report can stop the whole cluster
    /// (A9). Without a charter of its own, a prefix has those of the charter above it.
    fn reporters<'a>(&'a self, prefix: &str, new: Option<&'a Charter>) -> Result<(), Refusal> {
        if self.caller.rights.is_administrator() || mutants::on(Mutant::OperatorNamesReporter) {
            return Ok(());
        }
        let charters = &self.grantor.table.charters;
        let next = new.or_else(|| charters.find_above(prefix).map(|(_, charter)| charter));
        let now = charters.find(prefix).map(|(_, charter)| charter);
        let of = |charter: Option<&'a Charter>| charter.map(Charter::reporters).unwrap_or_default();
        if of(now) == of(next) {
            return Ok(());
        }
        Err(Refusal::DeniedField { field: "targets.reporter", reason: REPORTER_BY_ADMIN })
    }

    fn anywhere(&self) -> Result<(), Refusal> {
        self.allowed(self.caller.rights.permission_anywhere(self.action)).map(drop)
    }

    fn everywhere(&self) -> Result<(), Refusal> {
        self.allowed(self.caller.rights.permission_everywhere(self.action)).map(drop)
    }

    fn allowed(&self, permission: Permission) -> Result<Permission, Refusal> {
        match permission {
            Permission::No => Err(Refusal::Denied(self.action.missing_role())),
            Permission::Yes | Permission::Own => Ok(permission),
        }
    }

    /// Checks the action on a name. Where it needs something that exists, `absent` is the reply for a name that may not be seen.
    fn name(&self, name: &str, absent: Option<Refusal>) -> Result<Permission, Refusal> {
        self.allowed(self.caller.rights.permission(self.action, name)).map_err(|denied| match absent {
            Some(absent) if !self.caller.rights.sees(name) && !mutants::on(Mutant::ForbiddenRevealed) => absent,
            Some(_) | None => denied,
        })
    }

    /// Checks that a session is the caller's own, and that the caller opened or resumed it. One that does not exist gets the same
    /// reply as one of another identity. One that has ended needs no proof, because there is nothing to act on.
    fn session(&self, id: SessionId) -> Result<(), Refusal> {
        let sessions = &self.grantor.table.sessions;
        let live = sessions.live(id.slot, id.reuse);
        match live.or_else(|| sessions.tombstone(id.slot, id.reuse)) {
            Some(_) if mutants::on(Mutant::SessionIdIsEnough) => Ok(()),
            // Resuming compares the secret that the command itself carries (S2).
            Some(session) if Some(session.owner) == self.me => {
                if live.is_none() || self.action == Action::ResumeSession || self.proves_session(id) {
                    Ok(())
                } else {
                    Err(Refusal::Denied(NO_SESSION_PROOF))
                }
            }
            Some(_) | None => Err(NO_SESSION),
        }
    }

    /// Whether the request comes over the stream of a live session, or presents its secret.
    fn proves_session(&self, id: SessionId) -> bool {
        let Some(session) = self.grantor.table.sessions.live(id.slot, id.reuse) else { return false };
        let by_stream = self.proof.stream.is_some_and(|stream| stream == id || mutants::on(Mutant::AnyStreamProves));
        let by_secret = self.proof.session.is_some_and(|digest| {
            digest == SecretDigest::stored(session.secret) || mutants::on(Mutant::AnySessionSecretProves)
        });
        by_stream || by_secret || mutants::on(Mutant::SessionSecretNotRequired)
    }

    /// Checks that a lease of another identity, or of another process with the same identity, is not changed.
    fn own_lease(&self, name: &str, lease: &StoredLease) -> Result<(), Refusal> {
        self.own(name, Some(lease.owner) == self.me, || self.proves_lease(lease))
    }

    /// Whether the request proves that its sender was granted a lease.
    fn proves_lease(&self, lease: &StoredLease) -> bool {
        let session = Some(self.grantor.table.actors[lease.actor].session).filter(|session| *session != NONE);
        self.proves(lease.number(), session.map(|slot| self.grantor.session_id(slot)))
    }

    /// The same for a receipt or a cache grant, if it exists.
    fn own_payload(&self, name: &str, number: Number, owner: Option<PayloadOwner<'_>>) -> Result<(), Refusal> {
        let Some(PayloadOwner { identity, session }) = owner else { return Ok(()) };
        let mine = identity.unwrap_or(LOCAL_PRINCIPAL) == self.caller.principal;
        self.own(name, mine, || self.proves(number, session))
    }

    fn own(&self, name: &str, mine: bool, proven: impl Fn() -> bool) -> Result<(), Refusal> {
        if self.caller.rights.permission(self.action, name) != Permission::Own || mutants::on(Mutant::NumberIsEnough) {
            return Ok(());
        }
        match mine {
            false => Err(Refusal::Denied(NOT_OWNER)),
            true if proven() => Ok(()),
            true => Err(Refusal::Denied(NO_LEASE_PROOF)),
        }
    }

    /// Whether the request proves that its sender was granted a number: by the secret of the grant, or by the session that
    /// carries it.
    fn proves(&self, number: Number, session: Option<SessionId>) -> bool {
        let by_secret =
            self.proof.lease.is_some_and(|proven| proven == number || mutants::on(Mutant::AnyLeaseSecretProves));
        by_secret || session.is_some_and(|id| self.proves_session(id)) || mutants::on(Mutant::LeaseSecretNotRequired)
    }

    /// Checks a lease by the resource that it is of.
    fn live_lease(&self, lease: &StoredLease) -> Result<(), Refusal> {
        if mutants::on(Mutant::IdByRequest) {
            return Ok(());
        }
        let name = self.grantor.table.resources.name(lease.resource);
        self.name(name, Some(NO_LEASE))?;
        self.own_lease(name, lease)
    }

    /// Checks an id without a live lease: the end of a lease is reported to its owner, and to a caller that sees its resource.
    fn ended_lease(&self, id: LeaseId, number: Option<Number>) -> Result<(), Refusal> {
        let table = &self.grantor.table;
        let visible = match (table.leases.tombstone(id.slot, id.reuse), number) {
            (Some(ended), _) => Some(ended.owner) == self.me || self.sees_end_of(ended.number()),
            (None, Some(number)) => self.sees_end_of(number),
            (None, None) => false,
        };
        if visible { Ok(()) } else { Err(NO_LEASE) }
    }

    /// Whether a lease with this number ended, and the caller may see its resource.
    fn sees_end_of(&self, number: Number) -> bool {
        let ended = self.grantor.table.ended_leases.by_number(number.get());
        ended.is_some_and(|ended| self.caller.rights.sees(&ended.resource))
    }

    /// Whether a lease with this number ended, and the caller may not see its resource.
    fn hides_end_of(&self, number: Number) -> bool {
        let ended = self.grantor.table.ended_leases.by_number(number.get());
        ended.is_some_and(|ended| !self.caller.rights.sees(&ended.resource))
    }

    fn leases_on(&self, name: &str) -> impl Iterator<Item = &StoredLease> {
        let table = &self.grantor.table;
        let resource = table.resources.find(name);
        let sole = resource.map(|at| table.resources.sole(at)).filter(|sole| *sole != NONE);
        let state = resource.and_then(|at| table.resources.state(at));
        let shared = state.map_or(&[][..], |state| &state.leases).iter().copied();
        shared.chain(sole).map(|slot| table.lease(slot))
    }
}

impl Command<'_> {
    /// The token number of the lease, the receipt or the cache grant that the command acts on. Its secret proves the grant (A6).
    pub const fn token_number(&self) -> Option<Number> {
        match subject(self) {
            AccessSubject::Lease(LeaseRef { number, .. })
            | AccessSubject::Receipt { receipt: number, .. }
            | AccessSubject::CacheGrant { number, .. } => Some(number),
            AccessSubject::Nothing
            | AccessSubject::Cluster
            | AccessSubject::Session(_)
            | AccessSubject::Name(..)
            | AccessSubject::Names(..)
            | AccessSubject::Reports(_)
            | AccessSubject::Charter { .. }
            | AccessSubject::Proposal(_)
            | AccessSubject::Existing(..)
            | AccessSubject::Leases(_) => None,
        }
    }

    /// The session that the command acts in. Its secret, or its stream, proves that the caller opened it (A6).
    pub const fn session(&self) -> Option<SessionId> {
        match subject(self) {
            AccessSubject::Session(session) => Some(session),
            AccessSubject::Name(_, session) | AccessSubject::Names(_, session) => session,
            AccessSubject::Nothing
            | AccessSubject::Cluster
            | AccessSubject::Reports(_)
            | AccessSubject::Charter { .. }
            | AccessSubject::Proposal(_)
            | AccessSubject::Existing(..)
            | AccessSubject::Lease(_)
            | AccessSubject::Leases(_)
            | AccessSubject::Receipt { .. }
            | AccessSubject::CacheGrant { .. } => None,
        }
    }
}

/// What a command is about.
const fn subject<'a>(command: &'a Command<'a>) -> AccessSubject<'a> {
    match command {
        Command::OpenSession(_) | Command::OpenKeySession { .. } | Command::ObserveToken => AccessSubject::Nothing,
        Command::ResumeSession { session, .. }
        | Command::RenewSession { session, .. }
        | Command::Reconcile { session, .. }
        | Command::CloseSession { session }
        | Command::Cancel { session, .. }
        | Command::Withdraw { session, .. } => AccessSubject::Session(*session),
        Command::Acquire(acquire) => AccessSubject::Name(acquire.resource, acquire.session),
        Command::AcquireAll(acquire) => AccessSubject::Names(acquire.resources, acquire.session),
        Command::Renew(Renew { lease, .. })
        | Command::Release(lease)
        | Command::Confirm(lease)
        | Command::Rotate(lease)
        | Command::Drained(lease)
        | Command::ConfirmHold(lease)
        | Command::Progress { lease, .. }
        | Command::ResizeHold { lease, .. }
        | Command::Veto { lease, .. }
        | Command::Pin { lease, .. }
        | Command::Put { lease, .. } => AccessSubject::Lease(*lease),
        Command::Revoke(revoke) => AccessSubject::Leases(revoke.selector),
        Command::Handoff(handoff) => match handoff.number {
            Some(number) => {
                AccessSubject::Lease(LeaseRef { selector: handoff.selector, number, session: None, holder: None })
            }
            None => AccessSubject::Leases(handoff.selector),
        },
        Command::Free { resource, .. } => AccessSubject::Existing(resource, RefusalSubject::Hold),
        Command::SetCharter { prefix, charter, .. } => AccessSubject::Charter { prefix, new: Some(charter) },
        Command::RemoveCharter { prefix, .. } => AccessSubject::Charter { prefix, new: None },
        Command::ForgetTarget { resource, .. } => AccessSubject::Existing(resource, RefusalSubject::Target),
        Command::SetCapacity { resource, .. } | Command::Collect { resource, .. } => {
            AccessSubject::Name(resource, None)
        }
        Command::Report { reports, .. } => AccessSubject::Reports(reports),
        Command::Delivery(command) => delivery_subject(command),
        Command::Cache(command) => cache_subject(command),
        Command::Approve { proposal, .. } | Command::CancelProposal { proposal } => AccessSubject::Proposal(*proposal),
        Command::WaiveQuarantine { .. } | Command::SetMaxTtl { .. } | Command::StepDown => AccessSubject::Cluster,
    }
}

const fn delivery_subject<'a>(command: &DeliveryCommand<'a>) -> AccessSubject<'a> {
    let queue = queue_of(command);
    match *command {
        DeliveryCommand::Enqueue { .. } => AccessSubject::Name(queue, None),
        DeliveryCommand::Receive { session, .. } => AccessSubject::Name(queue, session),
        DeliveryCommand::Extend { item, receipt, .. }
        | DeliveryCommand::Ack { item, receipt, .. }
        | DeliveryCommand::Nack { item, receipt, .. } => AccessSubject::Receipt { queue, item, receipt },
        DeliveryCommand::Redrive { .. } | DeliveryCommand::Drop { .. } => {
            AccessSubject::Existing(queue, RefusalSubject::Message)
        }
    }
}

const fn cache_subject<'a>(command: &CacheCommand<'a>) -> AccessSubject<'a> {
    let key = key_of(command);
    match *command {
        CacheCommand::Read { session, .. }
        | CacheCommand::Intend { session, .. }
        | CacheCommand::GetOrFill { session, .. } => AccessSubject::Name(key, session),
        CacheCommand::RenewRead { lease: number, .. }
        | CacheCommand::Invalidated { lease: number, .. }
        | CacheCommand::Commit { intent: number, .. }
        | CacheCommand::Abort { number, .. }
        | CacheCommand::Filled { token: number, .. } => AccessSubject::CacheGrant { key, number },
    }
}

/// The action of a command.
pub(super) const fn action(command: &Command<'_>) -> Action {
    match command {
        Command::OpenSession(_) => Action::OpenSession,
        Command::OpenKeySession { .. } => Action::OpenKeySession,
        Command::ResumeSession { .. } => Action::ResumeSession,
        Command::RenewSession { .. } => Action::RenewSession,
        Command::Reconcile { .. } => Action::Reconcile,
        Command::CloseSession { .. } => Action::CloseSession,
        Command::Acquire(_) => Action::Acquire,
        Command::AcquireAll(_) => Action::AcquireAll,
        Command::Cancel { .. } => Action::Cancel,
        Command::Withdraw { .. } => Action::Withdraw,
        Command::Renew(_) => Action::Renew,
        Command::Release(_) => Action::Release,
        Command::Confirm(_) => Action::Check,
        Command::Rotate(_) => Action::Rotate,
        Command::Progress { .. } => Action::Progress,
        Command::Revoke(_) => Action::Revoke,
        Command::Free { .. } => Action::Free,
        Command::Handoff(_) => Action::Handoff,
        Command::Drained(_) => Action::FinishDrain,
        Command::SetCapacity { .. } => Action::SetCapacity,
        Command::ConfirmHold(_) => Action::ConfirmHold,
        Command::ResizeHold { .. } => Action::ResizeHold,
        Command::Veto { .. } => Action::Veto,
        Command::Pin { .. } => Action::Pin,
        Command::Collect { .. } => Action::Collect,
        Command::Put { .. } => Action::Put,
        Command::Delivery(command) => match command {
            DeliveryCommand::Enqueue { .. } => Action::Enqueue,
            DeliveryCommand::Receive { .. } => Action::Receive,
            DeliveryCommand::Extend { .. } => Action::ExtendMessage,
            DeliveryCommand::Ack { .. } => Action::AckMessage,
            DeliveryCommand::Nack { .. } => Action::NackMessage,
            DeliveryCommand::Redrive { .. } => Action::RedriveMessage,
            DeliveryCommand::Drop { .. } => Action::DropMessage,
        },
        Command::Cache(command) => match command {
            CacheCommand::Read { .. } => Action::CacheRead,
            CacheCommand::RenewRead { .. } => Action::CacheRenewRead,
            CacheCommand::Invalidated { .. } => Action::CacheInvalidated,
            CacheCommand::Intend { .. } => Action::CacheIntend,
            CacheCommand::Commit { .. } => Action::CacheCommit,
            CacheCommand::Abort { .. } => Action::CacheAbort,
            CacheCommand::GetOrFill { .. } => Action::CacheGetOrFill,
            CacheCommand::Filled { .. } => Action::CacheFilled,
        },
        Command::SetCharter { .. } => Action::SetCharter,
        Command::RemoveCharter { .. } => Action::RemoveCharter,
        Command::Report { .. } => Action::ReportFences,
        Command::ForgetTarget { .. } => Action::ForgetTarget,
        Command::WaiveQuarantine { .. } => Action::WaiveQuarantine,
        Command::SetMaxTtl { .. } => Action::SetMaxTtl,
        Command::StepDown => Action::StepDown,
        Command::Approve { .. } => Action::Approve,
        Command::CancelProposal { .. } => Action::CancelProposal,
        Command::ObserveToken => Action::ObserveToken,
    }
}
