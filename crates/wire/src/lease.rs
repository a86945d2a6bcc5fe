//! Encoding and decoding of lease requests, grants and current leases.

use std::fmt;

use leasehold_core::command::{
    Acquire, AcquireAll, AcquireOptions, CurrentLease, Grant, Handoff, LeaseRef, LeaseSelector, Renew, Revoke,
};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, EndReason, LeaseState, Validity};
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Token, TokenError};

use crate::command_context::{CommandContext, TokenIssuer};
use crate::enums::{
    decode_access, decode_number, decode_scope, encode_access, encode_optional, encode_scope, missing_field,
    optional_enum, required_enum,
};
use crate::{MAX_RENEWALS, lease_bits, lease_id, session_bits, v1};

pub(crate) fn decode_acquire<'a>(from: &'a v1::Acquire, caller: &CommandContext) -> Result<Acquire<'a>, Refusal> {
    Ok(Acquire {
        resource: &from.resource,
        holder: &from.holder,
        session: caller.session_for(from.session)?,
        access: decode_access(from.access, from.units)?,
        slots: from.slots,
        ttl_ms: from.ttl_ms,
        options: decode_options(from.options.as_ref())?,
    })
}

/// Decodes the resources of an [`AcquireAll`], which borrows the list.
pub(crate) fn decode_resources(from: &v1::AcquireAll) -> Result<Vec<(&str, Access)>, Refusal> {
    from.resources.iter().map(|one| Ok((one.resource.as_str(), decode_access(one.access, one.units)?))).collect()
}

pub(crate) fn decode_acquire_all<'a>(
    from: &'a v1::AcquireAll,
    caller: &CommandContext,
) -> Result<AcquireAll<'a>, Refusal> {
    Ok(AcquireAll {
        resources: &[],
        holder: &from.holder,
        session: caller.session_for(from.session)?,
        ttl_ms: from.ttl_ms,
        options: decode_options(from.options.as_ref())?,
    })
}

fn decode_options(from: Option<&v1::AcquireOptions>) -> Result<AcquireOptions<'_>, Refusal> {
    let Some(from) = from else {
        return Ok(AcquireOptions::DEFAULT);
    };
    let priority = from.priority.map_or(Ok(AcquireOptions::DEFAULT_PRIORITY), u8::try_from);
    Ok(AcquireOptions {
        wait_ms: from.wait_ms,
        priority: priority.map_err(|_| Refusal::Invalid { field: "priority", reason: "from 0 to 255" })?,
        reentrant: from.reentrant,
        max_hold_ms: from.max_hold_ms,
        progress_ms: from.progress_ms,
        metadata: &from.metadata,
    })
}

pub(crate) fn decode_lease_ref<'a>(
    from: Option<&'a v1::LeaseRef>,
    caller: &CommandContext,
) -> Result<LeaseRef<'a>, Refusal> {
    use v1::lease_ref::Selector as Named;
    let from = from.ok_or(missing_field("lease"))?;
    let lease = match from.selector.as_ref().ok_or(missing_field("lease"))? {
        Named::Lease(bits) => LeaseSelector::Id(lease_id(*bits)),
        Named::Resource(name) => LeaseSelector::Resource(name),
    };
    let number =
        token_number(lease, &from.token, (from.token_number != 0).then_some(from.token_number), &caller.issuer)?
            .ok_or(Refusal::Token(TokenError::Absent))?;
    Ok(LeaseRef { selector: lease, number, session: caller.session, holder: from.holder.as_deref() })
}

/// The number of a token that is given as text, as number, or consistently as both.
fn token_number(
    which: LeaseSelector<'_>,
    text: &str,
    bare: Option<u64>,
    issuer: &TokenIssuer,
) -> Result<Option<Number>, Refusal> {
    let bare = bare.map(decode_number).transpose()?;
    if text.is_empty() {
        return Ok(bare);
    }
    let token = issuer.parse_token(text)?;
    if matches!(which, LeaseSelector::Resource(name) if resource_hash(name) != token.resource) {
        return Err(Refusal::Token(TokenError::Resource));
    }
    if bare.is_some_and(|bare| bare != token.number) {
        return Err(Refusal::Invalid {
            field: "token_number",
            reason: "must match the token's text or be absent; two different tokens were presented",
        });
    }
    Ok(Some(token.number))
}

pub(crate) fn decode_renew<'a>(from: &'a v1::Renew, caller: &CommandContext) -> Result<Renew<'a>, Refusal> {
    Ok(Renew { lease: decode_lease_ref(from.lease.as_ref(), caller)?, ttl_ms: from.ttl_ms, progress: from.progress })
}

