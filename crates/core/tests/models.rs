//! Exhaustive model checks of the protocol in small configurations: invariants always hold, and the expected
//! situations are reachable.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test reads its depth and prints its coverage"
)]

mod model;

use leasehold_testkit::depth::depth;
use model::{ModelKind, SearchDepth, check, handoff, renewal, target, tokens};

fn search_depth() -> SearchDepth {
    depth(SearchDepth::Quick, SearchDepth::Full, SearchDepth::Deep)
}

fn assert_model_holds(kind: ModelKind) {
    match check(kind, search_depth()) {
        Ok(summary) => println!("{kind:?}\n{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn a_lease_never_ends_early_and_always_ends_under_any_leader() {
    assert_model_holds(ModelKind::Renewal);
}

#[test]
fn every_driver_fault_breaks_the_renewal_model() {
    for fault in renewal::Fault::ALL {
        let found = renewal::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn token_numbers_increase_across_rollbacks_and_restores() {
    assert_model_holds(ModelKind::Tokens);
}

#[test]
fn token_numbers_repeat_under_faults_that_no_promise_covers() {
    for fault in tokens::Fault::ALL {
        let found = tokens::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn a_fenced_object_refuses_writes_based_on_unseen_versions() {
    assert_model_holds(ModelKind::Target);
}

#[test]
fn a_zombie_corrupts_the_object_without_fence_claim_or_durable_mark() {
    for fault in target::Fault::ALL {
        let found = target::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn a_handoff_completes_without_interleaved_writes_whichever_side_disappears() {
    assert_model_holds(ModelKind::Overlap);
}

#[test]
fn every_holder_fault_breaks_the_handoff_model() {
    for fault in handoff::Fault::ALL {
        let found = handoff::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}
