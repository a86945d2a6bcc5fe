//! A mark as a value that a target stores as a whole: raised, lost, re-armed, adopted.

use leasehold_core::token::{Incarnation, Number};

use crate::admission::{PresentedToken, StoredMark};
use crate::{Error, FenceId, FenceRefusal, Mark, MarkInfo, MarkLoss};

/// The stored state of one fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkState {
    /// The highest number admitted. It is kept while the mark is lost, so that no lower floor is accepted.
    pub(crate) highest: Option<Number>,
    /// How the mark was lost; `None` if it is not.
    pub(crate) loss: Option<MarkLoss>,
    /// The incarnation that set the mark, or that an operator adopted.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) strict: bool,
    /// Only verified tokens are admitted. Once set, it stays set (A8).
    pub(crate) sealed: bool,
    /// The last sequence applied under the mark.
    pub(crate) last_sequence: Option<u64>,
}

impl MarkState {
    /// No token was admitted yet, and the target knows that.
    pub(crate) const FRESH: Self =
        Self { highest: None, loss: None, incarnation: None, strict: false, sealed: false, last_sequence: None };

    pub(crate) fn stored_mark(&self) -> StoredMark {
        let mark = match (self.loss, self.highest) {
            (Some(_), _) => Mark::Lost,
            (None, Some(highest)) => Mark::Armed(highest),
            (None, None) => Mark::Fresh,
        };
        let loss = self.loss.unwrap_or(MarkLoss::Unreadable);
        let Self { incarnation, strict, sealed, last_sequence, .. } = *self;
        StoredMark { mark, loss, incarnation, strict, sealed, last_sequence }
    }

    /// Raises the mark to an admitted token. A higher token starts its own sequences; a write without a sequence keeps the
    /// last one.
    pub(crate) fn raise(&mut self, presented: PresentedToken, sequence: Option<u64>) {
        if self.highest != Some(presented.number) {
            self.last_sequence = None;
        }
        self.highest = Some(presented.number);
        self.incarnation = Some(presented.incarnation);
        self.last_sequence = sequence.or(self.last_sequence);
    }

    pub(crate) fn declare_lost(&mut self) -> Result<(), Error> {
        self.loss = Some(MarkLoss::Declared);
        Ok(())
    }

    pub(crate) fn set_strict(&mut self, enabled: bool) -> Result<(), Error> {
        self.strict = enabled;
        Ok(())
    }

    pub(crate) fn seal(&mut self) -> Result<(), Error> {
        self.sealed = true;
        Ok(())
    }

    pub(crate) fn adopt(&mut self, incarnation: Incarnation) -> Result<(), Error> {
        self.incarnation = Some(incarnation);
        Ok(())
    }

    /// Sets the mark to `floor`, whether it was lost or not. A floor below an admitted number is an error.
    pub(crate) fn rearm(&mut self, floor: Number) -> Result<(), Error> {
        if self.highest.is_some_and(|highest| highest > floor) {
            return Err(Error::Conflict("the floor is below the mark; use a higher one"));
        }
        *self = Self { highest: Some(floor), loss: None, last_sequence: None, ..*self };
        Ok(())
    }

    /// The mark. A lost mark is a refusal.
    pub(crate) fn mark(&self) -> Result<Option<Number>, Error> {
        self.loss.map_or(Ok(self.highest), |loss| Err(FenceRefusal::MarkLost(loss).into()))
    }

    #[cfg_attr(not(feature = "cell"), allow(dead_code, reason = "other targets build it from what they store"))]
    pub(crate) fn info(&self, id: &FenceId) -> MarkInfo {
        let mark = self.stored_mark().mark;
        MarkInfo { incarnation: self.incarnation, strict: self.strict, sealed: self.sealed, ..MarkInfo::new(id, mark) }
    }
}
