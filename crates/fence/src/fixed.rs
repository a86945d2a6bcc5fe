//! One mark as a text with fixed places, for targets that keep texts. It begins with the token that set it.
//!
//! | from | length | holds |
//! |---|---|---|
//! | 1 | 76 | the token, without its checksum; dashes for the incarnation and zeros for the number where there is none yet |
//! | 78 | 1 | `f` fresh, `a` armed, `l` lost |
//! | 80 | 1 | `1` strict, `0` not |
//! | 82 | 40 | home: which server kept it, hexadecimal |
//! | 123 | 20 | the last sequence applied under it, or dashes |
//! | 144 | | the resource's name |

use std::fmt;

use leasehold_core::token::{Cluster, Incarnation, Number};

use crate::place::{Place, Shown, Standing};
use crate::{Error, Kept, Lost, Mark, Refusal};

/// What stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkText {
    cluster: Cluster,
    incarnation: Option<Incarnation>,
    resource: String,
    slot: u32,
    number: Option<Number>,
    lost: bool,
    strict: bool,
    home: String,
    sequence: Option<u64>,
    name: String,
}

#[cfg_attr(not(any(feature = "etcd", feature = "nats")), expect(dead_code, reason = "Redis changes its marks itself"))]
impl MarkText {
    /// A place where nothing was written yet.
    pub(crate) fn fresh(place: &Place, home: &str) -> Self {
        Self {
            cluster: place.guarded.cluster,
            incarnation: None,
            resource: place.resource(),
            slot: place.guarded.slot,
            number: None,
            lost: false,
            strict: false,
            home: home.to_owned(),
            sequence: None,
            name: place.name.clone(),
        }
    }

    /// What the rule needs to know, if this is the mark of this place and was kept at this home.
    pub(crate) fn standing(&self, place: &Place, home: &str) -> Result<Standing, Error> {
        if self.cluster != place.guarded.cluster {
            return Err(Refusal::ForeignMark.into());
        }
        let (mark, lost) = if self.resource != place.resource() || self.slot != place.guarded.slot {
            (Mark::Lost, Lost::Unreadable)
        } else if self.lost {
            (Mark::Lost, Lost::Declared)
        } else if self.home != home {
            (Mark::Lost, Lost::Moved)
        } else {
            (self.number.map_or(Mark::Fresh, Mark::Armed), Lost::Unreadable)
        };
        Ok(Standing { mark, lost, incarnation: self.incarnation, strict: self.strict, last: self.sequence })
    }

    /// Whether it was kept here.
    pub(crate) fn is_at(&self, home: &str) -> bool {
        self.home == home
    }

    /// The mark after this token was let in, with its sequence if the write has one.
    pub(crate) fn raised(&self, shown: Shown, sequence: Option<u64>) -> Self {
        let last = self.sequence.filter(|_| self.number == Some(shown.number));
        Self {
            number: Some(shown.number),
            incarnation: Some(shown.incarnation),
            sequence: sequence.or(last),
            ..self.clone()
        }
    }

    /// Armed from a floor, here.
    pub(crate) fn rearmed(&self, floor: Number, home: &str) -> Result<Self, Error> {
        if self.number.is_some_and(|number| number > floor) {
            return Err(Error::Conflict("the floor is below a number that was seen here; take a higher one"));
        }
        let home = home.to_owned();
        Ok(Self { number: Some(floor), lost: false, sequence: None, home, ..self.clone() })
    }

    pub(crate) fn lost(&self) -> Self {
        Self { lost: true, ..self.clone() }
    }

    pub(crate) fn strict(&self, strict: bool) -> Self {
        Self { strict, ..self.clone() }
    }

    pub(crate) fn adopted(&self, incarnation: Incarnation) -> Self {
        Self { incarnation: Some(incarnation), ..self.clone() }
    }

    /// The token that set it, in all its parts.
    pub(crate) const fn set_by(&self) -> Option<(Incarnation, Number)> {
        match (self.incarnation, self.number) {
            (Some(incarnation), Some(number)) => Some((incarnation, number)),
            _ => None,
        }
    }
}

