//! The admission rule of every fence: a token at or above the mark (the high-water mark) passes and becomes the mark; a
//! lower token is stale.
//!
//! **Check and effect are one step.** A fence that calls `admit` and writes afterwards leaves a gap. A zombie can pause in
//! that gap: it was admitted, a successor raises the mark and writes, and then the old write overwrites the new one. A target
//! therefore reads its mark, applies this rule, applies the write and stores the new mark in one transaction, script or
//! conditional write. The new mark is durable no later than the effect (F2).
//!
//! **A claim raises the mark before reading.** Until a higher token is presented, the mark is the predecessor's and the
//! predecessor's writes still pass. A successor that reads first can build on data that such a late write then changes. The
//! first operation of a new holder at every target is therefore a claim: its token is admitted with no other effect. No
//! predecessor can change what the holder reads afterwards.
//!
//! There is no trait for fences: their targets differ too much, and a common `check()` would invite check-then-act.

use crate::mutants::{self, Mutant};
use crate::token::{Incarnation, Number};

/// The highest token that a fence has admitted: its high-water mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The highest number.
    Armed(Number),
    /// No token was admitted yet, and the target *knows* that: it was just created, or armed as fresh.
    Fresh,
    /// There was a mark, or the target cannot know: it is unreadable, foreign, or lost by the target's own failover. This is
    /// never the same as fresh, because a zombie's token would pass (F7).
    Lost,
}

/// The decision of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Apply the write and store this mark, in one step.
    Admitted {
        /// The new mark.
        mark: Number,
    },
    /// Change nothing: a later holder was admitted. Report both numbers (F6).
    Stale {
        /// The presented number.
        presented: Number,
        /// The current mark.
        mark: Number,
    },
    /// Change nothing until the mark is re-armed from the grantor's floor.
    Lost,
}

/// Decides whether a write with this token may be applied. An equal number passes: it is the same lease (F1).
pub fn admit(mark: Mark, presented: Number) -> Verdict {
    match mark {
        Mark::Armed(mark) if presented.get() < mark.get() && !mutants::on(Mutant::LowerTokenAdmitted) => {
            Verdict::Stale { presented, mark }
        }
        Mark::Lost if mutants::on(Mutant::LostMarkIsFresh) => Verdict::Admitted { mark: presented },
        Mark::Armed(_) | Mark::Fresh => Verdict::Admitted { mark: presented },
        Mark::Lost => Verdict::Lost,
    }
}

/// The decision of a fence about a write that also carries a sequence number within its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequenced {
    /// Apply the write and store mark and sequence, in one step.
    Admitted {
        /// The new mark.
        mark: Number,
        /// The last sequence applied under it.
        last: u64,
    },
    /// Change nothing and reply as for the first write: this one is a duplicate.
    AlreadyApplied {
        /// The last sequence applied under this token.
        last: u64,
    },
    /// Change nothing: a later holder was admitted.
    Stale {
        /// The presented number.
        presented: Number,
        /// The current mark.
        mark: Number,
    },
    /// Change nothing until the mark is re-armed.
    Lost,
}

/// Like [`admit`], but a write is applied once even if it arrives twice. `last` is the last sequence applied under the
/// mark, `None` after a claim; a higher token starts a new sequence.
///
/// The holder numbers its writes in ascending order and waits for the reply to each one before it sends the next. Only then
/// does a sequence at or below `last` mean "applied" and not "overtaken". Numbers may be skipped.
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

/// Whether a fence follows the incarnation that issued a token. It is decided after the number has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is the followed incarnation, or the first one.
    Known,
    /// It is another incarnation, and the fence follows it: store it with the mark, and report it.
    Changed {
        /// The previous incarnation.
        from: Incarnation,
    },
    /// It is another incarnation, and the fence is strict: change nothing until an operator adopts it.
    NotAdopted,
}

/// Decides whether a token of this incarnation may pass a fence that follows `stored`. After a restore, numbers continue above
/// all earlier ones. But two restored copies that run at once both count upwards: only a strict fence stays with one (T5).
pub fn follow(stored: Option<Incarnation>, strict: bool, presented: Incarnation) -> Follow {
    match stored {
        Some(from) if from != presented && strict => Follow::NotAdopted,
        Some(from) if from != presented => Follow::Changed { from },
        Some(_) | None => Follow::Known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(number: u64) -> Number {
        Number::new(number).expect("tests use numbers from 1 to below 2^63")
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
    fn the_tokens_of_applied_writes_never_decrease() {
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
    fn after_a_claim_the_predecessor_cannot_write() {
        let (predecessor, successor) = (n(7), n(9));
        let Verdict::Admitted { mark } = admit(Mark::Armed(predecessor), successor) else { panic!("a claim passes") };
        assert_eq!(admit(Mark::Armed(mark), predecessor), Verdict::Stale { presented: predecessor, mark: successor });
        assert_eq!(
            admit_sequenced(Mark::Armed(mark), None, predecessor, 100),
            Sequenced::Stale { presented: predecessor, mark: successor }
        );
    }

    #[test]
    fn a_duplicate_write_under_one_token_is_applied_once() {
        let mark = Mark::Armed(n(7));
        assert_eq!(admit_sequenced(mark, None, n(7), 0), Sequenced::Admitted { mark: n(7), last: 0 });
        assert_eq!(admit_sequenced(mark, Some(0), n(7), 0), Sequenced::AlreadyApplied { last: 0 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 4), Sequenced::AlreadyApplied { last: 5 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 6), Sequenced::Admitted { mark: n(7), last: 6 });
        assert_eq!(admit_sequenced(mark, Some(5), n(7), 60), Sequenced::Admitted { mark: n(7), last: 60 });
        assert_eq!(admit_sequenced(mark, Some(u64::MAX), n(7), u64::MAX), Sequenced::AlreadyApplied { last: u64::MAX });
    }

    #[test]
    fn a_higher_token_starts_a_new_sequence() {
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
