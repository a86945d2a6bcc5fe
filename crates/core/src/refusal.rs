//! Refusals: every reason for which a grantor declines a request, with a stable code and a next step.

mod codec;
mod subject;

pub(crate) use codec::number;
pub use subject::{AccessKind, Limit, RefusalSubject};

use std::fmt;

use crate::lease::EndReason;
use crate::name::NameError;
use crate::time::DurationText;
use crate::token::{Number, TokenError};

/// A declined request. It is an answer, not an error: the request was valid, and the state does not allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field has an invalid value.
    Invalid {
        /// The field.
        field: &'static str,
        /// What is allowed.
        reason: &'static str,
    },
    /// A ttl is outside of the range that the cluster or the charter allows.
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The requested ttl, in milliseconds.
        requested: u64,
        /// The shortest, in milliseconds.
        min: u64,
        /// The longest, in milliseconds.
        max: u64,
        /// Whether the charter of the resource sets the range.
        by_charter: bool,
    },
    /// A resource or holder name is malformed.
    Name(NameError),
    /// A token text is malformed, of another cluster, or for another resource.
    Token(TokenError),
    /// A presented token number is further in the future than clocks can explain.
    Implausible {
        /// The presented number.
        presented: Number,
    },
    /// The subject does not exist.
    NotFound(RefusalSubject),
    /// The request contradicts the current state of the subject.
    Conflict(RefusalSubject),
    /// The lease ended.
    Lost(EndReason),
    /// The caller does not hold the lease.
    NotCurrent(NotCurrent),
    /// A newer token was used already.
    Stale {
        /// The number that the caller presented.
        presented: u64,
        /// The current number.
        mark: u64,
    },
    /// Another holder has the resource.
    Busy {
        /// The queue position that a wait would get, from 1.
        position: u32,
        /// Who has the resource; none if only waiters are ahead.
        holder: Option<Box<BusyHolder>>,
    },
    /// The caller holds the resource with another access.
    AccessChange {
        /// The access of the held lease.
        held: AccessKind,
        /// The requested access.
        requested: AccessKind,
    },
    /// The wait would never end, or it was ended to resolve a deadlock.
    Deadlock(Box<Cycle>),
    /// A limit of `limits.rs` or of a charter is reached.
    Exhausted {
        /// The limit.
        limit: Limit,
        /// Its value.
        max: u64,
        /// The requested value.
        got: u64,
    },
    /// No token number is left (T7).
    TokensExhausted,
    /// The wait ended before the resource was free.
    Timeout,
    /// The caller canceled its wait.
    Cancelled,
    /// The request id is below those that the client acknowledged (L11).
    TooOld {
        /// The lowest sequence that is still answered.
        lowest: u64,
    },
    /// Nothing is granted for this many milliseconds (T5, T9).
    Quarantined {
        /// Milliseconds of grantor time.
        remaining: u64,
        /// Whether a token proved that this grantor's state was rolled back.
        rolled_back: bool,
    },
    /// The resource is blocked for an operator after a revocation.
    HeldForOperator,
    /// The journal has space only for ends: nothing new starts until there is more (V4).
    StorageFull,
    /// The caller is not allowed to do this.
    Denied(&'static str),
    /// The caller is not allowed to set this field; the rest of the request would be allowed.
    DeniedField {
        /// The field.
        field: &'static str,
        /// Why, and the next step.
        reason: &'static str,
    },
    /// The request was proposed; another identity must approve it (A14).
    ApprovalRequired {
        /// The number of the proposal.
        proposal: u64,
    },
    /// What an approved command would change is not what it would have changed when it was proposed (A14). Nothing was executed.
    SubjectChanged {
        /// What changed.
        subject: RefusalSubject,
        /// The number of leases, or the value, when it was proposed.
        proposed: u64,
        /// The same now.
        found: u64,
    },
}

