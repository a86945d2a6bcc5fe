//! The protocol searched to the end in small worlds: what must hold always holds, and what must be possible is seen.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test reads its depth and says how far it went"
)]

mod model;

use model::{Bounds, Which, check, overlap, renewal, target, tokens};

fn bounds() -> Bounds {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => Bounds::Quick,
        Ok("deep") => Bounds::Deep,
        _ => Bounds::Full,
    }
}

fn holds(which: Which) {
    match check(which, bounds()) {
        Ok(summary) => println!("{which:?}\n{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn a_lease_ends_neither_early_nor_never_whoever_leads() {
    holds(Which::Renewal);
}

#[test]
fn every_fault_of_a_driver_ends_a_lease_early_or_tells_what_is_not_so() {
    for fault in renewal::Fault::ALL {
        let found = renewal::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn every_number_is_above_all_told_before_whatever_is_rolled_back_or_restored() {
    holds(Which::Tokens);
}

#[test]
fn a_number_comes_again_where_no_promise_covers_it() {
    for fault in tokens::Fault::ALL {
        let found = tokens::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn at_a_fenced_object_nothing_is_built_on_what_it_did_not_see() {
    holds(Which::Target);
}

#[test]
fn without_fence_claim_or_kept_mark_a_zombie_corrupts_the_object() {
    for fault in target::Fault::ALL {
        let found = target::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}

#[test]
fn a_handoff_ends_and_nobody_interleaves_whoever_vanishes() {
    holds(Which::Overlap);
}

#[test]
fn a_holder_that_breaks_the_rules_of_an_overlap_is_found() {
    for fault in overlap::Fault::ALL {
        let found = overlap::check_fault(fault);
        assert!(found.as_ref().is_err_and(|found| found.contains("broken")), "{fault:?}: {found:?}");
    }
}
