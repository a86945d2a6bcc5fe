//! Every way a fence says no: what was presented, what stands, and the next step.

use std::fmt;

use leasehold_core::token::{Incarnation, Number, TokenError};

/// A fence's no. Nothing was changed, neither the target nor the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not a token, or one for something else.
    Token(TokenError),
    /// A number that the target's clock does not believe; the mark stays (F5).
    Implausible {
        /// What was shown.
        presented: Number,
    },
    /// A later holder was here (F6).
    Stale {
        /// What was shown.
        presented: Number,
        /// What stands.
        mark: Number,
    },
    /// Nobody knows what was seen before (F7).
    Lost(Lost),
    /// What the fence keeps belongs to another cluster.
    ForeignMark,
    /// A strict fence follows another life of the cluster (T5).
    NotAdopted {
        /// What was shown.
        presented: Number,
        /// Of which incarnation.
        incarnation: Incarnation,
    },
}

/// How a mark was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// There is none, and nobody armed one.
    Missing,
    /// It stands there and makes no sense.
    Unreadable,
    /// The target is not the one that kept it: copied, restored or failed over.
    Moved,
    /// An operator said so.
    Declared,
}

impl Refusal {
    /// The stable code, as in the table of errors.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Token(error) => error.code(),
            Self::Implausible { .. } => "TOKEN_IMPLAUSIBLE",
            Self::Stale { .. } => "STALE_TOKEN",
            Self::Lost(_) => "STORAGE_FAILED",
            Self::ForeignMark => "WRONG_CLUSTER",
            Self::NotAdopted { .. } => "NOT_ADOPTED",
        }
    }

    /// The stable word beside the code.
    pub const fn why(&self) -> &'static str {
        match self {
            Self::Token(error) => error.why(),
            Self::Implausible { .. } => "implausible",
            Self::Stale { .. } => "stale",
            Self::Lost(Lost::Missing) => "missing",
            Self::Lost(Lost::Unreadable) => "unreadable",
            Self::Lost(Lost::Moved) => "moved",
            Self::Lost(Lost::Declared) => "lost",
            Self::ForeignMark => "cluster",
            Self::NotAdopted { .. } => "incarnation",
        }
    }

    /// The number that was shown, where one could be read.
    pub const fn presented(&self) -> Option<Number> {
        match *self {
            Self::Implausible { presented } | Self::Stale { presented, .. } | Self::NotAdopted { presented, .. } => {
                Some(presented)
            }
            Self::Token(_) | Self::Lost(_) | Self::ForeignMark => None,
        }
    }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(error) => error.fmt(f),
            Self::Implausible { presented } => write!(f, "{presented}: {}", TokenError::Implausible),
            Self::Stale { presented, mark } => {
                write!(f, "token {presented} is below the mark {mark}: a later holder was here; stop, this authority is over")
            }
            Self::Lost(how) => f.write_str(match how {
                Lost::Missing => "no mark is kept for this resource and slot; arm the fence, if nothing was written yet",
                Lost::Unreadable => "the mark cannot be read; re-arm the fence with a number no holder was given yet",
                Lost::Moved => {
                    "the target was copied, restored or failed over since its mark was kept; re-arm the fence with a number \
                     no holder was given yet"
                }
                Lost::Declared => "the mark was declared lost; re-arm the fence with a number no holder was given yet",
            }),
            Self::ForeignMark => {
                f.write_str("the mark kept here belongs to another cluster; use the target of this cluster")
            }
            Self::NotAdopted { presented, incarnation } => {
                write!(
                    f,
                    "token {presented} is of incarnation {incarnation}, which this strict fence does not follow; adopt it, \
                     if the restore was meant"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}
