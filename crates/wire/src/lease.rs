//! Leases: how they are asked for, how their holders name them, and how they are told.

use leasehold_core::command::{Acquire, AcquireAll, Current, Grant, HandOff, Held, Renew, Revoke, Terms, Which};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, Reason, State};
use leasehold_core::name::resource_hash;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Token, TokenError};

use crate::asked::{Caller, Issuer};
use crate::words::{absent, access, access_fields, maybe, must_say, number, reach, reach_fields, said};
use crate::{RENEWALS, lease_bits, lease_id, session_bits, session_id, v1};

pub(crate) fn acquire<'a>(from: &'a v1::Acquire, caller: &Caller) -> Result<Acquire<'a>, Refusal> {
    Ok(Acquire {
        resource: &from.resource,
        holder: &from.holder,
        session: session(from.session, caller)?,
        access: access(from.access, from.units)?,
        slots: from.slots,
        ttl_ms: from.ttl_ms,
        terms: terms(from.terms.as_ref())?,
    })
}

/// The leases of an [`AcquireAll`], which borrows them.
pub(crate) fn wanted(from: &v1::AcquireAll) -> Result<Vec<(&str, Access)>, Refusal> {
    from.wanted.iter().map(|one| Ok((one.resource.as_str(), access(one.access, one.units)?))).collect()
}

pub(crate) fn acquire_all<'a>(from: &'a v1::AcquireAll, caller: &Caller) -> Result<AcquireAll<'a>, Refusal> {
    Ok(AcquireAll {
        wanted: &[],
        holder: &from.holder,
        session: session(from.session, caller)?,
        ttl_ms: from.ttl_ms,
        terms: terms(from.terms.as_ref())?,
    })
}

fn terms(from: Option<&v1::Terms>) -> Result<Terms<'_>, Refusal> {
    let Some(from) = from else {
        return Ok(Terms::DEFAULT);
    };
    let priority = from.priority.map_or(Ok(Terms::PRIORITY), u8::try_from);
    Ok(Terms {
        wait_ms: from.wait_ms,
        priority: priority.map_err(|_| Refusal::Invalid { field: "priority", reason: "from 0 to 255" })?,
        reentrant: from.reentrant,
        max_hold_ms: from.max_hold_ms,
        progress_ms: from.progress_ms,
        metadata: &from.metadata,
    })
}

/// The session that a request names, or the stream's own; never two.
pub(crate) fn session(named: Option<u64>, caller: &Caller) -> Result<Option<SessionId>, Refusal> {
    match (named.map(session_id), caller.session) {
        (Some(named), Some(own)) if named != own => {
            Err(Refusal::Invalid { field: "session", reason: "absent on a stream, which has a session of its own" })
        }
        (named, own) => Ok(own.or(named)),
    }
}

/// The same, where there must be one.
pub(crate) fn some_session(named: Option<u64>, caller: &Caller) -> Result<SessionId, Refusal> {
    session(named, caller)?.ok_or(absent("session"))
}

pub(crate) fn held<'a>(from: Option<&'a v1::Held>, caller: &Caller) -> Result<Held<'a>, Refusal> {
    use v1::held::Which as Named;
    let from = from.ok_or(absent("held"))?;
    let lease = match from.which.as_ref().ok_or(absent("lease"))? {
        Named::Lease(bits) => Which::Id(lease_id(*bits)),
        Named::Resource(name) => Which::Resource(name),
    };
    let number = shown_number(lease, &from.token, (from.number != 0).then_some(from.number), &caller.issuer)?
        .ok_or(Refusal::Token(TokenError::Absent))?;
    Ok(Held { lease, number, session: caller.session, holder: from.holder.as_deref() })
}