impl MarkText {
    /// Reads the text. What was not written as one is no mark.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let field = |from: usize, length: usize| text.get(from - 1..from - 1 + length);
        let digits = |from: usize, length: usize| {
            field(from, length).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?.parse::<u64>().ok()
        };
        let incarnation = match field(22, 8)? {
            "--------" => None,
            shown => Some(shown.parse().ok()?),
        };
        let sequence = if field(123, 20)? == "-".repeat(20) { None } else { Some(digits(123, 20)?) };
        let number = digits(58, 19)?;
        let mark = Self {
            cluster: field(5, 16)?.parse().ok()?,
            incarnation,
            resource: field(31, 16)?.to_owned(),
            slot: u32::from_str_radix(field(49, 8)?, 16).ok()?,
            number: Number::new(number),
            lost: field(78, 1)? == "l",
            strict: field(80, 1)? == "1",
            home: field(82, 40)?.to_owned(),
            sequence,
            name: text.get(143..)?.to_owned(),
        };
        // One spelling only: what reads back differently was not written by a fence.
        (mark.to_string() == text).then_some(mark)
    }

    /// What a survey tells of it. `here`: whether the server that kept it is the one that was asked.
    pub(crate) fn kept(&self, here: bool) -> Kept {
        let mark = match self.number {
            _ if self.lost || !here => Mark::Lost,
            Some(number) => Mark::Armed(number),
            None => Mark::Fresh,
        };
        Kept {
            cluster: self.cluster,
            resource: self.resource.clone(),
            name: Some(self.name.clone()),
            slot: self.slot,
            mark,
            incarnation: self.incarnation,
            strict: self.strict,
        }
    }

    /// The mark, for one who reads it; what is lost is a refusal.
    pub(crate) fn mark(&self, here: bool) -> Result<Option<Number>, Error> {
        match (self.lost, here) {
            (true, _) => Err(Refusal::Lost(Lost::Declared).into()),
            (_, false) => Err(Refusal::Lost(Lost::Moved).into()),
            (false, true) => Ok(self.number),
        }
    }
}

impl fmt::Display for MarkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, resource, slot, home, name, .. } = self;
        let incarnation = self.incarnation.map_or_else(|| "-".repeat(8), |incarnation| incarnation.to_string());
        let number = self.number.map_or(0, Number::get);
        let state = match self.number {
            _ if self.lost => 'l',
            Some(_) => 'a',
            None => 'f',
        };
        let strict = u8::from(self.strict);
        let sequence = self.sequence.map_or_else(|| "-".repeat(20), |last| format!("{last:020}"));
        write!(
            f,
            "lh1-{cluster}-{incarnation}-{resource}-w{slot:08x}-{number:019} {state} {strict} {home} {sequence} {name}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::name::Name;

    #[test]
    fn a_mark_reads_back_as_it_was_written_and_nothing_else_reads_as_one() {
        let place = Place::new(Cluster(*b"testing!"), Name::parse("jobs/settle").expect("a name"), 3);
        let fresh = MarkText::fresh(&place, &"0".repeat(40));
        let shown = Shown { number: Number::MAX, incarnation: Incarnation(7) };
        let all = [
            fresh.clone(),
            fresh.raised(shown, None),
            fresh.raised(shown, Some(u64::MAX)).strict(true),
            fresh.lost(),
            fresh.adopted(Incarnation(9)).rearmed(Number::FIRST, &"f".repeat(40)).expect("above nothing"),
        ];
        for mark in all {
            let text = mark.to_string();
            assert_eq!(MarkText::parse(&text).as_ref(), Some(&mark), "{text}");
            for cut in 0..text.len() - mark.name.len() {
                assert_eq!(MarkText::parse(&text[..cut]), None, "{text}");
            }
            assert_eq!(MarkText::parse(&text.to_uppercase()), None);
        }
    }
}
