//! The reasons for which a fence rejects a token.

use std::fmt;

use leasehold_core::token::{Incarnation, Number, TokenError};
use leasehold_seal::SealError;

/// A fence rejected a token. Neither the target nor its mark changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceRefusal {
    /// The text is not a token, or the token is for another resource, slot or cluster.
    Token(TokenError),
    /// The number is further ahead than the target's clock explains. The mark is unchanged (F5).
    Implausible {
        /// The number of the token.
        presented: Number,
    },
    /// A later holder has claimed the target (F6).
    Stale {
        /// The number of the token.
        presented: Number,
        /// The mark of the target.
        mark: Number,
    },
    /// The mark is lost, so the fence cannot tell a zombie from a current holder (F7).
    MarkLost(MarkLoss),
    /// The mark in the target belongs to another cluster.
    ForeignMark,
    /// A strict fence follows another incarnation of the cluster (T5).
    NotAdopted {
        /// The number of the token.
        presented: Number,
        /// The incarnation of the token.
        incarnation: Incarnation,
    },
    /// The token is not sealed, or none of the fence's keys signed it for this resource (A8).
    Seal(SealError),
    /// The fence is sealed and this process has no keys, so it can verify no token (A8).
    NoSealKeys,
    /// The token was verified elsewhere, or with keys that were replaced since (A8).
    NotVerified,
    /// The token has no valid stamp for this database, whose fence is sealed (A8).
    Stamp,
}

/// How a mark was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkLoss {
    /// The target has no mark: the fence was never armed.
    Missing,
    /// The stored mark cannot be parsed.
    Unreadable,
    /// The target is not the one in which the mark was stored: it was copied, restored or failed over.
    Moved,
    /// An operator declared the mark lost.
    Declared,
}

impl FenceRefusal {
    /// The stable code from the table of error codes.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Token(error) => error.code(),
            Self::Implausible { .. } => "TOKEN_IMPLAUSIBLE",
            Self::Stale { .. } => "STALE_TOKEN",
            Self::MarkLost(_) => "STORAGE_FAILED",
            Self::ForeignMark => "WRONG_CLUSTER",
            Self::NotAdopted { .. } => "NOT_ADOPTED",
            Self::Seal(error) => error.code(),
            Self::NotVerified | Self::Stamp => "TOKEN_INVALID",
            Self::NoSealKeys => "CONFIG",
        }
    }

    /// The stable reason, which refines the code.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Token(error) => error.reason(),
            Self::Implausible { .. } => "implausible",
            Self::Stale { .. } => "stale",
            Self::MarkLost(MarkLoss::Missing) => "missing",
            Self::MarkLost(MarkLoss::Unreadable) => "unreadable",
            Self::MarkLost(MarkLoss::Moved) => "moved",
            Self::MarkLost(MarkLoss::Declared) => "lost",
            Self::ForeignMark => "cluster",
            Self::NotAdopted { .. } => "incarnation",
            Self::Seal(error) => error.reason(),
            Self::NoSealKeys => "no_seal_keys",
            Self::NotVerified => "not_verified",
            Self::Stamp => "stamp",
        }
    }

    /// The number of the rejected token, if its text could be parsed.
    pub const fn presented(&self) -> Option<Number> {
        match *self {
            Self::Implausible { presented } | Self::Stale { presented, .. } | Self::NotAdopted { presented, .. } => {
                Some(presented)
            }
            Self::Token(_)
            | Self::MarkLost(_)
            | Self::ForeignMark
            | Self::Seal(_)
            | Self::NoSealKeys
            | Self::NotVerified
            | Self::Stamp => None,
        }
    }
}

impl From<TokenError> for FenceRefusal {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl From<SealError> for FenceRefusal {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Token(error) => Self::Token(error),
            error => Self::Seal(error),
        }
    }
}

impl fmt::Display for FenceRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Implausible { presented } => write!(f, "{presented}: {}", TokenError::Implausible),
            Self::Stale { presented, mark } => {
                write!(
                    f,
                    "token {presented} is below the mark {mark}: a later holder has claimed; stop, this lease has ended"
                )
            }
            Self::MarkLost(loss) => f.write_str(match loss {
                MarkLoss::Missing => {
                    "the target has no mark for this resource and slot; arm the fence, if nothing was written yet"
                }
                MarkLoss::Unreadable => {
                    "the mark cannot be read; re-arm the fence with a number no holder was granted yet"
                }
                MarkLoss::Moved => {
                    "the target was copied, restored or failed over since its mark was stored; re-arm the fence with a \
                     number no holder was granted yet"
                }
                MarkLoss::Declared => {
                    "the mark was declared lost; re-arm the fence with a number no holder was granted yet"
                }
            }),
            Self::ForeignMark => {
                f.write_str("the mark in this target belongs to another cluster; use a target of this cluster")
            }
            Self::NotAdopted { presented, incarnation } => {
                write!(
                    f,
                    "token {presented} is of incarnation {incarnation}, which this strict fence does not follow; adopt \
                     the incarnation, if the restore was intended"
                )
            }
            Self::Seal(error) => error.fmt(f),
            Self::NoSealKeys => f.write_str(
                "the fence is sealed and this process has no keys to verify tokens; export them (`leasehold keys export`) \
                 and give them to this process",
            ),
            Self::NotVerified => f.write_str(
                "the token was verified by another fence, or with keys that were replaced since; verify its text again",
            ),
            Self::Stamp => f.write_str(
                "the token has no valid stamp for this sealed database; present the sealed text with its stamp",
            ),
        }
    }
}

impl std::error::Error for FenceRefusal {}