/// The number of a token that is shown as text, as number, or as both alike.
fn shown_number(which: Which<'_>, text: &str, bare: Option<u64>, issuer: &Issuer) -> Result<Option<Number>, Refusal> {
    let bare = bare.map(number).transpose()?;
    if text.is_empty() {
        return Ok(bare);
    }
    let token = issuer.read(text)?;
    if matches!(which, Which::Resource(name) if resource_hash(name) != token.resource) {
        return Err(Refusal::Token(TokenError::Resource));
    }
    if bare.is_some_and(|bare| bare != token.number) {
        return Err(Refusal::Invalid { field: "number", reason: "the token's own, or absent; two tokens were shown" });
    }
    Ok(Some(token.number))
}

pub(crate) fn renew<'a>(from: &'a v1::Renew, caller: &Caller) -> Result<Renew<'a>, Refusal> {
    Ok(Renew { held: held(from.held.as_ref(), caller)?, ttl_ms: from.ttl_ms, progress: from.progress })
}

/// The renewals of a batch, in its order. A wrong number spoils its own renewal only.
pub fn renewals(
    batch: &v1::RenewBatch,
    session: Option<SessionId>,
) -> Result<impl ExactSizeIterator<Item = Result<Renew<'static>, Refusal>>, Refusal> {
    if batch.leases.len() != batch.numbers.len() {
        return Err(Refusal::Invalid { field: "numbers", reason: "as many as leases, in the same order" });
    }
    if batch.leases.len() > RENEWALS {
        return Err(Refusal::Invalid { field: "leases", reason: "at most 8192 renewals in one batch" });
    }
    Ok(batch.leases.iter().zip(&batch.numbers).map(move |(lease, raw)| {
        let held = Held { session, ..Held::by_id(lease_id(*lease), number(*raw)?) };
        Ok(Renew { held, ttl_ms: None, progress: None })
    }))
}

const _: () = assert!(RENEWALS == 8_192, "the refusal above spells it out");

pub(crate) fn revoke(from: &v1::Revoke) -> Result<Revoke<'_>, Refusal> {
    use v1::revoke::Which as Named;
    let which = match from.which.as_ref().ok_or(absent("resource"))? {
        Named::Lease(bits) => Which::Id(lease_id(*bits)),
        Named::Resource(name) => Which::Resource(name),
    };
    let reason = must_say::<v1::Reason, Reason>(from.reason, "reason")?;
    Ok(Revoke { which, reason, why: &from.why, grace_ms: from.grace_ms })
}

pub(crate) fn hand_off<'a>(from: &'a v1::HandOff, caller: &Caller) -> Result<HandOff<'a>, Refusal> {
    use v1::hand_off::Which as Named;
    let which = match from.which.as_ref().ok_or(absent("resource"))? {
        Named::Lease(bits) => Which::Id(lease_id(*bits)),
        Named::Resource(name) => Which::Resource(name),
    };
    Ok(HandOff {
        which,
        number: shown_number(which, &from.token, from.number, &caller.issuer)?,
        to: from.to.as_deref(),
        style: said::<v1::Style, _>(from.style, "style")?,
        drain_ms: from.drain_ms,
    })
}

impl From<&Acquire<'_>> for v1::Acquire {
    fn from(from: &Acquire<'_>) -> Self {
        let (access, units) = access_fields(from.access);
        Self {
            resource: from.resource.into(),
            holder: from.holder.into(),
            session: from.session.map(session_bits),
            access,
            units,
            slots: from.slots,
            ttl_ms: from.ttl_ms,
            terms: Some((&from.terms).into()),
        }
    }
}

impl From<&AcquireAll<'_>> for v1::AcquireAll {
    fn from(from: &AcquireAll<'_>) -> Self {
        let one = |(resource, access): &(&str, Access)| {
            let (access, units) = access_fields(*access);
            v1::Wanted { resource: (*resource).into(), access, units }
        };
        Self {
            wanted: from.wanted.iter().map(one).collect(),
            holder: from.holder.into(),
            session: from.session.map(session_bits),
            ttl_ms: from.ttl_ms,
            terms: Some((&from.terms).into()),
        }
    }
}

