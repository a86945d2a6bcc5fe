//! The one authorization check: every request passes it before anything of the request is read, replayed or changed (A4).
//!
//! What a request names by id is judged by the resource that it belongs to, at this moment. What the caller may not see is answered
//! like what does not exist, before any other field of the request is looked at (A5). Only the identity that was granted something
//! acts on it (A6). A caller without restrictions passes; its requests are not checked.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new command must say which action it is")]

use super::Grantor;
use super::payloads::{key_of, queue_of};
use super::table::actors::SessionEntry;
use super::table::lease::{NONE, StoredLease};
use crate::access::{Action, Caller, LOCAL_PRINCIPAL, NOT_OWNER, Permission};
use crate::command::{Command, LeaseRef, LeaseSelector, Renew, Request};
use crate::ids::{LeaseId, SessionId};
use crate::mutants::{self, Mutant};
use crate::payload::cache::CacheCommand;
use crate::payload::delivery::DeliveryCommand;
use crate::refusal::{NotCurrent, Refusal, RefusalSubject};
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

/// The reply for a lease that does not exist.
const NO_LEASE: Refusal = Refusal::NotCurrent(NotCurrent::Unknown);
const NO_SESSION: Refusal = Refusal::NotFound(RefusalSubject::Session);
const NO_MESSAGE: Refusal = Refusal::NotFound(RefusalSubject::Message);

impl Grantor {
    /// Checks a request of a caller, before a token that it presents is taken as evidence.
    #[inline]
    pub(super) fn authorize(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        if request.caller.rights.is_unrestricted() || self.is_checked_renewal(request, command) {
            return Ok(());
        }
        let me = self.table.owners.resolve(request.caller.principal);
        let check = AccessCheck { grantor: self, caller: &request.caller, me, action: action(command) };
        let checked = check.request(request, command);
        match &checked {
            Ok(()) => self.remember_check(request, command),
            Err(refusal) => {
                let hidden = !matches!(refusal, Refusal::Denied(_));
                self.out.denials.push(Denial { tag: request.tag, action: action(command), hidden });
            }
        }
        checked
    }

    /// Whether this is a renewal by the owner that was checked under the same access rules: the hot path compares two numbers.
    #[inline]
    fn is_checked_renewal(&mut self, request: &Request<'_>, command: &Command<'_>) -> bool {
        // The answer to a request with an id may be a stored one.
        let Some(subject) = renewal_subject(command).filter(|_| request.id.is_none()) else { return false };
        if mutants::on(Mutant::RenewUnchecked) {
            return true;
        }
        let Some(me) = self.table.owners.resolve(request.caller.principal) else { return false };
        let known = match subject {
            RenewalSubject::Lease(id) => self.table.live(id).map(|lease| (lease.owner, lease.checked)),
            RenewalSubject::Session(id) => {
                let session = self.table.sessions.live(id.slot, id.reuse);
                session.map(|session| (session.owner, session.checked))
            }
        };
        known == Some((me, request.caller.rights.epoch()))
    }

    /// Remembers that the owner may renew, until the access rules change.
    fn remember_check(&mut self, request: &Request<'_>, command: &Command<'_>) {
        let (me, epoch) = (self.table.owners.resolve(request.caller.principal), request.caller.rights.epoch());
        // Confirming is allowed to others than the owner, and tells nothing about renewing.
        match renewal_subject(command).filter(|_| !matches!(command, Command::Confirm(_))) {
            Some(RenewalSubject::Lease(id)) if self.table.live(id).is_some_and(|lease| Some(lease.owner) == me) => {
                self.table.leases.at_mut(id.slot).expect("live").checked = epoch;
            }
            Some(RenewalSubject::Session(id)) => {
                let own = |session: &SessionEntry| Some(session.owner) == me;
                if self.table.sessions.live(id.slot, id.reuse).is_some_and(own) {
                    self.table.sessions.at_mut(id.slot).expect("live").checked = epoch;
                }
            }
            Some(RenewalSubject::Lease(_)) | None => {}
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
        Command::Renew(Renew { lease: LeaseRef { selector: LeaseSelector::Id(id), .. }, .. })
        | Command::Confirm(LeaseRef { selector: LeaseSelector::Id(id), .. }) => Some(RenewalSubject::Lease(*id)),
        Command::RenewSession { session, .. } => Some(RenewalSubject::Session(*session)),
        _ => None,
    }
}

/// One check of one request.
struct AccessCheck<'a> {
    grantor: &'a Grantor,
    caller: &'a Caller<'a>,
    /// The number of the caller among the owners, if it was ever given anything.
    me: Option<u32>,
    action: Action,
}

