//! Conversion of requests into commands of the core, and back.

use leasehold_core::command::{AcquireAll, Command, HeldDigest, IdRange, Request, RequestId};
use leasehold_core::coverage::FenceReport;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Cluster, Token};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::charter::{decode_charter, encode_charter};
use crate::command_context::{CommandContext, TokenIssuer};
use crate::coverage::{decode_reports, encode_reports};
use crate::enums::missing_field;
use crate::lease::{
    decode_acquire, decode_acquire_all, decode_handoff, decode_lease_ref, decode_renew, decode_resources, decode_revoke,
};
use crate::payload::{decode_cache, decode_delivery, decode_put};
use crate::v1::request::Operation;
use crate::{lease_bits, lease_id, session_bits, v1};

/// A decoded request. It borrows names from the message and owns the lists that a [`Command`] borrows.
#[derive(Clone, Debug)]
pub struct DecodedCommand<'a>(CommandParts<'a>);

#[derive(Clone, Debug)]
enum CommandParts<'a> {
    One(Command<'a>),
    Several(Vec<(&'a str, Access)>, AcquireAll<'a>),
    Known(SessionId, Vec<LeaseId>, IdRange),
    Reports(Cluster, Vec<FenceReport<'a>>),
}

impl<'a> DecodedCommand<'a> {
    /// Decodes an operation. A missing or unknown value is refused with the name of its field.
    pub fn decode(operation: &'a Operation, caller: &CommandContext) -> Result<Self, Refusal> {
        let command = match operation {
            Operation::Acquire(request) => Command::Acquire(decode_acquire(request, caller)?),
            Operation::AcquireAll(request) => {
                return Ok(Self(CommandParts::Several(
                    decode_resources(request)?,
                    decode_acquire_all(request, caller)?,
                )));
            }
            Operation::Renew(request) => Command::Renew(decode_renew(request, caller)?),
            Operation::Release(request) => Command::Release(decode_lease_ref(Some(request), caller)?),
            Operation::Cancel(request) => {
                Command::Cancel { session: caller.require_session(request.session)?, sequence: request.sequence }
            }
            Operation::Progress(request) => {
                Command::Progress { lease: decode_lease_ref(request.lease.as_ref(), caller)?, at: request.progress }
            }
            Operation::Rotate(request) => Command::Rotate(decode_lease_ref(Some(request), caller)?),
            Operation::Check(request) => Command::Confirm(decode_lease_ref(Some(request), caller)?),
            Operation::Handoff(request) => Command::Handoff(decode_handoff(request, caller)?),
            Operation::FinishDrain(request) => Command::Drained(decode_lease_ref(Some(request), caller)?),
            Operation::Revoke(request) => Command::Revoke(decode_revoke(request)?),
            Operation::Free(request) => Command::Free { resource: &request.resource, comment: &request.comment },
            Operation::RenewSession(request) => Command::RenewSession {
                session: caller.require_session(request.session)?,
                held: request.held.map(|known| HeldDigest { count: known.count, digest: known.digest }),
            },
            Operation::Reconcile(request) => {
                let leases = request.leases.iter().map(|bits| lease_id(*bits)).collect();
                let part = IdRange { from: request.from.map(lease_id), until: request.until.map(lease_id) };
                return Ok(Self(CommandParts::Known(caller.require_session(request.session)?, leases, part)));
            }
            Operation::CloseSession(request) => {
                Command::CloseSession { session: caller.require_session(request.session)? }
            }
            Operation::Put(request) => decode_put(request, caller)?,
            Operation::Delivery(request) => Command::Delivery(decode_delivery(request, caller)?),
            Operation::Cache(request) => Command::Cache(decode_cache(request, caller)?),
            Operation::Pin(request) => {
                Command::Pin { lease: decode_lease_ref(request.lease.as_ref(), caller)?, at: request.position }
            }
            Operation::Collect(request) => Command::Collect { resource: &request.resource, below: request.below },
            Operation::SetCapacity(request) => {
                Command::SetCapacity { resource: &request.resource, units: request.units }
            }
            Operation::ConfirmHold(request) => Command::ConfirmHold(decode_lease_ref(Some(request), caller)?),
            Operation::ResizeHold(request) => {
                Command::ResizeHold { lease: decode_lease_ref(request.lease.as_ref(), caller)?, units: request.units }
            }
            Operation::Veto(request) => {
                Command::Veto { lease: decode_lease_ref(request.lease.as_ref(), caller)?, for_ms: request.duration_ms }
            }
            Operation::SetCharter(request) => Command::SetCharter {
                prefix: &request.prefix,
                charter: Box::new(decode_charter(request.charter.as_ref().ok_or(missing_field("charter"))?)?),
                comment: &request.comment,
            },
            Operation::RemoveCharter(request) => {
                Command::RemoveCharter { prefix: &request.prefix, comment: &request.comment }
            }
            Operation::WaiveQuarantine(request) => Command::WaiveQuarantine { comment: &request.comment },
            Operation::SetMaxTtl(request) => {
                Command::SetMaxTtl { max_ttl_ms: request.max_ttl_ms, comment: &request.comment }
            }
            Operation::StepDown(_) => Command::StepDown,
            Operation::Approve(request) => Command::Approve {
                proposal: request.proposal,
                digest: request.digest.as_slice().try_into().map_err(|_| Refusal::Invalid {
                    field: "digest",
                    reason: "32 bytes, as the list of proposals shows it",
                })?,
                proposer: None,
            },
            Operation::CancelProposal(request) => Command::CancelProposal { proposal: request.proposal },
            Operation::ReportFences(request) => {
                let (cluster, reports) = decode_reports(request)?;
                return Ok(Self(CommandParts::Reports(cluster, reports)));
            }
            Operation::ForgetTarget(request) => Command::ForgetTarget {
                resource: &request.resource,
                target: &request.target,
                comment: &request.comment,
            },
            Operation::ObserveToken(_) => Command::ObserveToken,
        };
        Ok(Self(CommandParts::One(command)))
    }

    /// Returns the command.
    pub fn command(&self) -> Command<'_> {
        match &self.0 {
            CommandParts::One(command) => command.clone(),
            CommandParts::Several(wanted, acquire) => Command::AcquireAll(AcquireAll { resources: wanted, ..*acquire }),
            CommandParts::Known(session, leases, part) => {
                Command::Reconcile { session: *session, leases, range: *part }
            }
            CommandParts::Reports(cluster, reports) => Command::Report { cluster: *cluster, reports },
        }
    }
}

/// Builds the metadata that the core needs with a command. The digest of the body is computed only if a retry must be
/// recognized (L11). Both `seen` and the token inside the request may reveal a rollback (T9).
pub fn core_request(
    tag: u64,
    operation: &Operation,
    id: Option<RequestId>,
    seen: Option<Token>,
    issuer: &TokenIssuer,
) -> Request<'static> {
    let id =
        id.filter(|_| needs_stored_reply(operation)).map(|id| RequestId { digest: request_digest(operation), ..id });
    let presented = presented_token(operation).and_then(|(text, _)| issuer.parse_token(text).ok());
    Request { id, observed: seen, presented, ..Request::tagged(tag) }
}

