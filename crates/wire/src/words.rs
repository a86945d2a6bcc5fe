//! Enumerations on both sides, pair by pair; a number nobody knows is refused with the name of its field.

use leasehold_core::charter::{AfterRevocation, OnDeadlock, Payload, Style, TokenOnRenewal, Uncommitted};
use leasehold_core::lease::{Access, Reason, Rung, State};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Reach, TokenError};

use crate::v1;

/// A field that must be there and is not.
pub(crate) const fn absent(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "absent; it must be given" }
}

/// The wire's word for a number.
pub(crate) fn known<W: TryFrom<i32>>(raw: i32, field: &'static str) -> Result<W, Refusal> {
    W::try_from(raw).map_err(|_| Refusal::Invalid { field, reason: "a number that this version does not know" })
}

/// The core's word for a number, absent where nothing was said.
pub(crate) fn said<W, C>(raw: i32, field: &'static str) -> Result<Option<C>, Refusal>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    known::<W>(raw, field).map(Option::from)
}

/// The core's word for a number that must say something.
pub(crate) fn must_say<W, C>(raw: i32, field: &'static str) -> Result<C, Refusal>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    said::<W, C>(raw, field)?.ok_or(absent(field))
}

/// A token's number.
pub(crate) const fn number(raw: u64) -> Result<Number, Refusal> {
    match Number::new(raw) {
        Some(number) => Ok(number),
        None if raw == 0 => Err(Refusal::Token(TokenError::Zero)),
        None => Err(Refusal::Token(TokenError::TooLarge)),
    }
}

/// How much of a resource, in two fields.
pub(crate) fn access(raw: i32, units: u32) -> Result<Access, Refusal> {
    let access = match known::<v1::Access>(raw, "access")? {
        v1::Access::Units => return Ok(Access::Units(units)),
        v1::Access::Exclusive => Access::Exclusive,
        v1::Access::Shared => Access::Shared,
        v1::Access::Slot => Access::Slot,
    };
    if units == 0 { Ok(access) } else { Err(Refusal::Invalid { field: "units", reason: "only with access by units" }) }
}

/// The two fields of an access.
pub(crate) const fn access_fields(access: Access) -> (i32, u32) {
    match access {
        Access::Exclusive => (v1::Access::Exclusive as i32, 0),
        Access::Shared => (v1::Access::Shared as i32, 0),
        Access::Slot => (v1::Access::Slot as i32, 0),
        Access::Units(units) => (v1::Access::Units as i32, units),
    }
}

/// What a token reaches, in two fields.
pub(crate) fn reach(raw: i32, slot: u32) -> Result<Reach, Refusal> {
    match known::<v1::Reach>(raw, "reach")? {
        v1::Reach::Slot => Ok(Reach::Slot(slot)),
        _ if slot != 0 => Err(Refusal::Invalid { field: "slot", reason: "only where the token reaches one slot" }),
        v1::Reach::Shared => Ok(Reach::Shared),
        v1::Reach::Units => Ok(Reach::Units),
    }
}

/// The two fields of a reach.
pub(crate) const fn reach_fields(reach: Reach) -> (i32, u32) {
    match reach {
        Reach::Slot(slot) => (v1::Reach::Slot as i32, slot),
        Reach::Shared => (v1::Reach::Shared as i32, 0),
        Reach::Units => (v1::Reach::Units as i32, 0),
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
    State { Held, Expired, Revoked }
    Reason { Released, Ttl, Session, Stalled, MaxHold, HandedOff, Restored, Operator, Deadlock, Priority, Policy }
    Rung { Session, Quorum, Issuer }
    Style { Gap, Overlap }
    Payload { Exclusion, Coordination, WorkItem, Shard, Liveness, Capacity, ReadValidity, Permission }
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

/// The wire's number for a word that may be missing.
pub(crate) fn maybe<C, W: From<C> + Into<i32>>(word: Option<C>) -> i32 {
    word.map_or(0, |word| W::from(word).into())
}