impl AccessCheck<'_> {
    fn request(&self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        if let Some(id) = request.id.filter(|_| self.uses_request_id(command)) {
            let stored = || {
                let session = self.grantor.table.sessions.live(id.session.slot, id.session.reuse);
                session.is_some_and(|session| session.stored_reply(id.sequence).is_some())
            };
            if mutants::on(Mutant::ReplayUnchecked) && stored() {
                return Ok(());
            }
            // Checked after the command's names, or the reply would tell whether the session exists.
            self.command(command)?;
            return if mutants::on(Mutant::ReplayToStranger) { Ok(()) } else { self.session(id.session) };
        }
        self.command(command)
    }

    /// Whether the answer to the command may come from the stored replies of the session that its id names.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all other commands do")]
    fn uses_request_id(&self, command: &Command<'_>) -> bool {
        match command {
            Command::Renew(_) => self.grantor.table.due.rotating > 0,
            Command::RenewSession { .. } | Command::Confirm(_) | Command::ObserveToken => false,
            _ => true,
        }
    }

    fn command(&self, command: &Command<'_>) -> Result<(), Refusal> {
        match command {
            Command::OpenSession(_) | Command::ObserveToken => self.anywhere(),
            Command::ResumeSession { session, .. }
            | Command::RenewSession { session, .. }
            | Command::Reconcile { session, .. }
            | Command::CloseSession { session }
            | Command::Cancel { session, .. }
            | Command::Withdraw { session, .. } => {
                self.anywhere()?;
                self.session(*session)
            }
            Command::Acquire(acquire) => {
                self.name(acquire.resource, None)?;
                self.optional_session(acquire.session)
            }
            Command::AcquireAll(acquire) => {
                let leaves = if mutants::on(Mutant::LeafUnchecked) { 1 } else { acquire.resources.len() };
                acquire.resources.iter().take(leaves).try_for_each(|(name, _)| self.name(name, None).map(drop))?;
                self.optional_session(acquire.session)
            }
            Command::Renew(renew) => self.lease(&renew.lease),
            Command::Release(lease)
            | Command::Confirm(lease)
            | Command::Rotate(lease)
            | Command::Drained(lease)
            | Command::ConfirmHold(lease)
            | Command::Progress { lease, .. }
            | Command::ResizeHold { lease, .. }
            | Command::Veto { lease, .. }
            | Command::Pin { lease, .. }
            | Command::Put { lease, .. } => self.lease(lease),
            Command::Revoke(revoke) => self.selected(&revoke.selector),
            Command::Handoff(handoff) => match handoff.number {
                Some(number) => {
                    self.lease(&LeaseRef { selector: handoff.selector, number, session: None, holder: None })
                }
                None => self.selected(&handoff.selector),
            },
            Command::Free { resource, .. } => self.existing(resource, RefusalSubject::Hold),
            Command::RemoveCharter { prefix, .. } => self.existing(prefix, RefusalSubject::Charter),
            Command::ForgetTarget { resource, .. } => self.existing(resource, RefusalSubject::Target),
            Command::SetCapacity { resource, .. }
            | Command::Collect { resource, .. }
            | Command::SetCharter { prefix: resource, .. } => self.name(resource, None).map(drop),
            Command::Report { reports, .. } => {
                reports.iter().try_for_each(|report| self.name(report.resource, None).map(drop))
            }
            Command::Delivery(command) => self.delivery(command),
            Command::Cache(command) => self.cache(command),
            Command::WaiveQuarantine { .. } | Command::SetMaxTtl { .. } | Command::StepDown => self.everywhere(),
        }
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
            Some(absent) if !self.caller.rights.sees(name) && !mutants::on(Mutant::ForbiddenTells) => absent,
            Some(_) | None => denied,
        })
    }

    fn existing(&self, name: &str, subject: RefusalSubject) -> Result<(), Refusal> {
        self.name(name, Some(Refusal::NotFound(subject))).map(drop)
    }

    /// Checks that a session is the caller's own. One that does not exist gets the same reply as one of another identity.
    fn session(&self, id: SessionId) -> Result<(), Refusal> {
        let sessions = &self.grantor.table.sessions;
        let known = sessions.live(id.slot, id.reuse).or_else(|| sessions.tombstone(id.slot, id.reuse));
        match known {
            Some(_) if mutants::on(Mutant::SessionIdIsEnough) => Ok(()),
            Some(session) if Some(session.owner) == self.me => Ok(()),
            Some(_) | None => Err(NO_SESSION),
        }
    }

    fn optional_session(&self, session: Option<SessionId>) -> Result<(), Refusal> {
        session.map_or(Ok(()), |id| self.session(id))
    }

    /// Checks that what another identity was given is not changed.
    fn own(&self, permission: Permission, owner: u32) -> Result<(), Refusal> {
        if permission == Permission::Own && Some(owner) != self.me && !mutants::on(Mutant::NumberIsEnough) {
            return Err(Refusal::Denied(NOT_OWNER));
        }
        Ok(())
    }

    /// The same for a receipt or a cache grant, if it exists.
    fn own_payload(&self, permission: Permission, owner: Option<Option<&str>>) -> Result<(), Refusal> {
        let others = owner.is_some_and(|owner| owner.unwrap_or(LOCAL_PRINCIPAL) != self.caller.principal);
        if permission == Permission::Own && others && !mutants::on(Mutant::NumberIsEnough) {
            return Err(Refusal::Denied(NOT_OWNER));
        }
        Ok(())
    }

    /// Checks a lease with its token number.
    fn lease(&self, lease_ref: &LeaseRef<'_>) -> Result<(), Refusal> {
        let table = &self.grantor.table;
        match lease_ref.selector {
            LeaseSelector::Id(id) => match table.live(id) {
                Some(lease) => self.live_lease(lease),
                None => self.ended_lease(id, Some(lease_ref.number)),
            },
            LeaseSelector::Resource(name) => {
                let permission = self.name(name, Some(NO_LEASE))?;
                if let Some(lease) = self.leases_on(name).find(|lease| lease.number() == lease_ref.number) {
                    return self.own(permission, lease.owner);
                }
                if self.hides_end_of(lease_ref.number) {
                    let exists = table.resources.find(name).is_some();
                    let reason = if exists { NotCurrent::Superseded } else { NotCurrent::Unknown };
                    return Err(Refusal::NotCurrent(reason));
                }
                Ok(())
            }
        }
    }

    /// Checks a lease by the resource that it is of.
    fn live_lease(&self, lease: &StoredLease) -> Result<(), Refusal> {
        // As for an id without a lease: who may not do this anywhere learns nothing about ids.
        self.anywhere()?;
        if mutants::on(Mutant::IdByRequest) {
            return Ok(());
        }
        let name = self.grantor.table.resources.name(lease.resource);
        let permission = self.name(name, Some(NO_LEASE))?;
        self.own(permission, lease.owner)
    }

    /// Checks an id without a live lease: the end of a lease is told to its owner, and to a caller that sees its resource.
    fn ended_lease(&self, id: LeaseId, number: Option<Number>) -> Result<(), Refusal> {
        self.anywhere()?;
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

    /// Checks leases that are selected without a token number.
    fn selected(&self, selector: &LeaseSelector<'_>) -> Result<(), Refusal> {
        let table = &self.grantor.table;
        match *selector {
            LeaseSelector::Id(id) => match table.live(id) {
                Some(lease) => self.live_lease(lease),
                None => self.ended_lease(id, None),
            },
            LeaseSelector::Resource(name) => {
                let permission = self.name(name, Some(Refusal::NotFound(RefusalSubject::Lease)))?;
                self.leases_on(name).try_for_each(|lease| self.own(permission, lease.owner))
            }
        }
    }

    fn leases_on(&self, name: &str) -> impl Iterator<Item = &StoredLease> {
        let table = &self.grantor.table;
        let resource = table.resources.find(name);
        let sole = resource.map(|at| table.resources.sole(at)).filter(|sole| *sole != NONE);
        let state = resource.and_then(|at| table.resources.state(at));
        let shared = state.map_or(&[][..], |state| &state.leases).iter().copied();
        shared.chain(sole).map(|slot| table.lease(slot))
    }

    fn delivery(&self, command: &DeliveryCommand<'_>) -> Result<(), Refusal> {
        let queue = queue_of(command);
        match *command {
            DeliveryCommand::Enqueue { .. } => self.name(queue, None).map(drop),
            DeliveryCommand::Receive { session, .. } => {
                self.name(queue, None)?;
                self.optional_session(session)
            }
            DeliveryCommand::Extend { item, receipt, .. }
            | DeliveryCommand::Ack { item, receipt, .. }
            | DeliveryCommand::Nack { item, receipt, .. } => {
                let permission = self.name(queue, Some(NO_MESSAGE))?;
                self.own_payload(permission, self.grantor.table.queues.owner_of(queue, item, receipt))
            }
            DeliveryCommand::Redrive { .. } | DeliveryCommand::Drop { .. } => {
                self.name(queue, Some(NO_MESSAGE)).map(drop)
            }
        }
    }

    fn cache(&self, command: &CacheCommand<'_>) -> Result<(), Refusal> {
        let key = key_of(command);
        match *command {
            CacheCommand::Read { session, .. }
            | CacheCommand::Intend { session, .. }
            | CacheCommand::GetOrFill { session, .. } => {
                self.name(key, None)?;
                self.optional_session(session)
            }
            CacheCommand::RenewRead { lease: number, .. }
            | CacheCommand::Invalidated { lease: number, .. }
            | CacheCommand::Commit { intent: number, .. }
            | CacheCommand::Abort { number, .. }
            | CacheCommand::Filled { token: number, .. } => {
                let permission = self.name(key, Some(NO_LEASE))?;
                self.own_payload(permission, self.grantor.table.cache.owner_of(key, number))
            }
        }
    }
}

/// The action of a command.
pub(super) const fn action(command: &Command<'_>) -> Action {
    match command {
        Command::OpenSession(_) => Action::OpenSession,
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
        Command::ObserveToken => Action::ObserveToken,
    }
}
