//! The comparison of one request with the rights of its caller, and with the owner of its subject.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new subject must say how it is judged")]

use super::access_subject::AccessSubject;
use crate::access::{Action, Caller, NO_LEASE_PROOF, NO_SESSION_PROOF, NOT_OWNER, Permission};
use crate::charter::Charter;
use crate::command::{Command, LeaseRef, LeaseSelector, Proof, Request};
use crate::coverage::FenceReport;
use crate::grantor::Grantor;
use crate::grantor::table::lease::{NONE, StoredLease};
use crate::ids::{LeaseId, SessionId};
use crate::mutants::{self, Mutant};
use crate::payload::PayloadOwner;
use crate::refusal::{NotCurrent, Refusal, RefusalSubject};
use crate::secret::SecretDigest;
use crate::token::Number;

/// The reply for a lease that does not exist.
const NO_LEASE: Refusal = Refusal::NotCurrent(NotCurrent::Unknown);
const NO_SESSION: Refusal = Refusal::NotFound(RefusalSubject::Session);
const NO_MESSAGE: Refusal = Refusal::NotFound(RefusalSubject::Message);

const OTHER_REPORTER: &str =
    "the charter names another identity as the reporter of this target; report with that identity";
const REPORTER_BY_ADMIN: &str = "only an administrator sets, changes or removes the reporters of targets; keep those that apply here, or ask an administrator";

/// One check of one request.
pub(super) struct AccessCheck<'a> {
    pub grantor: &'a Grantor,
    pub caller: &'a Caller<'a>,
    pub proof: &'a Proof,
    /// The number of the caller among the owners, if it was ever given anything.
    pub me: Option<u32>,
    pub action: Action,
    pub subject: AccessSubject<'a>,
}

impl AccessCheck<'_> {
    /// Checks the rights alone.
    pub fn rights(&self) -> Result<(), Refusal> {
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
    pub fn request_id(&self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
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
    pub fn subject(&self) -> Result<(), Refusal> {
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
    pub fn proves_lease(&self, lease: &StoredLease) -> bool {
        let session = Some(self.grantor.table.actors[lease.actor].session).filter(|session| *session != NONE);
        self.proves(lease.number(), session.map(|slot| self.grantor.session_id(slot)))
    }

    /// The same for a receipt or a cache grant, if it exists.
    fn own_payload(&self, name: &str, number: Number, owner: Option<PayloadOwner>) -> Result<(), Refusal> {
        let Some(PayloadOwner { owner, session }) = owner else { return Ok(()) };
        self.own(name, Some(owner) == self.me, || self.proves(number, session))
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
