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
    /// The fence is sealed and rejected it before it compared its number, because the probe cannot seal a token.
    Sealed,
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
    /// What was found at each table, or at each path of a service. If both are empty, the fence protects nothing.
    Attempted {
        /// Those that refused every write.
        refused: Vec<String>,
        /// The others, with what was found there.
        findings: Vec<TableFinding>,
    },
}

impl WriteProbe {
    /// Whether every write was refused, and any was attempted.
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Attempted { refused, findings } if !refused.is_empty() && findings.is_empty())
    }

    /// Combines the probes of two slots. A table is protected by one slot, so that a finding of the other one does not count.
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Attempted { mut refused, mut findings },
                Self::Attempted { refused: more_refused, findings: more_findings },
            ) => {
                refused.extend(more_refused);
                findings.extend(more_findings);
                findings.retain(|at| !refused.iter().any(|table| is_same_table(table, &at.table)));
                findings.dedup();
                Self::Attempted { refused, findings }
            }
            (Self::NotAttempted, other) => other,
            (probe, _) => probe,
        }
    }
}

/// Whether two names mean one table, with or without the default schema.
fn is_same_table(one: &str, other: &str) -> bool {
    one.strip_prefix("public.").unwrap_or(one) == other.strip_prefix("public.").unwrap_or(other)
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
        matches!(self.token, TokenProbe::Refused { .. } | TokenProbe::Sealed | TokenProbe::Lost)
    }

    /// The mode that the probe established, in the words of a charter; `None` if it could not tell.
    pub const fn established(&self) -> Option<&'static str> {
        match self.token {
            TokenProbe::Refused { .. } | TokenProbe::Sealed | TokenProbe::Lost if self.write.is_refused() => {
                Some("forced")
            }
            TokenProbe::Refused { .. } | TokenProbe::Sealed | TokenProbe::Lost => Some("cooperative"),
            TokenProbe::Admitted | TokenProbe::Missing => Some("none"),
            TokenProbe::Fresh | TokenProbe::Foreign(_) => None,
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
            FenceRefusal::Seal(_) | FenceRefusal::NoSealKeys | FenceRefusal::Stamp => Ok(TokenProbe::Sealed),
            other => Err(fence_error(&other.into())),
        },
        Err(error) => Err(fence_error(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempted(refused: &[&str], findings: &[&str]) -> WriteProbe {
        let refused = refused.iter().map(|&table| table.to_owned()).collect();
        let finding = |table: &&str| TableFinding { table: (*table).to_owned(), finding: "of another slot".to_owned() };
        WriteProbe::Attempted { refused, findings: findings.iter().map(finding).collect() }
    }

    #[test]
    fn a_table_needs_the_protection_of_one_slot_only() {
        let both = attempted(&["part0"], &["public.part1"]).merge(attempted(&["part1"], &["part0"]));
        assert!(both.is_refused(), "{both:?}");
        let open = attempted(&["part0"], &["part1", "part2"]).merge(attempted(&["part1"], &["part0", "part2"]));
        assert_eq!(open, attempted(&["part0", "part1"], &["part2"]));
        assert!(!open.is_refused() && !attempted(&[], &[]).is_refused(), "nothing is protected");
        assert_eq!(WriteProbe::NotAttempted.merge(WriteProbe::NeverRefused), WriteProbe::NeverRefused);
    }
}