impl From<&Terms<'_>> for v1::Terms {
    fn from(from: &Terms<'_>) -> Self {
        Self {
            wait_ms: from.wait_ms,
            priority: (from.priority != Terms::PRIORITY).then_some(from.priority.into()),
            reentrant: from.reentrant,
            max_hold_ms: from.max_hold_ms,
            progress_ms: from.progress_ms,
            metadata: from.metadata.into(),
        }
    }
}

/// The session is not said again: the stream has it.
impl From<&Held<'_>> for v1::Held {
    fn from(from: &Held<'_>) -> Self {
        let which = match from.lease {
            Which::Id(id) => v1::held::Which::Lease(lease_bits(id)),
            Which::Resource(name) => v1::held::Which::Resource(name.into()),
        };
        Self {
            which: Some(which),
            number: from.number.get(),
            token: String::new(),
            holder: from.holder.map(Into::into),
        }
    }
}

impl From<&Renew<'_>> for v1::Renew {
    fn from(from: &Renew<'_>) -> Self {
        Self { held: Some((&from.held).into()), ttl_ms: from.ttl_ms, progress: from.progress }
    }
}

impl From<&Revoke<'_>> for v1::Revoke {
    fn from(from: &Revoke<'_>) -> Self {
        let which = match from.which {
            Which::Id(id) => v1::revoke::Which::Lease(lease_bits(id)),
            Which::Resource(name) => v1::revoke::Which::Resource(name.into()),
        };
        let reason = v1::Reason::from(from.reason).into();
        Self { which: Some(which), reason, why: from.why.into(), grace_ms: from.grace_ms }
    }
}

impl From<&HandOff<'_>> for v1::HandOff {
    fn from(from: &HandOff<'_>) -> Self {
        let which = match from.which {
            Which::Id(id) => v1::hand_off::Which::Lease(lease_bits(id)),
            Which::Resource(name) => v1::hand_off::Which::Resource(name.into()),
        };
        Self {
            which: Some(which),
            number: from.number.map(Number::get),
            token: String::new(),
            to: from.to.map(Into::into),
            style: maybe::<_, v1::Style>(from.style),
            drain_ms: from.drain_ms,
        }
    }
}

/// A grant as it is told, with the text that fences take.
pub fn grant(from: &Grant, issuer: &Issuer, resource: &str, holder: &str) -> v1::Grant {
    let token = Token {
        cluster: issuer.cluster,
        incarnation: issuer.incarnation,
        resource: resource_hash(resource),
        reach: from.reach,
        number: from.number,
    };
    let (reach, slot) = reach_fields(from.reach);
    v1::Grant {
        resource: resource.into(),
        lease: lease_bits(from.lease),
        holder: holder.into(),
        token: token.to_string(),
        token_number: from.number.get(),
        reach,
        slot,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        rung: v1::Rung::from(from.rung).into(),
        state: v1::State::from(State::Held).into(),
        reason: v1::Reason::Unspecified.into(),
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        depth: from.depth,
        rotates: from.rotates,
    }
}

/// A grant as its holder reads it.
pub fn read_grant(from: &v1::Grant) -> Result<Grant, Refusal> {
    Ok(Grant {
        lease: lease_id(from.lease),
        number: number(from.token_number)?,
        reach: reach(from.reach, from.slot)?,
        ttl_ms: from.ttl_ms,
        remaining_ms: from.remaining_ms,
        rung: must_say::<v1::Rung, _>(from.rung, "rung")?,
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        depth: from.depth,
        rotates: from.rotates,
    })
}

/// A current lease as it is told. The text of its token is left out: the holder has it, unless it was raised.
pub fn current(from: &Current) -> v1::Current {
    v1::Current {
        token_number: from.number.get(),
        remaining_ms: from.remaining_ms,
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
        token: String::new(),
    }
}

/// A current lease as its holder reads it.
pub fn read_current(from: &v1::Current) -> Result<Current, Refusal> {
    Ok(Current {
        number: number(from.token_number)?,
        remaining_ms: from.remaining_ms,
        drain_ms: from.drain_ms,
        overlaps_ms: from.overlaps_ms,
    })
}
