//! Gaps: ranges of token numbers that this journal never issued, because an opening raised the counter over them (T9).
//!
//! A token of this cluster and incarnation inside a gap was issued by batches that the journal lost. A gap reaches from the last number
//! before an opening to the first one granted after it. Lifts within a tenure leave no gap.

use std::collections::VecDeque;

use crate::codec::{DecodeError, Reader, Write};
use crate::limits;

/// The newest gaps, in ascending order. The oldest is forgotten first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberGaps {
    ranges: VecDeque<NumberGap>,
    /// Whether no number was issued since the last opening, so that the last gap still grows.
    growing: bool,
}

/// The numbers above `last` and up to `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberGap {
    last: u64,
    until: u64,
}

impl NumberGaps {
    /// An opening raised the counter from `last` to `until`. Openings that issue nothing extend one gap.
    pub fn open(&mut self, last: u64, until: u64) {
        match self.ranges.back_mut() {
            Some(gap) if self.growing => gap.until = until,
            _ => self.ranges.push_back(NumberGap { last, until }),
        }
        self.growing = true;
        if self.ranges.len() > limits::NUMBER_GAPS {
            self.ranges.pop_front();
        }
    }

    /// The first number since the opening is issued; every number up to `until` was not.
    #[inline]
    pub fn close(&mut self, until: u64) {
        if std::mem::take(&mut self.growing)
            && let Some(gap) = self.ranges.back_mut()
        {
            gap.until = until;
            if until <= gap.last {
                self.ranges.pop_back();
            }
        }
    }

    /// Whether this journal certainly never issued a number.
    pub fn contains(&self, number: u64) -> bool {
        let after = self.ranges.partition_point(|gap| gap.last < number);
        after.checked_sub(1).is_some_and(|at| number <= self.ranges[at].until)
    }

    /// Forgets all gaps: the numbers of another incarnation are not compared, and a detected rollback needs no second proof.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.flag(self.growing);
        out.num(self.ranges.len() as u64);
        for gap in &self.ranges {
            out.num(gap.last);
            out.num(gap.until - gap.last);
        }
    }

    pub fn decode(from: &mut Reader<'_>, counter: u64) -> Result<Self, DecodeError> {
        let mut gaps = Self { growing: from.flag()?, ranges: VecDeque::new() };
        let count = from.num()?;
        if count > limits::NUMBER_GAPS as u64 {
            return Err(from.wrong("too many gaps in the numbers"));
        }
        let mut end = 0;
        for _ in 0..count {
            let (last, length) = (from.num()?, from.num()?);
            let until = last.checked_add(length).filter(|until| *until <= counter && last >= end);
            end = until.ok_or_else(|| from.wrong("gaps that overlap or exceed the counter"))?;
            gaps.ranges.push_back(NumberGap { last, until: end });
        }
        Ok(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reaches_from_the_last_number_to_the_first_after_the_opening() {
        let mut gaps = NumberGaps::default();
        gaps.open(10, 20);
        assert!(!gaps.contains(10) && gaps.contains(11) && gaps.contains(20) && !gaps.contains(21));
        gaps.close(29);
        assert!(gaps.contains(29) && !gaps.contains(30));
        gaps.close(90);
        assert!(!gaps.contains(30), "numbers after the first were lifted in a tenure, not by an opening");
    }

    #[test]
    fn openings_without_a_number_between_extend_one_gap_and_an_empty_one_is_dropped() {
        let mut gaps = NumberGaps::default();
        gaps.open(10, 20);
        gaps.open(20, 40);
        assert_eq!(gaps.ranges.len(), 1);
        assert!(gaps.contains(11) && gaps.contains(20) && gaps.contains(40) && !gaps.contains(41));
        gaps.close(40);
        gaps.open(50, 50);
        gaps.close(50);
        assert_eq!(gaps.ranges.len(), 1, "no number was lifted over");
    }

    #[test]
    fn numbers_between_two_gaps_are_issued_ones_and_the_oldest_gap_is_forgotten_first() {
        let mut gaps = NumberGaps::default();
        for at in 0..=limits::NUMBER_GAPS as u64 {
            gaps.open(10 * at + 3, 10 * at + 8);
            gaps.close(10 * at + 8);
        }
        let last = 10 * limits::NUMBER_GAPS as u64;
        assert!(!gaps.contains(5), "the oldest was forgotten");
        assert!(gaps.contains(14) && gaps.contains(last + 8));
        for issued in [9, 13, 19, last + 3, last + 9, u64::MAX] {
            assert!(!gaps.contains(issued), "{issued}");
        }
    }

    #[test]
    fn gaps_decode_as_written_and_impossible_ones_are_refused() {
        let mut gaps = NumberGaps::default();
        gaps.open(10, 20);
        gaps.close(20);
        gaps.open(30, 44);
        let mut bytes = Vec::new();
        gaps.encode(&mut bytes);
        assert_eq!(NumberGaps::decode(&mut Reader::new(&bytes), 44), Ok(gaps));
        assert!(NumberGaps::decode(&mut Reader::new(&bytes), 43).is_err(), "a gap above the counter");
        for cut in 0..bytes.len() {
            assert!(NumberGaps::decode(&mut Reader::new(&bytes[..cut]), 44).is_err(), "cut at {cut}");
        }
        let mut overlapping = Vec::new();
        overlapping.flag(false);
        for number in [2, 10, 10, 19, 5] {
            overlapping.num(number);
        }
        assert!(NumberGaps::decode(&mut Reader::new(&overlapping), 99).is_err());
    }
}