/// Digest of a request body. Another body under the same request id is a conflict. The digest must never change, because
/// stored answers survive updates of the server.
pub fn request_digest(operation: &Operation) -> u64 {
    let mut bytes = Vec::with_capacity(operation.encoded_len());
    operation.encode(&mut bytes);
    let digest = Sha256::digest(&bytes);
    u64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

/// Whether a retry must get the stored answer. The other operations have no effect that a retry could repeat. A renewal
/// that raises the token is the exception, and the grantor handles it. A repeated fence report counts twice, because storing
/// it would cost a commit for every check.
const fn needs_stored_reply(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::RenewSession(_) | Operation::Check(_) | Operation::ObserveToken(_) | Operation::ReportFences(_)
    )
}

/// The token text in a request, and the resource that the request names with it. Without the resource a seal cannot be verified.
pub fn presented_token(operation: &Operation) -> Option<(&str, Option<&str>)> {
    let (text, resource) = match operation {
        Operation::Handoff(request) => {
            let resource = match request.selector.as_ref() {
                Some(v1::handoff::Selector::Resource(name)) => Some(name.as_str()),
                Some(v1::handoff::Selector::Lease(_)) | None => None,
            };
            (&request.token, resource)
        }
        Operation::ObserveToken(request) => {
            (&request.token, Some(request.resource.as_str()).filter(|name| !name.is_empty()))
        }
        _ => {
            let held = presented_lease(operation)?;
            let resource = match held.selector.as_ref() {
                Some(v1::lease_ref::Selector::Resource(name)) => Some(name.as_str()),
                Some(v1::lease_ref::Selector::Lease(_)) | None => None,
            };
            (&held.token, resource)
        }
    };
    (!text.is_empty()).then_some((text, resource))
}

/// The lease that a request acts on with its token.
pub fn presented_lease(operation: &Operation) -> Option<&v1::LeaseRef> {
    match operation {
        Operation::Renew(request) => request.lease.as_ref(),
        Operation::Release(held)
        | Operation::Rotate(held)
        | Operation::Check(held)
        | Operation::FinishDrain(held)
        | Operation::ConfirmHold(held) => Some(held),
        Operation::Progress(request) => request.lease.as_ref(),
        Operation::Put(request) => request.lease.as_ref(),
        Operation::Pin(request) => request.lease.as_ref(),
        Operation::ResizeHold(request) => request.lease.as_ref(),
        Operation::Veto(request) => request.lease.as_ref(),
        _ => None,
    }
}