/// A holder that blocks a request, at the time of the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyHolder {
    /// Its name.
    pub holder: String,
    /// How many other leases are on the resource.
    pub others: u32,
    /// Time since the grant, in milliseconds of grantor time.
    pub held_ms: u64,
    /// Time until its lease ends unless renewed, in milliseconds.
    pub remaining_ms: u64,
}

/// Why the caller does not hold a lease, although no lease ended under its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCurrent {
    /// The lease is not known, or no longer.
    Unknown,
    /// Another holder has the lease.
    NotHolder,
    /// The lease has another token.
    Superseded,
}

/// A deadlock: each member waits for a resource that the next member holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// The members in the order of the cycle, up to a limit.
    pub members: Vec<CycleMember>,
    /// The number of all members.
    pub length: u64,
}

/// One actor of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleMember {
    /// The actor's name.
    pub holder: String,
    /// The resource it waits for, which the next member holds.
    pub waits_for: String,
}

impl Refusal {
    /// Another has the resource, and its holder is not known.
    pub const fn busy(position: u32) -> Self {
        Self::Busy { position, holder: None }
    }

    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::OutOfRange { .. } => "INVALID_ARGUMENT",
            Self::Name(e) => e.code(),
            Self::Token(e) => e.code(),
            Self::Implausible { .. } => "TOKEN_IMPLAUSIBLE",
            Self::NotFound(_) => "NOT_FOUND",
            Self::Conflict(_) | Self::SubjectChanged { .. } => "CONFLICT",
            Self::Lost(_) => "LEASE_LOST",
            Self::NotCurrent(_) => "NOT_CURRENT",
            Self::Stale { .. } => "STALE_TOKEN",
            Self::Busy { .. } => "BUSY",
            Self::AccessChange { .. } => "ACCESS_CHANGE",
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
            Self::Denied(_) | Self::DeniedField { .. } => "PERMISSION_DENIED",
            Self::ApprovalRequired { .. } => "APPROVAL_REQUIRED",
        }
    }

    /// Whether the answer depends on the state, so that a retry after a failover must get it again (L11). All other
    /// refusals follow from the request alone, or report that nothing can be stored.
    pub(crate) const fn depends_on_state(&self) -> bool {
        !matches!(
            self,
            Self::Invalid { .. }
                | Self::OutOfRange { .. }
                | Self::Name(_)
                | Self::Token(_)
                | Self::Denied(_)
                | Self::DeniedField { .. }
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
            Self::Invalid { field, reason } | Self::DeniedField { field, reason } => write!(f, "{field}: {reason}"),
            Self::Name(e) => e.fmt(f),
            Self::Token(e) => token_text(e, f),
            Self::OutOfRange { field, requested, min, max, by_charter } => {
                let owner = if *by_charter { "the charter of this resource" } else { "the cluster" };
                let (requested, min, max) = (DurationText(*requested), DurationText(*min), DurationText(*max));
                write!(f, "{field}: {requested} is not allowed; {owner} allows {min} to {max}")
            }
            Self::Implausible { presented } => {
                write!(
                    f,
                    "token {presented} is more than a day ahead of the server's clock; check its origin and both clocks"
                )
            }
            Self::NotFound(subject) => f.write_str(subject.not_found_text()),
            Self::Conflict(subject) => f.write_str(subject.conflict_text()),
            Self::Lost(EndReason::Released) => f.write_str("the lease was released; stop, then acquire again"),
            Self::Lost(reason) if reason.may_retry() => {
                write!(f, "the lease expired ({reason}); stop, then acquire again")
            }
            Self::Lost(reason) => {
                write!(f, "the lease was revoked ({reason}); stop, and acquire again only with the operator's consent")
            }
            Self::NotCurrent(NotCurrent::Unknown) => {
                f.write_str("the lease is unknown or ended long ago; stop, then acquire again")
            }
            Self::NotCurrent(NotCurrent::NotHolder) => {
                f.write_str("another holder has the lease; stop, then acquire your own")
            }
            Self::NotCurrent(NotCurrent::Superseded) => {
                f.write_str("the lease has a newer token; stop, or continue with the newest token you received")
            }
            Self::Stale { presented, mark } => {
                write!(f, "token {presented} is stale, the current one is {mark}; stop, another holder took over")
            }
            Self::Busy { position, holder: None } => {
                write!(f, "held by another holder (queue position {position}); wait, or retry later")
            }
            Self::Busy { position, holder: Some(by) } => {
                write!(f, "held by {}", by.holder)?;
                match by.others {
                    0 => {}
                    1 => f.write_str(" and 1 other")?,
                    others => write!(f, " and {others} others")?,
                }
                let (held, left) = (DurationText(by.held_ms), DurationText(by.remaining_ms));
                write!(f, " for {held}, {left} left unless renewed (queue position {position}); wait, or retry later")
            }
            Self::AccessChange { held, requested } => write!(
                f,
                "you hold this resource with {} access and requested {}; release it, then acquire it again",
                held.word(),
                requested.word()
            ),
            Self::Deadlock(cycle) if cycle.length <= 1 => {
                f.write_str("you already hold this resource; release it first, or acquire it re-entrantly")
            }
            Self::Deadlock(cycle) => {
                write!(
                    f,
                    "waiting would cause a deadlock of {} holders; release what you hold, then retry",
                    cycle.length
                )
            }
            Self::Exhausted { limit, max, got } if limit.is_of_identity() => write!(
                f,
                "limit {}: this identity may have at most {max} and would have {got}; end some, or ask an administrator for more",
                limit.word()
            ),
            Self::Exhausted { limit, max, got } => {
                write!(f, "limit {}: at most {max}, requested {got}; request less, or release some", limit.word())
            }
            Self::TokensExhausted => f.write_str("no token number is left; restore into a new cluster"),
            Self::Timeout => f.write_str("not granted within the wait; retry, or wait longer"),
            Self::Cancelled => f.write_str("the wait was canceled; acquire again if you still need the lease"),
            Self::TooOld { lowest } => {
                write!(f, "request ids below {lowest} are acknowledged and no longer stored; use a new request id")
            }
            Self::Quarantined { remaining, rolled_back: false } => {
                let remaining = DurationText(*remaining);
                write!(f, "nothing is granted for {remaining} after a restore; wait, or waive the quarantine")
            }
            Self::Quarantined { remaining, rolled_back: true } => write!(
                f,
                "the cluster's state was rolled back and nothing is granted for {}; find the cause, then wait or waive the quarantine",
                DurationText(*remaining)
            ),
            Self::HeldForOperator => {
                f.write_str("the resource is held for an operator after a revocation; an operator must free it")
            }
            Self::StorageFull => f.write_str("the journal is full; free disk space, then retry"),
            Self::Denied(reason) => write!(f, "not allowed: {reason}"),
            Self::ApprovalRequired { proposal } => write!(
                f,
                "nothing happened yet: this needs a second identity; ask an approver to run leasehold approve {proposal} within 15 minutes"
            ),
            Self::SubjectChanged { subject, proposed, found } => {
                write!(f, "nothing was executed: {} since this was proposed", subject.changed_text())?;
                if proposed != found && subject.has_count() {
                    write!(f, ": {proposed} then, {found} now")?;
                }
                f.write_str("; look at it, then propose the command again")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// A token error as a server reports it. Its own text is about the target of a fence.
fn token_text(error: &TokenError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match error {
        TokenError::Absent => "no token; pass the token text of the grant",
        TokenError::Zero | TokenError::TooLarge => {
            "not a token number that was granted; pass the token text of the grant"
        }
        TokenError::Implausible => {
            "token number is more than a day ahead of the server's clock; check its origin and both clocks"
        }
        TokenError::WrongCluster => "token of another cluster; send the request to the cluster that granted it",
        TokenError::Resource => "token of another resource; pass the token that was granted for this resource",
        TokenError::Version { .. }
        | TokenError::Shape
        | TokenError::Checksum
        | TokenError::Shared
        | TokenError::Slot => return fmt::Display::fmt(error, f),
    })
}
