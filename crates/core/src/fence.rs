//! The rule that every fence shares: a token at or above the mark passes and becomes the mark, a lower one is stale.
//!
//! **Check and effect are one step.** A fence that asks `admit` and then writes leaves a gap, and the zombie it is to
//! stop sleeps in that gap: it was admitted, a successor raised the mark and wrote, and the old write lands on top. So
//! a target reads its mark, asks this rule, applies the write and keeps the new mark inside one transaction, script or
//! conditional write, and the new mark is durable no later than the effect (F2).
//!
//! **A claim raises the mark before reading.** Until somebody shows a higher token the mark is the predecessor's, and
//! the predecessor's writes still pass. A successor that reads first builds on what such a late write then changes. So
//! the first act of a new holder at every target is to have its token admitted with no other effect; what it reads
//! after that, no predecessor changes any more.
//!
//! There is no trait for fences: their targets differ too much, and a common `check()` would invite check-then-act.

use crate::mutants::{self, Mutant};
use crate::token::{Incarnation, Number};

/// The highest token a fence has seen for what it guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// This one.
    Armed(Number),
    /// None yet, and the target *knows* that: it was made just now, or armed as fresh.
    Fresh,
    /// There was one, or nobody can tell: unreadable, foreign, or left behind by the target's own failover. Never the
    /// same as fresh, because a zombie's token would pass (F7).
    Lost,
}

/// A fence's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Apply the write and keep this mark, in one step.
    Admitted {
        /// The new mark.
        mark: Number,
    },
    /// Change nothing: a later holder was here. Report both numbers (F6).
    Stale {
        /// What was shown.
        presented: Number,
        /// What stands.
        mark: Number,
    },
    /// Change nothing until the mark is armed again from the grantor's floor.
    Lost,
}

/// May a write that shows this token be applied? Equal passes: it is the same hold, retrying or going on (F1).
pub fn admit(mark: Mark, presented: Number) -> Verdict {
    match mark {
        Mark::Armed(mark) if presented.get() < mark.get() && !mutants::on(Mutant::LowerAdmitted) => {
            Verdict::Stale { presented, mark }
        }
        Mark::Lost if mutants::on(Mutant::LostMarkIsFresh) => Verdict::Admitted { mark: presented },
        Mark::Armed(_) | Mark::Fresh => Verdict::Admitted { mark: presented },
        Mark::Lost => Verdict::Lost,
    }
}

/// A fence's answer to a write that also carries its sequence inside the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// Apply the write and keep mark and sequence, in one step.
    Admitted {
        /// The new mark.
        mark: Number,
        /// The last sequence applied under it.
        last: u64,
    },
    /// Change nothing and answer as the first time: this write is a late duplicate.
    AlreadyApplied {
        /// The last sequence applied under this token.
        last: u64,
    },
    /// Change nothing: a later holder was here.
    Stale {
        /// What was shown.
        presented: Number,
        /// What stands.
        mark: Number,
    },
    /// Change nothing until the mark is armed again.
    Lost,
}

/// Like [`admit`], and a write is applied once even if it arrives twice. `last` is the last sequence applied under the
/// mark, `None` after a claim; a higher token begins anew.
///
/// The holder numbers its writes upwards and has each one answered before it sends the next: only then does a sequence
/// at or below `last` mean "applied" and not "overtaken". Numbers may be left out.
pub fn admit_sequenced(mark: Mark, last: Option<u64>, presented: Number, sequence: u64) -> Sequenced {
    match (admit(mark, presented), mark, last) {
        (Verdict::Stale { presented, mark }, _, _) => Sequenced::Stale { presented, mark },
        (Verdict::Lost, _, _) => Sequenced::Lost,
        (Verdict::Admitted { .. }, Mark::Armed(mark), Some(last))
            if presented.get() == mark.get() && sequence <= last =>
        {
            Sequenced::AlreadyApplied { last }
        }
        (Verdict::Admitted { mark }, _, _) => Sequenced::Admitted { mark, last: sequence },
    }
}

/// Whether a fence knows the life of the cluster that issued a token, after the number has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is the one it follows, or the first it sees.
    Known,
    /// Another one, and the fence goes along: keep it beside the mark, and report it.
    Changed {
        /// The one it followed.
        from: Incarnation,
    },
    /// Another one, and the fence is strict: change nothing until an operator adopts it.
    NotAdopted,
}

