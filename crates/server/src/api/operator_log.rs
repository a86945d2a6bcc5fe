//! Log lines of operators' acts, so that the server's log shows who changed what without the audit log.

use leasehold_wire::v1::handoff::Selector as HandoffSelector;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::revoke::Selector as RevokeSelector;

use crate::identity::Identity;
use crate::request::RequestPayload;

/// Logs a request that was executed, if it is an operator's. Text values are quoted and escaped by the logger.
pub fn log(body: &RequestPayload, identity: &Identity) {
    let RequestPayload::Operation(operation) = body else { return };
    let (act, principal) = (body.operation_name(), &*identity.principal);
    match &**operation {
        Operation::Revoke(revoke) => {
            let resource = match &revoke.selector {
                Some(RevokeSelector::Resource(name)) => name.as_str(),
                _ => "",
            };
            tracing::info!(
                act,
                principal,
                resource,
                comment = revoke.comment,
                grace_ms = revoke.grace_ms,
                "operator command executed"
            );
        }
        // A holder hands its own lease off with its token.
        Operation::Handoff(handoff) if handoff.token.is_empty() && handoff.token_number.is_none() => {
            let resource = match &handoff.selector {
                Some(HandoffSelector::Resource(name)) => name.as_str(),
                _ => "",
            };
            let to = handoff.to.as_deref().unwrap_or_default();
            tracing::info!(act, principal, resource, to, "operator command executed");
        }
        Operation::Free(free) => {
            tracing::info!(
                act,
                principal,
                resource = free.resource,
                comment = free.comment,
                "operator command executed"
            );
        }
        Operation::SetCapacity(set) => {
            tracing::info!(act, principal, resource = set.resource, units = set.units, "operator command executed");
        }
        Operation::SetCharter(set) => {
            tracing::info!(act, principal, prefix = set.prefix, comment = set.comment, "operator command executed");
        }
        Operation::RemoveCharter(remove) => {
            tracing::info!(
                act,
                principal,
                prefix = remove.prefix,
                comment = remove.comment,
                "operator command executed"
            );
        }
        Operation::ForgetTarget(forget) => {
            let (resource, target) = (&forget.resource, &forget.target);
            tracing::info!(act, principal, resource, target, comment = forget.comment, "operator command executed");
        }
        Operation::WaiveQuarantine(waive) => {
            tracing::info!(act, principal, comment = waive.comment, "operator command executed");
        }
        Operation::SetMaxTtl(set) => {
            tracing::info!(
                act,
                principal,
                max_ttl_ms = set.max_ttl_ms,
                comment = set.comment,
                "operator command executed"
            );
        }
        Operation::StepDown(_) => tracing::info!(act, principal, "operator command executed"),
        _ => {}
    }
}
