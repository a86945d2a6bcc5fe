//! Admission of a presented token: the rule that all fences apply under the lock of the write.

use leasehold_core::fence::{Follow, Sequenced, admit_sequenced, follow};
use leasehold_core::token::{Incarnation, Number};
use leasehold_seal::SealError;

use crate::{Error, FenceRefusal, Mark, MarkLoss, Verdict, admit};

/// A plausible token for one fence. It may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentedToken {
    pub(crate) number: Number,
    pub(crate) incarnation: Incarnation,
    pub(crate) seal: SealState,
}

/// What is known about the seal of a presented token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealState {
    /// It has none.
    Plain,
    /// It has one, and this fence has no keys.
    Unverified,
    /// A key of this fence signed it for the whole name of the resource.
    Verified,
}

impl PresentedToken {
    /// Refuses a token that was not verified, at a fence that is sealed: also in a process without keys (A8).
    pub(crate) fn check_seal(self, sealed: bool) -> Result<(), FenceRefusal> {
        match self.seal {
            SealState::Plain if sealed => Err(SealError::Unsealed.into()),
            SealState::Unverified if sealed => Err(FenceRefusal::NoSealKeys),
            _ => Ok(()),
        }
    }

    /// Applies the shared rule. The caller holds the lock that makes the check one step with the write (F1). `loss` is
    /// reported if the mark is lost.
    pub(crate) fn check_mark(self, mark: Mark, loss: MarkLoss) -> Result<Number, Error> {
        match admit(mark, self.number) {
            Verdict::Admitted { mark } => Ok(mark),
            Verdict::Stale { presented, mark } => Err(FenceRefusal::Stale { presented, mark }.into()),
            Verdict::Lost => Err(FenceRefusal::MarkLost(loss).into()),
        }
    }

    /// Applies the whole rule, for a fence that stores incarnations and sequences: first the seal, then the number, then the
    /// incarnation, then whether the write is a duplicate. The caller holds the same lock as the write.
    pub(crate) fn admit(self, stored: &StoredMark, sequence: Option<u64>) -> Result<(Admission, ApplyOnce), Error> {
        self.check_seal(stored.sealed)?;
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

/// The mark of one fence as the rule needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredMark {
    pub(crate) mark: Mark,
    /// How the mark was lost. Meaningful only if `mark` is lost.
    pub(crate) loss: MarkLoss,
    /// The incarnation that set the mark, or that an operator adopted.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) strict: bool,
    /// Only verified tokens are admitted.
    pub(crate) sealed: bool,
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

/// The result of a write that carries a sequence. A holder numbers its writes upward, so that each is applied once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOnce {
    /// The write was applied.
    Applied,
    /// The write is a duplicate: it was applied earlier, and changed nothing now.
    AlreadyApplied {
        /// The last sequence applied under this token.
        last: u64,
    },
}
