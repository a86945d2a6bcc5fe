//! Each fault of issuer and verifier is caught by the test of the promise that it breaks.

use std::panic::catch_unwind;

use super::forged;
use crate::recipes::credential::faults::{Fault, choose};

const CAUGHT: &[(Fault, &str, fn())] = &[
    (Fault::ExpiryForgiven, "K1", super::the_skew_between_clocks_counts_on_both_sides_and_no_further),
    (Fault::StartIgnored, "K1", super::the_skew_between_clocks_counts_on_both_sides_and_no_further),
    (Fault::LeaseOutlived, "K1", super::a_credential_is_over_before_its_lease_even_for_the_slowest_clock),
    (Fault::AudienceNotCompared, "K2", forged::every_claim_must_be_there_and_must_be_what_it_should),
    (Fault::IssuerNotCompared, "K2", forged::every_claim_must_be_there_and_must_be_what_it_should),
    (Fault::PlaceNotCompared, "K2", forged::one_kind_of_signed_text_is_never_taken_for_another),
    (Fault::OldListBelieved, "K3", super::a_verifier_without_a_recent_list_believes_nobody),
    (Fault::RevokedBelieved, "K3", super::what_is_revoked_and_not_yet_expired_is_refused_from_the_next_list_on),
    (Fault::WithdrawnBelieved, "K4", super::a_stolen_key_is_out_with_the_next_list_although_the_verifier_still_has_it),
    (Fault::WithdrawnTooEarly, "K4", super::a_rotated_key_verifies_what_it_signed_until_it_is_withdrawn),
];

#[test]
fn every_fault_is_caught_by_the_test_of_its_promise() {
    for (fault, promise, test) in CAUGHT {
        test();
        choose(Some(*fault));
        let caught = catch_unwind(test);
        choose(None);
        assert!(caught.is_err(), "{fault:?} breaks {promise}, and its test did not see it");
    }
}