/// May a token of this incarnation pass a fence that follows `kept`? After a restore numbers go on above all earlier ones,
/// but two restored copies that are alive at once both count upwards: only a strict fence stays with one of them (T5).
pub fn follow(kept: Option<Incarnation>, strict: bool, shown: Incarnation) -> Follow {
    match kept {
        Some(from) if from != shown && strict => Follow::NotAdopted,
        Some(from) if from != shown => Follow::Changed { from },
        Some(_) | None => Follow::Known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(number: u64) -> Number {
        Number::new(number).expect("tests show numbers from 1 to below 2^63")
    }

    const INTERESTING: [u64; 6] = [1, 2, 3, 1 << 22, (1 << 63) - 2, (1 << 63) - 1];

    #[test]
    fn a_lower_token_is_stale_and_an_equal_or_higher_one_becomes_the_mark() {
        for mark in INTERESTING.map(n) {
            for presented in INTERESTING.map(n) {
                let expected = if presented < mark {
                    Verdict::Stale { presented, mark }
                } else {
                    Verdict::Admitted { mark: presented }
                };
                assert_eq!(admit(Mark::Armed(mark), presented), expected);
            }
        }
    }

    #[test]
    fn a_fresh_fence_admits_any_token_and_a_lost_mark_refuses_every_token() {
        for presented in INTERESTING.map(n) {
            assert_eq!(admit(Mark::Fresh, presented), Verdict::Admitted { mark: presented });
            assert_eq!(admit(Mark::Lost, presented), Verdict::Lost);
            assert_eq!(admit_sequenced(Mark::Lost, Some(1), presented, 2), Sequenced::Lost);
        }
    }

    #[test]
    fn over_any_three_writes_the_tokens_of_the_applied_ones_never_fall() {
        for a in INTERESTING {
            for b in INTERESTING {
                for c in INTERESTING {
                    let mut mark = Mark::Fresh;
                    let mut applied = Vec::new();
                    for presented in [a, b, c].map(n) {
                        if let Verdict::Admitted { mark: new } = admit(mark, presented) {
                            mark = Mark::Armed(new);
                            applied.push(presented);
                        }
                    }
                    assert!(applied.is_sorted(), "{applied:?}");
                    assert_eq!(applied.last().copied().map(Mark::Armed), Some(mark));
                }
            }
        }
    }

    #[test]
    fn once_a_successor_claimed_its_predecessor_writes_nothing_more() {
        let (predecessor, successor) = (n(7), n(9));
        let Verdict::Admitted { mark } = admit(Mark::Armed(predecessor), successor) else { panic!("a claim passes") };
        assert_eq!(admit(Mark::Armed(mark), predecessor), Verdict::Stale { presented: predecessor, mark: successor });
        assert_eq!(
            admit_sequenced(Mark::Armed(mark), None, predecessor, 100),
            Sequenced::Stale { presented: predecessor, mark: successor }
        );
    }

    #[test]
    fn a_write_that_arrives_twice_in_one_hold_is_applied_once() {
        let mark = Mark::Armed(n(7));
        assert_eq!(admit_sequenced(mark, None, n(7), 0), Sequenced::Admitted { mark: n(7), last: 0 });
        assert_eq!(admit_sequenced(mark, Some(0), n(7), 0), Sequenced::AlreadyApplied { last: 0 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 4), Sequenced::AlreadyApplied { last: 5 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 6), Sequenced::Admitted { mark: n(7), last: 6 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 60), Sequenced::Admitted { mark: n(7), last: 60 });
        assert_eq!(admit_sequenced(mark, Some(u64::MAX), n(7), u64::MAX), Sequenced::AlreadyApplied { last: u64::MAX });
    }

    #[test]
    fn a_higher_token_begins_its_sequences_anew() {
        let mark = Mark::Armed(n(7));
        assert_eq!(admit_sequenced(mark, Some(500), n(8), 0), Sequenced::Admitted { mark: n(8), last: 0 });
        assert_eq!(admit_sequenced(Mark::Fresh, Some(500), n(8), 0), Sequenced::Admitted { mark: n(8), last: 0 });
    }

    #[test]
    fn another_incarnation_is_reported_and_a_strict_fence_refuses_it_until_it_is_adopted() {
        let (old, new) = (Incarnation(1), Incarnation(2));
        for strict in [false, true] {
            assert_eq!(follow(None, strict, new), Follow::Known);
            assert_eq!(follow(Some(new), strict, new), Follow::Known);
        }
        assert_eq!(follow(Some(old), false, new), Follow::Changed { from: old });
        assert_eq!(follow(Some(old), true, new), Follow::NotAdopted);
    }
}
