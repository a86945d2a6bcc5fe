//! What each command is about: its action, and the subject that the access check judges.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new command must say which action and subject it has")]

use crate::access::Action;
use crate::charter::Charter;
use crate::command::{Command, LeaseRef, LeaseSelector, Renew};
use crate::coverage::FenceReport;
use crate::grantor::payloads::{key_of, queue_of};
use crate::ids::SessionId;
use crate::lease::Access;
use crate::payload::cache::CacheCommand;
use crate::payload::delivery::DeliveryCommand;
use crate::refusal::RefusalSubject;
use crate::token::Number;

/// What a request is about.
#[derive(Clone, Copy)]
pub(super) enum AccessSubject<'a> {
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
pub(super) const fn subject<'a>(command: &'a Command<'a>) -> AccessSubject<'a> {
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
pub(in crate::grantor) const fn action(command: &Command<'_>) -> Action {
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
