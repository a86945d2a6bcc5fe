//! Conversion of enums and other small values. An unknown number is refused with the name of its field.

use leasehold_core::charter::{AfterRevocation, HandoffMode, OnDeadlock, Payload, TokenOnRenewal, Uncommitted};
use leasehold_core::grantor::LeaseSort;
use leasehold_core::lease::{Access, EndReason, LeaseState, Validity};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, TokenError, TokenScope};

use crate::v1;

/// Refusal for a missing required field.
pub(crate) const fn missing_field(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "missing; this field is required" }
}

/// Decodes an enum value.
pub(crate) fn decode_enum<W: TryFrom<i32>>(raw: i32, field: &'static str) -> Result<W, Refusal> {
    W::try_from(raw).map_err(|_| Refusal::Invalid { field, reason: "unknown value; this version does not know it" })
}

/// Decodes an enum value; `None` if it is unspecified.
pub(crate) fn optional_enum<W, C>(raw: i32, field: &'static str) -> Result<Option<C>, Refusal>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    decode_enum::<W>(raw, field).map(Option::from)
}

/// Decodes an enum value that must not be unspecified.
pub(crate) fn required_enum<W, C>(raw: i32, field: &'static str) -> Result<C, Refusal>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    optional_enum::<W, C>(raw, field)?.ok_or(missing_field(field))
}

/// Decodes a token number.
pub(crate) const fn decode_number(raw: u64) -> Result<Number, Refusal> {
    match Number::new(raw) {
        Some(number) => Ok(number),
        None if raw == 0 => Err(Refusal::Token(TokenError::Zero)),
        None => Err(Refusal::Token(TokenError::TooLarge)),
    }
}

/// Decodes an access from its two fields.
pub(crate) fn decode_access(raw: i32, units: u32) -> Result<Access, Refusal> {
    let access = match decode_enum::<v1::Access>(raw, "access")? {
        v1::Access::Units => return Ok(Access::Units(units)),
        v1::Access::Exclusive => Access::Exclusive,
        v1::Access::Shared => Access::Shared,
        v1::Access::Slot => Access::Slot,
    };
    if units == 0 { Ok(access) } else { Err(Refusal::Invalid { field: "units", reason: "only with access by units" }) }
}

/// Encodes an access as two fields.
pub(crate) const fn encode_access(access: Access) -> (i32, u32) {
    match access {
        Access::Exclusive => (v1::Access::Exclusive as i32, 0),
        Access::Shared => (v1::Access::Shared as i32, 0),
        Access::Slot => (v1::Access::Slot as i32, 0),
        Access::Units(units) => (v1::Access::Units as i32, units),
    }
}

/// Decodes a token scope from its two fields.
pub(crate) fn decode_scope(raw: i32, slot: u32) -> Result<TokenScope, Refusal> {
    match decode_enum::<v1::TokenScope>(raw, "scope")? {
        v1::TokenScope::Slot => Ok(TokenScope::Slot(slot)),
        _ if slot != 0 => Err(Refusal::Invalid { field: "slot", reason: "only allowed for a token of one slot" }),
        v1::TokenScope::Shared => Ok(TokenScope::Shared),
        v1::TokenScope::Units => Ok(TokenScope::Units),
    }
}

/// Encodes a token scope as two fields.
pub(crate) const fn encode_scope(scope: TokenScope) -> (i32, u32) {
    match scope {
        TokenScope::Slot(slot) => (v1::TokenScope::Slot as i32, slot),
        TokenScope::Shared => (v1::TokenScope::Shared as i32, 0),
        TokenScope::Units => (v1::TokenScope::Units as i32, 0),
    }
}

macro_rules! pairs {
    ($($name:ident { $($variant:ident),+ })+) => {$(
        impl From<$name> for v1::$name {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }

        impl From<v1::$name> for Option<$name> {
            fn from(word: v1::$name) -> Self {
                Some(match word {
                    v1::$name::Unspecified => return None,
                    $(v1::$name::$variant => $name::$variant,)+
                })
            }
        }
    )+};
}

pairs! {
    LeaseState { Held, Expired, Revoked }
    EndReason { Released, Ttl, Session, Stalled, MaxHold, HandedOff, Restored, Operator, Deadlock, Priority, Policy }
    Validity { Session, Quorum, Issuer }
    HandoffMode { Gap, Overlap }
    Payload { Exclusion, Coordination, WorkItem, Shard, Liveness, Capacity, ReadValidity, Permission }
    LeaseSort { Name, Age, Remaining, LastProgress, Waiters }
    Uncommitted { Reaped, Replayed, Lost }
}

macro_rules! total_pairs {
    ($($name:ident { $($variant:ident),+ })+) => {$(
        impl From<$name> for v1::$name {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }

        impl From<v1::$name> for $name {
            fn from(word: v1::$name) -> Self {
                match word {
                    $(v1::$name::$variant => Self::$variant,)+
                }
            }
        }
    )+};
}

total_pairs! {
    AfterRevocation { Free, HoldForOperator }
    OnDeadlock { RefuseWait, Report, Revoke }
    TokenOnRenewal { Keep, Rotate }
}

/// Encodes an optional enum value; 0 for `None`.
pub(crate) fn encode_optional<C, W: From<C> + Into<i32>>(word: Option<C>) -> i32 {
    word.map_or(0, |word| W::from(word).into())
}
