//! Log lines of operators' acts, so that the server's log shows who changed what without the audit log.

use leasehold_core::access::Action;
use leasehold_wire::lease_id;
use leasehold_wire::v1::handoff::Selector as HandoffSelector;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::revoke::Selector as RevokeSelector;

use crate::identity::Identity;
use crate::request::RequestPayload;

/// Logs a request that was executed, if it is an operator's. Text values are quoted and escaped by the logger.
pub fn log(body: &RequestPayload, identity: &Identity) {
    let RequestPayload::Operation(operation) = body else { return };
    let act = body.operation_name();
    // The same fields as in an audit entry: who, how that is known, and from where.
    macro_rules! executed {
        ($($field:tt)*) => {
            tracing::info!(
                act,
                principal = &*identity.principal,
                via = identity.via.word(),
                credential = &*identity.credential,
                peer = identity.peer_text(),
                $($field)*
                "operator command executed"
            )
        };
    }
    match &**operation {
        Operation::Revoke(revoke) => {
            let (resource, lease) = match &revoke.selector {
                Some(RevokeSelector::Resource(name)) => (name.as_str(), String::new()),
                Some(RevokeSelector::Lease(lease)) => ("", lease_id(*lease).to_string()),
                None => ("", String::new()),
            };
            executed!(resource, lease, comment = revoke.comment, grace_ms = revoke.grace_ms,);
        }
        // A holder hands its own lease off with its token.
        Operation::Handoff(handoff) if handoff.token.is_empty() && handoff.token_number.is_none() => {
            let (resource, lease) = match &handoff.selector {
                Some(HandoffSelector::Resource(name)) => (name.as_str(), String::new()),
                Some(HandoffSelector::Lease(lease)) => ("", lease_id(*lease).to_string()),
                None => ("", String::new()),
            };
            let to = handoff.to.as_deref().unwrap_or_default();
            executed!(resource, lease, to,);
        }
        Operation::Free(free) => executed!(resource = free.resource, comment = free.comment,),
        Operation::SetCapacity(set) => executed!(resource = set.resource, units = set.units,),
        Operation::SetCharter(set) => executed!(prefix = set.prefix, comment = set.comment,),
        Operation::RemoveCharter(remove) => executed!(prefix = remove.prefix, comment = remove.comment,),
        Operation::ForgetTarget(forget) => {
            let (resource, target) = (&forget.resource, &forget.target);
            executed!(resource, target, comment = forget.comment,);
        }
        Operation::WaiveQuarantine(waive) => executed!(comment = waive.comment,),
        Operation::SetMaxTtl(set) => executed!(max_ttl_ms = set.max_ttl_ms, comment = set.comment,),
        Operation::StepDown(_) => executed!(),
        Operation::Approve(approve) => executed!(proposal = approve.proposal,),
        Operation::CancelProposal(cancel) => executed!(proposal = cancel.proposal,),
        _ => {}
    }
}

/// Logs a copy of the whole state or of the whole audit log, which no record shows.
pub fn log_copy(action: Action, identity: &Identity) {
    tracing::info!(
        act = action.word(),
        principal = &*identity.principal,
        via = identity.via.word(),
        credential = &*identity.credential,
        peer = identity.peer_text(),
        "copy started"
    );
}