/// Decodes a batch of renewals, in its order. An invalid number only affects its own renewal.
pub fn decode_renewals(
    batch: &v1::RenewBatch,
    session: Option<SessionId>,
) -> Result<impl ExactSizeIterator<Item = Result<Renew<'static>, Refusal>>, Refusal> {
    if batch.leases.len() != batch.token_numbers.len() {
        return Err(Refusal::Invalid {
            field: "token_numbers",
            reason: "must have one number per lease, in the same order",
        });
    }
    if batch.leases.len() > MAX_RENEWALS {
        return Err(Refusal::Invalid { field: "leases", reason: "must have at most 8192 renewals per batch" });
    }
    Ok(batch.leases.iter().zip(&batch.token_numbers).map(move |(lease, raw)| {
        let held = LeaseRef { session, ..LeaseRef::by_id(lease_id(*lease), decode_number(*raw)?) };
        Ok(Renew { lease: held, ttl_ms: None, progress: None })
    }))
}

const _: () = assert!(MAX_RENEWALS == 8_192, "the refusal above contains the limit");

pub(crate) fn decode_revoke(from: &v1::Revoke) -> Result<Revoke<'_>, Refusal> {
    use v1::revoke::Selector as Named;
    let which = match from.selector.as_ref().ok_or(missing_field("resource"))? {
        Named::Lease(bits) => LeaseSelector::Id(lease_id(*bits)),
        Named::Resource(name) => LeaseSelector::Resource(name),
    };
    let reason = required_enum::<v1::EndReason, EndReason>(from.reason, "reason")?;
    Ok(Revoke { selector: which, reason, comment: &from.comment, grace_ms: from.grace_ms })
}

pub(crate) fn decode_handoff<'a>(from: &'a v1::Handoff, caller: &CommandContext) -> Result<Handoff<'a>, Refusal> {
    use v1::handoff::Selector as Named;
    let which = match from.selector.as_ref().ok_or(missing_field("resource"))? {
        Named::Lease(bits) => LeaseSelector::Id(lease_id(*bits)),
        Named::Resource(name) => LeaseSelector::Resource(name),
    };
    Ok(Handoff {
        selector: which,
        number: token_number(which, &from.token, from.token_number, &caller.issuer)?,
        to: from.to.as_deref(),
        mode: optional_enum::<v1::HandoffMode, _>(from.mode, "mode")?,
        drain_ms: from.drain_ms,
    })
}

impl From<&Acquire<'_>> for v1::Acquire {
    fn from(from: &Acquire<'_>) -> Self {
        let (access, units) = encode_access(from.access);
        Self {
            resource: from.resource.into(),
            holder: from.holder.into(),
            session: from.session.map(session_bits),
            access,
            units,
            slots: from.slots,
            ttl_ms: from.ttl_ms,
            options: Some((&from.options).into()),
        }
    }
}

impl From<&AcquireAll<'_>> for v1::AcquireAll {
    fn from(from: &AcquireAll<'_>) -> Self {
        let one = |(resource, access): &(&str, Access)| {
            let (access, units) = encode_access(*access);
            v1::ResourceAccess { resource: (*resource).into(), access, units }
        };
        Self {
            resources: from.resources.iter().map(one).collect(),
            holder: from.holder.into(),
            session: from.session.map(session_bits),
            ttl_ms: from.ttl_ms,
            options: Some((&from.options).into()),
        }
    }
}

impl From<&AcquireOptions<'_>> for v1::AcquireOptions {
    fn from(from: &AcquireOptions<'_>) -> Self {
        Self {
            wait_ms: from.wait_ms,
            priority: (from.priority != AcquireOptions::DEFAULT_PRIORITY).then_some(from.priority.into()),
            reentrant: from.reentrant,
            max_hold_ms: from.max_hold_ms,
            progress_ms: from.progress_ms,
            metadata: from.metadata.into(),
        }
    }
}

/// Omits the session, which the stream implies.
impl From<&LeaseRef<'_>> for v1::LeaseRef {
    fn from(from: &LeaseRef<'_>) -> Self {
        let which = match from.selector {
            LeaseSelector::Id(id) => v1::lease_ref::Selector::Lease(lease_bits(id)),
            LeaseSelector::Resource(name) => v1::lease_ref::Selector::Resource(name.into()),
        };
        Self {
            selector: Some(which),
            token_number: from.number.get(),
            token: String::new(),
            holder: from.holder.map(Into::into),
        }
    }
}

