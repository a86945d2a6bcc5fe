//! Every way the grantor says no, with a stable code and the next step.

mod about;
mod bytes;

pub use about::{Limit, What};
pub(crate) use bytes::number;

use std::fmt;

use crate::lease::Reason;
use crate::name::NameError;
use crate::token::{Number, TokenError};

/// A refusal is an answer, not an error: the request was understood and the state of the world says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field holds what it may not.
    Invalid {
        /// The field.
        field: &'static str,
        /// What is allowed there.
        reason: &'static str,
    },
    /// A resource or holder name is malformed.
    Name(NameError),
    /// A token text is malformed, foreign, or for something else.
    Token(TokenError),
    /// A shown number lies further in the future than clocks can explain.
    Implausible {
        /// What was shown.
        shown: Number,
    },
    /// There is no such thing.
    NotFound(What),
    /// It contradicts what is there.
    Conflict(What),
    /// The lease is over.
    Lost(Reason),
    /// The lease is not the caller's to use.
    NotCurrent(NotCurrent),
    /// A newer authority was here.
    Stale {
        /// What the caller showed.
        presented: u64,
        /// What is current.
        mark: u64,
    },
    /// Somebody else holds it.
    Busy {
        /// The place in the queue that a wait would get, from 1.
        position: u32,
    },
    /// Waiting would never end, or a standing wait was chosen to end a deadlock.
    Deadlock(Box<Cycle>),
    /// A bound of `limits.rs` or of a charter is reached.
    Exhausted {
        /// Which.
        limit: Limit,
        /// The bound.
        max: u64,
        /// What was asked for.
        got: u64,
    },
    /// No token number is left (T7).
    TokensExhausted,
    /// The wait was over before the resource was free.
    Timeout,
    /// The caller took its wait back.
    Cancelled,
    /// The request id lies below what its client acknowledged (L11).
    TooOld {
        /// The lowest sequence that is still answered.
        lowest: u64,
    },
    /// Nothing is granted until this many milliseconds were served (T5, T9).
    Quarantined {
        /// Milliseconds of served time.
        remaining: u64,
        /// Whether a holder's token showed that this grantor's state was rolled back.
        rolled_back: bool,
    },
    /// A revocation left the resource to an operator.
    HeldForOperator,
    /// The journal has room only for endings: nothing new is begun until there is more (V4).
    StorageFull,
    /// The caller may not do this.
    Denied(&'static str),
}

/// Why a lease is not the caller's to use, although it did not end under the caller's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCurrent {
    /// No such lease is remembered.
    Unknown,
    /// Somebody else's.
    NotHolder,
    /// The token is not the lease's.
    Superseded,
}

/// A deadlock as it is told: who waits for what that the next one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// The first members, in the order of the cycle.
    pub members: Vec<Member>,
    /// How many there are in all.
    pub length: u64,
}

/// One actor of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The actor's name.
    pub holder: String,
    /// A resource it waits for, held by the next member.
    pub waits_for: String,
}

impl Refusal {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID_ARGUMENT",
            Self::Name(e) => e.code(),
            Self::Token(e) => e.code(),
            Self::Implausible { .. } => "TOKEN_IMPLAUSIBLE",
            Self::NotFound(_) => "NOT_FOUND",
            Self::Conflict(_) => "CONFLICT",
            Self::Lost(_) => "LEASE_LOST",
            Self::NotCurrent(_) => "NOT_CURRENT",
            Self::Stale { .. } => "STALE_TOKEN",
            Self::Busy { .. } => "BUSY",
            Self::Deadlock(_) => "DEADLOCK",
            Self::Exhausted { .. } => "RESOURCE_EXHAUSTED",
            Self::TokensExhausted => "TOKEN_EXHAUSTED",
            Self::Timeout => "TIMEOUT",
            Self::Cancelled => "CANCELLED",
            Self::TooOld { .. } => "REQUEST_TOO_OLD",
            Self::Quarantined { rolled_back: false, .. } => "QUARANTINED",
            Self::Quarantined { rolled_back: true, .. } => "ROLLED_BACK",
            Self::HeldForOperator => "HELD_FOR_OPERATOR",
            Self::StorageFull => "STORAGE_FULL",
            Self::Denied(_) => "PERMISSION_DENIED",
        }
    }

    /// Whether the answer depends on the state of the world, so that a retry after a failover must be told it again (L11).
    /// The others follow from the request alone, or say that nothing can be kept.
    pub(crate) const fn depends_on_state(&self) -> bool {
        !matches!(
            self,
            Self::Invalid { .. }
                | Self::Name(_)
                | Self::Token(_)
                | Self::Denied(_)
                | Self::TooOld { .. }
                | Self::StorageFull
        )
    }
}

