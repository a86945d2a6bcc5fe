//! Results of a probe: how a target replied to a stale token, and to writes without any token.

use leasehold_core::token::{Cluster, Number};
use leasehold_fence::{FenceRefusal, MarkLoss, TokenError};

use super::fence_error;
use crate::output::CommandError;

/// What a probe established about one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    pub token: TokenProbe,
    pub write: WriteProbe,
}

/// Reply to a stale token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenProbe {
    /// The fence rejected it, as expected.
    Refused { presented: Number, mark: Number },
    /// The mark is lost: the fence rejects everything until it is re-armed.
    Lost,
    /// The fence admitted it: a zombie could write.
    Admitted,
    /// The target has no fence for this resource.
    Missing,
    /// The fence has not seen any token, so that no lower one exists.
    Fresh,
    /// The mark belongs to another cluster, if the target says to which.
    Foreign(Option<Cluster>),
}

/// Reply to writes without any token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteProbe {
    /// None was attempted: the target is not declared as forced, or has no fence.
    NotAttempted,
    /// Targets of this kind accept writes that bypass their fence.
    NeverRefused,
    /// All were refused, at these tables if the target is a database.
    Refused(Vec<String>),
    /// Some were not refused: the tables, with what was found there. Without tables, the fence protects none.
    NotRefused(Vec<TableFinding>),
}

/// A table that is not protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFinding {
    pub table: String,
    pub finding: String,
}

impl ProbeResult {
    /// A report about the fence alone.
    pub const fn token_only(token: TokenProbe) -> Self {
        Self { token, write: WriteProbe::NotAttempted }
    }

    /// Whether the fence rejects stale tokens.
    pub const fn refuses_stale(&self) -> bool {
        matches!(self.token, TokenProbe::Refused { .. } | TokenProbe::Lost)
    }

    /// The mode that the probe established, in the words of a charter; `None` if it could not tell.
    pub const fn established(&self) -> Option<&'static str> {
        match (&self.token, &self.write) {
            (TokenProbe::Refused { .. } | TokenProbe::Lost, WriteProbe::Refused(_)) => Some("forced"),
            (TokenProbe::Refused { .. } | TokenProbe::Lost, _) => Some("cooperative"),
            (TokenProbe::Admitted | TokenProbe::Missing, _) => Some("none"),
            (TokenProbe::Fresh | TokenProbe::Foreign(_), _) => None,
        }
    }
}

/// Converts a fence's reply to a stale token.
pub fn token_probe(reply: Result<Number, leasehold_fence::Error>) -> Result<TokenProbe, CommandError> {
    match reply {
        Ok(_) => Ok(TokenProbe::Admitted),
        Err(leasehold_fence::Error::Refused(refusal)) => match refusal {
            FenceRefusal::Stale { presented, mark } => Ok(TokenProbe::Refused { presented, mark }),
            FenceRefusal::MarkLost(MarkLoss::Missing) => Ok(TokenProbe::Missing),
            FenceRefusal::MarkLost(_) => Ok(TokenProbe::Lost),
            FenceRefusal::ForeignMark | FenceRefusal::Token(TokenError::WrongCluster) => Ok(TokenProbe::Foreign(None)),
            FenceRefusal::Token(TokenError::Resource | TokenError::Slot) => Ok(TokenProbe::Missing),
            other => Err(fence_error(&other.into())),
        },
        Err(error) => Err(fence_error(&error)),
    }
}