impl From<&Renew<'_>> for v1::Renew {
    fn from(from: &Renew<'_>) -> Self {
        Self { lease: Some((&from.lease).into()), ttl_ms: from.ttl_ms, progress: from.progress }
    }
}

impl From<&Revoke<'_>> for v1::Revoke {
    fn from(from: &Revoke<'_>) -> Self {
        let which = match from.selector {
            LeaseSelector::Id(id) => v1::revoke::Selector::Lease(lease_bits(id)),
            LeaseSelector::Resource(name) => v1::revoke::Selector::Resource(name.into()),
        };
        let reason = v1::EndReason::from(from.reason).into();
        Self { selector: Some(which), reason, comment: from.comment.into(), grace_ms: from.grace_ms }
    }
}

impl From<&Handoff<'_>> for v1::Handoff {
    fn from(from: &Handoff<'_>) -> Self {
        let which = match from.selector {
            LeaseSelector::Id(id) => v1::handoff::Selector::Lease(lease_bits(id)),
            LeaseSelector::Resource(name) => v1::handoff::Selector::Resource(name.into()),
        };
        Self {
            selector: Some(which),
            token_number: from.number.map(Number::get),
            token: String::new(),
            to: from.to.map(Into::into),
            mode: encode_optional::<_, v1::HandoffMode>(from.mode),
            drain_ms: from.drain_ms,
        }
    }
}

/// Encodes a grant with the text of its token. The caller adds the secret and the stamps.
pub fn encode_grant(from: &Grant, issuer: &TokenIssuer, resource: &str, holder: &str) -> v1::Grant {
    let token = Token {
        cluster: issuer.cluster,
        incarnation: issuer.incarnation,
        resource: resource_hash(resource),
        scope: from.scope,
        number: from.number,
    };
    let (scope, slot) = encode_scope(from.scope);
    v1::Grant {
        resource: resource.into(),
        lease: lease_bits(from.lease),
        holder: holder.into(),
        token: token.to_string(),
        token_number: from.number.get(),
        scope,
        slot,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        validity: v1::Validity::from(from.validity).into(),
        state: v1::LeaseState::from(LeaseState::Held).into(),
        reason: v1::EndReason::Unspecified.into(),
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        depth: from.depth,
        rotates: from.rotates,
        secret: Vec::new(),
        secret_required: false,
        stamped_tokens: Vec::new(),
    }
}

/// Decodes a grant.
pub fn decode_grant(from: &v1::Grant) -> Result<Grant, Refusal> {
    Ok(Grant {
        lease: lease_id(from.lease),
        number: decode_number(from.token_number)?,
        scope: decode_scope(from.scope, from.slot)?,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        // What a newer server calls its validity changes nothing for a holder: it counts as the weakest.
        validity: optional_enum::<v1::Validity, _>(from.validity, "validity")
            .ok()
            .flatten()
            .unwrap_or(Validity::Session),
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        depth: from.depth,
        rotates: from.rotates,
    })
}

/// Encodes a current lease, without the text of its token. The caller adds the text and the secret if the token was raised.
pub fn encode_current(from: &CurrentLease) -> v1::CurrentLease {
    v1::CurrentLease {
        token_number: from.number.get(),
        remaining_ms: from.remaining_ms,
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        token: String::new(),
        secret: Vec::new(),
        stamped_tokens: Vec::new(),
    }
}

/// Decodes a current lease.
pub fn decode_current(from: &v1::CurrentLease) -> Result<CurrentLease, Refusal> {
    Ok(CurrentLease {
        number: decode_number(from.token_number)?,
        remaining_ms: from.remaining_ms,
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
    })
}

/// Omits the secret and the text of the token.
impl fmt::Debug for v1::Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("resource", &self.resource)
            .field("lease", &lease_id(self.lease))
            .field("holder", &self.holder)
            .field("token_number", &self.token_number)
            .field("slot", &self.slot)
            .field("remaining_ms", &self.remaining_ms)
            .finish_non_exhaustive()
    }
}

/// Omits the text of the token.
impl fmt::Debug for v1::StampedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampedToken").field("target", &self.target).finish_non_exhaustive()
    }
}

/// Omits the secret and the text of the token.
impl fmt::Debug for v1::CurrentLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentLease")
            .field("token_number", &self.token_number)
            .field("remaining_ms", &self.remaining_ms)
            .field("drain_ms", &self.drain_ms)
            .field("overlaps_ms", &self.overlaps_ms)
            .finish_non_exhaustive()
    }
}
