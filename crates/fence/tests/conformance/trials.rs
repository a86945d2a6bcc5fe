//! Right and wrong fences before the suite.

use leasehold_fence::conformance::{
    BOUNDED, DURABLE, LOST, MISSING, MISTAKES, RACE, RISING, SEQUENCES, STALE, STRICT, SURVEY, TOLD, check, crashes,
    race,
};

use crate::shelf::{Fault, Shelf};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_fence_holds_every_obligation() {
    let right = Shelf::with(Fault::None);
    for right in [&right, &Shelf::evicting()] {
        let held = check(right).await.unwrap_or_else(|violation| panic!("{violation}"));
        let all = [RISING, STALE, TOLD, MISTAKES, MISSING, LOST, SURVEY, STRICT, DURABLE, SEQUENCES, BOUNDED, RACE];
        assert_eq!(held, all);
    }
    let raced = race(&right, 8, 10_000, 3).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((raced.operations, raced.undecided), (10_000, 0));
    assert_eq!(raced.claimed + raced.applied + raced.refused, 10_000);
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    assert!(crashes(&right, 3, 1).await.unwrap_or_else(|violation| panic!("{violation}")) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_wrong_fence_is_caught_by_the_promise_it_breaks() {
    for (fault, broken) in [
        (Fault::Unfenced, RISING),
        (Fault::LowerAdmitted, STALE),
        (Fault::EqualRefused, RISING),
        (Fault::ClaimRaisesNothing, RISING),
        (Fault::WriteRaisesNothing, RISING),
        (Fault::RefusalNamesTheWrongMark, TOLD),
        (Fault::AnyResource, MISTAKES),
        (Fault::AnyCluster, MISTAKES),
        (Fault::Implausible, MISTAKES),
        (Fault::AbsentPasses, MISTAKES),
        (Fault::MissingIsFresh, MISSING),
        (Fault::LostIsFresh, LOST),
        (Fault::FloorBelowTheMark, LOST),
        (Fault::MarkForgottenInACrash, DURABLE),
        (Fault::EffectForgottenInACrash, DURABLE),
        (Fault::DuplicatesApplied, SEQUENCES),
        (Fault::SequencesForgottenInACrash, SEQUENCES),
        (Fault::StrictFollowsAnybody, STRICT),
        (Fault::SurveyTellsNothing, SURVEY),
        (Fault::ClaimWaitsForEver, BOUNDED),
        (Fault::ClaimPassesWhoIsInside, BOUNDED),
        (Fault::BlockedNamesNobody, BOUNDED),
        (Fault::BlockedRaisesTheMark, BOUNDED),
        (Fault::CheckThenAct, RACE),
    ] {
        match check(&Shelf::with(fault)).await {
            Err(violation) => assert_eq!(violation.obligation, broken, "{fault:?}: {violation}"),
            Ok(held) => panic!("{fault:?} was not caught: {held:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_without_a_fence_or_with_a_gap_between_check_and_write_corrupts() {
    for fault in [Fault::Unfenced, Fault::CheckThenAct, Fault::ClaimRaisesNothing, Fault::LowerAdmitted] {
        let violation = race(&Shelf::with(fault), 4, 2_000, 5).await.expect_err("it corrupts");
        assert_eq!(violation.obligation, RACE, "{fault:?}: {violation}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_that_forget_the_mark_or_a_write_are_caught() {
    for fault in [Fault::MarkForgottenInACrash, Fault::EffectForgottenInACrash] {
        let violation = crashes(&Shelf::with(fault), 20, 5).await.expect_err("something is lost");
        assert_eq!(violation.obligation, DURABLE, "{fault:?}: {violation}");
    }
}