impl From<NameError> for Refusal {
    fn from(e: NameError) -> Self {
        Self::Name(e)
    }
}

impl From<TokenError> for Refusal {
    fn from(e: TokenError) -> Self {
        Self::Token(e)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, reason } => write!(f, "{field}: {reason}"),
            Self::Name(e) => e.fmt(f),
            Self::Token(e) => e.fmt(f),
            Self::Implausible { shown } => {
                write!(f, "token {shown} lies more than a day ahead of the clock; check where it comes from")
            }
            Self::NotFound(what) => write!(f, "no such {}; list what is there and try again", what.word()),
            Self::Conflict(what) => {
                write!(f, "the {} is already something else; read it before you retry", what.word())
            }
            Self::Lost(reason) if reason.may_retry() => {
                write!(f, "the lease is over ({reason}); stop, then acquire again")
            }
            Self::Lost(reason) => {
                write!(f, "the lease was revoked ({reason}); stop, and ask before you acquire again")
            }
            Self::NotCurrent(NotCurrent::Unknown) => {
                f.write_str("no such lease is remembered; stop, then acquire again")
            }
            Self::NotCurrent(NotCurrent::NotHolder) => {
                f.write_str("the lease belongs to another holder; stop, then acquire your own")
            }
            Self::NotCurrent(NotCurrent::Superseded) => {
                f.write_str("the token is not the lease's current one; stop, and use the newest token you were told")
            }
            Self::Stale { presented, mark } => {
                write!(f, "token {presented} is older than {mark}; stop, this authority is over")
            }
            Self::Busy { position } => write!(f, "held by another; wait (place {position} in the queue) or give up"),
            Self::Deadlock(cycle) if cycle.length <= 1 => {
                f.write_str("you already hold it; release it first, or ask for a re-entrant hold")
            }
            Self::Deadlock(cycle) => {
                write!(f, "waiting would close a deadlock of {}; release what you hold, then retry", cycle.length)
            }
            Self::Exhausted { limit, max, got } => {
                write!(f, "{}: at most {max}, got {got}; ask for less or release some", limit.word())
            }
            Self::TokensExhausted => f.write_str("no token number is left; restore into a new cluster"),
            Self::Timeout => f.write_str("not granted within the wait; wait longer or give up"),
            Self::Cancelled => f.write_str("the wait was taken back"),
            Self::TooOld { lowest } => {
                write!(f, "request ids below {lowest} were acknowledged and forgotten; use a new one")
            }
            Self::Quarantined { remaining, rolled_back: false } => {
                write!(f, "nothing is granted for another {remaining} ms after a restore; wait, or waive it in writing")
            }
            Self::Quarantined { remaining, rolled_back: true } => write!(
                f,
                "this cluster's state was rolled back; nothing is granted for another {remaining} ms; find out why, then wait or waive"
            ),
            Self::HeldForOperator => f.write_str("held for an operator after a revocation; free it with a reason"),
            Self::StorageFull => {
                f.write_str("the journal has no room for anything new; free space on its disk, then retry")
            }
            Self::Denied(why) => write!(f, "not allowed: {why}"),
        }
    }
}

impl std::error::Error for Refusal {}
