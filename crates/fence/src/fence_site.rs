//! The fenced site of a target (cluster, resource, slot), and the token checks that all fences share.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::fence::{Follow, Sequenced, admit_sequenced, follow};
use leasehold_core::name::Name;
use leasehold_core::time::WallClock;
use leasehold_core::token::{Cluster, FenceKey, Incarnation, Number, Token, plausible};

use crate::mark_info::ApplyOnce;
use crate::{Error, FenceRefusal, Mark, MarkLoss, Verdict, admit};

/// What one fence guards: the tokens of one cluster, for one slot of one resource.
#[derive(Clone, Debug)]
pub(crate) struct FenceSite {
    /// Name of the resource.
    pub(crate) name: String,
    pub(crate) key: FenceKey,
}

impl FenceSite {
    pub(crate) fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { name: resource.as_str().to_owned(), key: FenceKey::new(cluster, resource, slot) }
    }

    /// The hash of the resource in hexadecimal, as in a token's text.
    pub(crate) fn resource_hash(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.key.resource))
    }

    /// Parses a token and makes all checks that need no mark: cluster, resource and slot (T6, F4), and plausibility (F5).
    pub(crate) fn parse_token(&self, text: &str) -> Result<PresentedToken, FenceRefusal> {
        self.parse_token_at(text, wall_clock())
    }

    /// Like [`FenceSite::parse_token`], with the given time for the plausibility check.
    pub(crate) fn parse_token_at(&self, text: &str, now: WallClock) -> Result<PresentedToken, FenceRefusal> {
        let token = Token::parse(text)?;
        let number = token.for_target(&self.key)?;
        if !plausible(number, now) {
            return Err(FenceRefusal::Implausible { presented: number });
        }
        Ok(PresentedToken { number, incarnation: token.incarnation })
    }
}

/// A plausible token for this site. It may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentedToken {
    pub(crate) number: Number,
    pub(crate) incarnation: Incarnation,
}

impl PresentedToken {
    /// Applies the shared rule. The caller holds the lock that makes the check one step with the write (F1). `loss` is
    /// reported if the mark is lost.
    pub(crate) fn check_mark(self, mark: Mark, loss: MarkLoss) -> Result<Number, Error> {
        match admit(mark, self.number) {
            Verdict::Admitted { mark } => Ok(mark),
            Verdict::Stale { presented, mark } => Err(FenceRefusal::Stale { presented, mark }.into()),
            Verdict::Lost => Err(FenceRefusal::MarkLost(loss).into()),
        }
    }

    /// Applies the whole rule, for a fence that stores incarnations and sequences: first the number, then the incarnation,
    /// then whether the write is a duplicate. The caller holds the same lock as the write.
    pub(crate) fn admit(self, stored: &StoredMark, sequence: Option<u64>) -> Result<(Admission, ApplyOnce), Error> {
        let number = self.check_mark(stored.mark, stored.loss)?;
        let previous_incarnation = match follow(stored.incarnation, stored.strict, self.incarnation) {
            Follow::Known => None,
            Follow::Changed { from } => Some(from),
            Follow::NotAdopted => {
                return Err(FenceRefusal::NotAdopted { presented: self.number, incarnation: self.incarnation }.into());
            }
        };
        let once =
            match sequence.map(|sequence| admit_sequenced(stored.mark, stored.last_sequence, self.number, sequence)) {
                Some(Sequenced::AlreadyApplied { last }) => ApplyOnce::AlreadyApplied { last },
                _ => ApplyOnce::Applied,
            };
        Ok((Admission { number, previous_incarnation }, once))
    }
}

/// The mark of one site as the rule needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredMark {
    pub(crate) mark: Mark,
    /// How the mark was lost. Meaningful only if `mark` is lost.
    pub(crate) loss: MarkLoss,
    /// The incarnation that set the mark, or that an operator adopted.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) strict: bool,
    /// The last sequence applied under the mark.
    pub(crate) last_sequence: Option<u64>,
}

/// A token was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) number: Number,
    /// The incarnation that the fence followed before, if this token is of another one.
    pub(crate) previous_incarnation: Option<Incarnation>,
}

/// The clock of this machine. A clock before 1970 makes every number implausible, so the fence rejects instead of guessing.
fn wall_clock() -> WallClock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallClock(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
