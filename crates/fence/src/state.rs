//! What a target keeps of one place when it keeps it as a value: how it is raised, lost, armed again, told, and written.

use leasehold_core::token::{Incarnation, Number};

use crate::place::{Place, Shown, Standing};
use crate::{Error, Kept, Lost, Mark, Refusal};

/// One place's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// The highest number seen; kept also while the mark is lost, so that no floor below it is taken.
    pub(crate) seen: Option<Number>,
    /// How the mark was lost, if it was.
    pub(crate) lost: Option<Lost>,
    /// Whose token set the mark, or whom an operator adopted.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) strict: bool,
    /// The last sequence applied under the mark.
    pub(crate) last: Option<u64>,
}

impl State {
    /// Nobody was here, and the target knows that.
    pub(crate) const FRESH: Self = Self { seen: None, lost: None, incarnation: None, strict: false, last: None };

    pub(crate) fn standing(&self) -> Standing {
        let mark = match (self.lost, self.seen) {
            (Some(_), _) => Mark::Lost,
            (None, Some(seen)) => Mark::Armed(seen),
            (None, None) => Mark::Fresh,
        };
        let lost = self.lost.unwrap_or(Lost::Unreadable);
        Standing { mark, lost, incarnation: self.incarnation, strict: self.strict, last: self.last }
    }

    /// After this token was let in. A higher one begins its sequences anew; one without a sequence leaves the last.
    pub(crate) fn raise(&mut self, shown: Shown, sequence: Option<u64>) {
        if self.seen != Some(shown.number) {
            self.last = None;
        }
        self.seen = Some(shown.number);
        self.incarnation = Some(shown.incarnation);
        self.last = sequence.or(self.last);
    }

    /// An operator said that the mark is lost.
    pub(crate) fn declare_lost(&mut self) -> Result<(), Error> {
        self.lost = Some(Lost::Declared);
        Ok(())
    }

    /// From now on an incarnation that is not known is refused.
    pub(crate) fn make_strict(&mut self) -> Result<(), Error> {
        self.strict = true;
        Ok(())
    }

    /// An operator said whom to follow.
    pub(crate) fn adopt(&mut self, incarnation: Incarnation) -> Result<(), Error> {
        self.incarnation = Some(incarnation);
        Ok(())
    }

    /// Armed from a floor, whatever was lost. One below what was seen is refused.
    pub(crate) fn rearm(&mut self, floor: Number) -> Result<(), Error> {
        if self.seen.is_some_and(|seen| seen > floor) {
            return Err(Error::Conflict("the floor is below a number that was seen here; take a higher one"));
        }
        *self = Self { seen: Some(floor), lost: None, last: None, ..*self };
        Ok(())
    }

    /// The mark; a lost one is told as a refusal.
    pub(crate) fn mark(&self) -> Result<Option<Number>, Error> {
        self.lost.map_or(Ok(self.seen), |how| Err(Refusal::Lost(how).into()))
    }

    /// The same for a survey.
    pub(crate) fn kept(&self, place: &Place) -> Kept {
        Kept {
            cluster: place.guarded.cluster,
            resource: place.resource(),
            name: Some(place.name.clone()),
            slot: place.guarded.slot,
            mark: self.standing().mark,
            incarnation: self.incarnation,
            strict: self.strict,
        }
    }
}