/// Encodes a command. Returns `None` for commands that only a [`Hello`](v1::Hello) carries.
pub fn encode_command(command: &Command<'_>) -> Option<Operation> {
    Some(match command {
        Command::OpenSession(_) | Command::ResumeSession { .. } => return None,
        Command::RenewSession { session, held: known } => Operation::RenewSession(v1::RenewSession {
            held: known.map(|known| v1::HeldDigest { count: known.count, digest: known.digest }),
            session: Some(session_bits(*session)),
        }),
        Command::Reconcile { session, leases, range: part } => Operation::Reconcile(v1::Reconcile {
            leases: leases.iter().map(|lease| lease_bits(*lease)).collect(),
            session: Some(session_bits(*session)),
            from: part.from.map(lease_bits),
            until: part.until.map(lease_bits),
        }),
        Command::CloseSession { session } => {
            Operation::CloseSession(v1::CloseSession { session: Some(session_bits(*session)) })
        }
        Command::Acquire(acquire) => Operation::Acquire(acquire.into()),
        Command::AcquireAll(acquire) => Operation::AcquireAll(acquire.into()),
        Command::Cancel { session, sequence } => {
            Operation::Cancel(v1::Cancel { sequence: *sequence, session: Some(session_bits(*session)) })
        }
        Command::Renew(renew) => Operation::Renew(renew.into()),
        Command::Release(held) => Operation::Release(held.into()),
        Command::Confirm(held) => Operation::Check(held.into()),
        Command::Rotate(held) => Operation::Rotate(held.into()),
        Command::Progress { lease: held, at } => {
            Operation::Progress(v1::Progress { lease: Some(held.into()), progress: *at })
        }
        Command::Revoke(revoke) => Operation::Revoke(revoke.into()),
        Command::Free { resource, comment } => {
            Operation::Free(v1::Free { resource: (*resource).into(), comment: (*comment).into() })
        }
        Command::Handoff(handoff) => Operation::Handoff(handoff.into()),
        Command::Drained(held) => Operation::FinishDrain(held.into()),
        Command::SetCapacity { resource, units } => {
            Operation::SetCapacity(v1::SetCapacity { resource: (*resource).into(), units: *units })
        }
        Command::ConfirmHold(held) => Operation::ConfirmHold(held.into()),
        Command::ResizeHold { lease: held, units } => {
            Operation::ResizeHold(v1::ResizeHold { lease: Some(held.into()), units: *units })
        }
        Command::Veto { lease: held, for_ms } => {
            Operation::Veto(v1::Veto { lease: Some(held.into()), duration_ms: *for_ms })
        }
        Command::Pin { lease: held, at } => Operation::Pin(v1::Pin { lease: Some(held.into()), position: *at }),
        Command::Collect { resource, below } => {
            Operation::Collect(v1::Collect { resource: (*resource).into(), below: *below })
        }
        Command::Put { lease: held, key, bytes, expect } => Operation::Put(v1::Put {
            lease: Some(held.into()),
            key: (*key).into(),
            value: bytes.map(Into::into),
            expected_revision: *expect,
        }),
        Command::Delivery(command) => Operation::Delivery(command.into()),
        Command::Cache(command) => Operation::Cache(command.into()),
        Command::SetCharter { prefix, charter: terms, comment } => Operation::SetCharter(Box::new(v1::SetCharter {
            prefix: (*prefix).into(),
            charter: Some(encode_charter(terms)),
            comment: (*comment).into(),
        })),
        Command::RemoveCharter { prefix, comment } => {
            Operation::RemoveCharter(v1::RemoveCharter { prefix: (*prefix).into(), comment: (*comment).into() })
        }
        Command::SetMaxTtl { max_ttl_ms, comment } => {
            Operation::SetMaxTtl(v1::SetMaxTtl { max_ttl_ms: *max_ttl_ms, comment: (*comment).into() })
        }
        Command::WaiveQuarantine { comment } => {
            Operation::WaiveQuarantine(v1::WaiveQuarantine { comment: (*comment).into() })
        }
        Command::Report { cluster, reports: seen } => Operation::ReportFences(encode_reports(*cluster, seen)),
        Command::ForgetTarget { resource, target, comment } => Operation::ForgetTarget(v1::ForgetTarget {
            resource: (*resource).into(),
            target: (*target).into(),
            comment: (*comment).into(),
        }),
        Command::StepDown => Operation::StepDown(v1::StepDown {}),
        Command::Approve { proposal, digest, .. } => {
            Operation::Approve(v1::Approve { proposal: *proposal, digest: digest.to_vec() })
        }
        Command::CancelProposal { proposal } => Operation::CancelProposal(v1::CancelProposal { proposal: *proposal }),
        Command::ObserveToken => Operation::ObserveToken(v1::ObserveToken::default()),
        _ => return None,
    })
}

impl v1::Request {
    /// Returns the operation. A request with an operation that this version does not know is refused.
    pub fn require_operation(&self) -> Result<&Operation, Refusal> {
        self.operation.as_ref().ok_or(Refusal::Invalid {
            field: "operation",
            reason: "absent, or unknown to this version; update the server",
        })
    }

    /// Encoded size of this request, in bytes.
    pub fn weight(&self) -> usize {
        self.encoded_len()
    }
}
