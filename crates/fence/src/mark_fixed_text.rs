//! Fixed-width text format of a mark, for targets that store text. It begins with the token that set the mark.
//!
//! | from | length | holds |
//! |---|---|---|
//! | 1 | 76 | the token, without its checksum; dashes for the incarnation and zeros for the number where there is none yet |
//! | 78 | 1 | `f` fresh, `a` armed, `l` lost |
//! | 80 | 1 | the sum of `1` strict and `2` sealed, or `0`; earlier releases cannot read a sealed mark |
//! | 82 | 40 | id of the server that stored it, hexadecimal |
//! | 123 | 20 | the last sequence applied under it, or dashes |
//! | 144 | | the resource's name |

use std::fmt;

use leasehold_core::token::{Cluster, Incarnation, Number};

use crate::admission::{PresentedToken, StoredMark};
use crate::error::OTHER_FENCE;
use crate::{Error, FenceId, FenceRefusal, Mark, MarkInfo, MarkLoss};

/// A parsed mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedMark {
    cluster: Cluster,
    incarnation: Option<Incarnation>,
    resource_hash: String,
    slot: u32,
    number: Option<Number>,
    lost: bool,
    strict: bool,
    sealed: bool,
    server_id: String,
    sequence: Option<u64>,
    name: String,
}

#[cfg_attr(not(any(feature = "etcd", feature = "nats")), expect(dead_code, reason = "Redis changes its marks itself"))]
impl FixedMark {
    /// The mark of a fence that admitted no token yet.
    pub(crate) fn fresh(id: &FenceId, server_id: &str) -> Self {
        Self {
            cluster: id.cluster(),
            incarnation: None,
            resource_hash: id.resource_hash(),
            slot: id.slot(),
            number: None,
            lost: false,
            strict: false,
            sealed: false,
            server_id: server_id.to_owned(),
            sequence: None,
            name: id.resource().to_owned(),
        }
    }

    /// The mark as the rule needs it. It is lost if it belongs to another fence or was stored by another server.
    pub(crate) fn stored_mark(&self, id: &FenceId, server_id: &str) -> Result<StoredMark, Error> {
        if self.cluster != id.cluster() {
            return Err(FenceRefusal::ForeignMark.into());
        }
        if self.resource_hash != id.resource_hash() || self.slot != id.slot() {
            return Err(Error::Conflict(OTHER_FENCE));
        }
        let (mark, loss) = if self.lost {
            (Mark::Lost, MarkLoss::Declared)
        } else if self.server_id != server_id {
            (Mark::Lost, MarkLoss::Moved)
        } else {
            (self.number.map_or(Mark::Fresh, Mark::Armed), MarkLoss::Unreadable)
        };
        let Self { incarnation, strict, sealed, sequence: last_sequence, .. } = *self;
        Ok(StoredMark { mark, loss, incarnation, strict, sealed, last_sequence })
    }

    /// Whether this server stored it.
    pub(crate) fn is_from_server(&self, server_id: &str) -> bool {
        self.server_id == server_id
    }

    /// The mark after this token was admitted, with the sequence of the write if it has one.
    pub(crate) fn raised(&self, presented: PresentedToken, sequence: Option<u64>) -> Self {
        let last = self.sequence.filter(|_| self.number == Some(presented.number));
        Self {
            number: Some(presented.number),
            incarnation: Some(presented.incarnation),
            sequence: sequence.or(last),
            ..self.clone()
        }
    }

    /// The mark re-armed from a floor, on this server.
    pub(crate) fn rearmed(&self, floor: Number, server_id: &str) -> Result<Self, Error> {
        if self.number.is_some_and(|number| number > floor) {
            return Err(Error::Conflict("the floor is below the mark; use a higher one"));
        }
        let server_id = server_id.to_owned();
        Ok(Self { number: Some(floor), lost: false, sequence: None, server_id, ..self.clone() })
    }

    pub(crate) fn declared_lost(&self) -> Self {
        Self { lost: true, ..self.clone() }
    }

    pub(crate) fn with_strict(&self, strict: bool) -> Self {
        Self { strict, ..self.clone() }
    }

    /// The mark sealed, permanently.
    pub(crate) fn sealed(&self) -> Self {
        Self { sealed: true, ..self.clone() }
    }

    pub(crate) fn adopted(&self, incarnation: Incarnation) -> Self {
        Self { incarnation: Some(incarnation), ..self.clone() }
    }

