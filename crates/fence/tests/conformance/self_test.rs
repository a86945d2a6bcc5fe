//! The suite against correct and faulty fences.

use leasehold_fence::conformance::{
    BOUNDED_CLAIM, DURABLE, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RISING, SEAL_STAYS, SEALED, SEALED_TEXTS,
    SEQUENCES, STALE, STALE_DETAIL, STRICT, UNARMED, check, crashes, race,
};

use crate::memory_target::{Fault, MemoryTarget};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correct_fence_passes_every_obligation() {
    let correct = MemoryTarget::with(Fault::None);
    for fence in [&correct, &MemoryTarget::terminating_blockers()] {
        let obligations = check(fence).await.unwrap_or_else(|error| panic!("{error}"));
        let all = [
            RISING,
            STALE,
            STALE_DETAIL,
            INVALID_TOKENS,
            SEALED_TEXTS,
            SEALED,
            SEAL_STAYS,
            UNARMED,
            LOST_MARK,
            LIST_MARKS,
            STRICT,
            DURABLE,
            SEQUENCES,
            BOUNDED_CLAIM,
            RACE,
        ];
        assert_eq!(obligations, all);
    }
    let report = race(&correct, 8, 10_000, 3).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.operations, report.undecided), (10_000, 0));
    assert_eq!(report.claimed + report.applied + report.refused, 10_000);
    assert!(report.refused > 0, "no zombie was rejected: {report:?}");
    assert!(crashes(&correct, 3, 1).await.unwrap_or_else(|error| panic!("{error}")) > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_is_detected_by_the_promise_it_breaks() {
    for (fault, broken) in [
        (Fault::Unfenced, RISING),
        (Fault::LowerAdmitted, STALE),
        (Fault::EqualRefused, RISING),
        (Fault::ClaimRaisesNothing, RISING),
        (Fault::WriteRaisesNothing, RISING),
        (Fault::WrongMarkInRefusal, STALE_DETAIL),
        (Fault::ResourceNotChecked, INVALID_TOKENS),
        (Fault::ClusterNotChecked, INVALID_TOKENS),
        (Fault::ImplausibleAdmitted, INVALID_TOKENS),
        (Fault::AbsentTokenAdmitted, INVALID_TOKENS),
        (Fault::SealedTextRefused, SEALED_TEXTS),
        (Fault::SealOptional, SEALED),
        (Fault::UnknownKidPlain, SEALED),
        (Fault::EndedKeyAccepted, SEALED),
        (Fault::NameHashOnly, SEALED),
        (Fault::SignatureNotChecked, SEALED),
        (Fault::SealNotStored, SEAL_STAYS),
        (Fault::UnarmedIsFresh, UNARMED),
        (Fault::LostIsFresh, LOST_MARK),
        (Fault::FloorBelowMarkAccepted, LOST_MARK),
        (Fault::MarkLostInCrash, DURABLE),
        (Fault::EffectLostInCrash, DURABLE),
        (Fault::DuplicatesApplied, SEQUENCES),
        (Fault::SequenceLostInCrash, SEQUENCES),
        (Fault::StrictIgnored, STRICT),
        (Fault::NoMarksListed, LIST_MARKS),
        (Fault::ClaimNeverReturns, BOUNDED_CLAIM),
        (Fault::ClaimIgnoresBlocker, BOUNDED_CLAIM),
        (Fault::BlockerNotReported, BOUNDED_CLAIM),
        (Fault::BlockedClaimRaisesMark, BOUNDED_CLAIM),
        (Fault::CheckThenAct, RACE),
    ] {
        match check(&MemoryTarget::with(fault)).await {
            Err(error) => assert_eq!(error.obligation, broken, "{fault:?}: {error}"),
            Ok(obligations) => panic!("{fault:?} was not detected: {obligations:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_detects_a_missing_fence_and_check_then_act() {
    for fault in [Fault::Unfenced, Fault::CheckThenAct, Fault::ClaimRaisesNothing, Fault::LowerAdmitted] {
        let error = race(&MemoryTarget::with(fault), 4, 2_000, 5).await.expect_err("a fault");
        assert_eq!(error.obligation, RACE, "{fault:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_detect_a_lost_mark_or_write() {
    for fault in [Fault::MarkLostInCrash, Fault::EffectLostInCrash] {
        let error = crashes(&MemoryTarget::with(fault), 20, 5).await.expect_err("a fault");
        assert_eq!(error.obligation, DURABLE, "{fault:?}: {error}");
    }
}