    /// Incarnation and number of the token that set it.
    pub(crate) const fn set_by(&self) -> Option<(Incarnation, Number)> {
        match (self.incarnation, self.number) {
            (Some(incarnation), Some(number)) => Some((incarnation, number)),
            _ => None,
        }
    }
}

impl FixedMark {
    /// Parses a mark; `None` if this code did not write it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let field = |from: usize, length: usize| text.get(from - 1..from - 1 + length);
        let digits = |from: usize, length: usize| {
            field(from, length).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?.parse::<u64>().ok()
        };
        let incarnation = match field(22, 8)? {
            "--------" => None,
            presented => Some(presented.parse().ok()?),
        };
        let sequence = if field(123, 20)? == "-".repeat(20) { None } else { Some(digits(123, 20)?) };
        let number = digits(58, 19)?;
        let mark = Self {
            cluster: field(5, 16)?.parse().ok()?,
            incarnation,
            resource_hash: field(31, 16)?.to_owned(),
            slot: u32::from_str_radix(field(49, 8)?, 16).ok()?,
            number: Number::new(number),
            lost: field(78, 1)? == "l",
            strict: matches!(field(80, 1)?, "1" | "3"),
            sealed: matches!(field(80, 1)?, "2" | "3"),
            server_id: field(82, 40)?.to_owned(),
            sequence,
            name: text.get(143..)?.to_owned(),
        };
        // There is one spelling only: a text that formats differently was not written by a fence.
        (mark.to_string() == text).then_some(mark)
    }

    /// `same_server`: whether the server that stored the mark is the one that was queried. Otherwise the mark is lost.
    pub(crate) fn info(&self, same_server: bool) -> MarkInfo {
        let mark = match self.number {
            _ if self.lost || !same_server => Mark::Lost,
            Some(number) => Mark::Armed(number),
            None => Mark::Fresh,
        };
        MarkInfo {
            cluster: self.cluster,
            resource_hash: self.resource_hash.clone(),
            name: Some(self.name.clone()),
            slot: self.slot,
            mark,
            incarnation: self.incarnation,
            strict: self.strict,
            sealed: self.sealed,
        }
    }

    /// The mark. A lost mark is a refusal.
    pub(crate) fn mark(&self, same_server: bool) -> Result<Option<Number>, Error> {
        match (self.lost, same_server) {
            (true, _) => Err(FenceRefusal::MarkLost(MarkLoss::Declared).into()),
            (_, false) => Err(FenceRefusal::MarkLost(MarkLoss::Moved).into()),
            (false, true) => Ok(self.number),
        }
    }
}

impl fmt::Display for FixedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, resource_hash, slot, server_id, name, .. } = self;
        let incarnation = self.incarnation.map_or_else(|| "-".repeat(8), |incarnation| incarnation.to_string());
        let number = self.number.map_or(0, Number::get);
        let state = match self.number {
            _ if self.lost => 'l',
            Some(_) => 'a',
            None => 'f',
        };
        let flags = u8::from(self.strict) + 2 * u8::from(self.sealed);
        let sequence = self.sequence.map_or_else(|| "-".repeat(20), |last| format!("{last:020}"));
        write!(
            f,
            "lh1-{cluster}-{incarnation}-{resource_hash}-w{slot:08x}-{number:019} {state} {flags} {server_id} {sequence} {name}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::SealState;

    #[test]
    fn a_formatted_mark_parses_to_itself_and_no_other_text_parses() {
        let id = FenceId::new(Cluster(*b"testing!"), "jobs/settle").expect("a name").with_slot(3);
        let fresh = FixedMark::fresh(&id, &"0".repeat(40));
        let (number, incarnation) = (Number::MAX, Incarnation(7));
        let presented = PresentedToken { number, incarnation, seal: SealState::Plain };
        let all = [
            fresh.clone(),
            fresh.raised(presented, None),
            fresh.raised(presented, Some(u64::MAX)).with_strict(true),
            fresh.declared_lost(),
            fresh.sealed(),
            fresh.sealed().with_strict(true).with_strict(false),
            fresh.with_strict(true).sealed(),
            fresh.adopted(Incarnation(9)).rearmed(Number::FIRST, &"f".repeat(40)).expect("above the mark"),
        ];
        for mark in all {
            let text = mark.to_string();
            assert_eq!(FixedMark::parse(&text).as_ref(), Some(&mark), "{text}");
            for cut in 0..text.len() - mark.name.len() {
                assert_eq!(FixedMark::parse(&text[..cut]), None, "{text}");
            }
            assert_eq!(FixedMark::parse(&text.to_uppercase()), None);
        }
    }
}
