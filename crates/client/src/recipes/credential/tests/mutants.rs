//! The test of each guarantee catches the mutants that break it.

use std::panic::catch_unwind;

use super::forged;
use crate::recipes::credential::mutants::{CredentialMutant, choose};

const CAUGHT: &[(CredentialMutant, &str, fn())] = &[
    (CredentialMutant::ExpiryIgnored, "K1", super::the_clock_skew_is_tolerated_on_both_sides_and_no_further),
    (CredentialMutant::StartIgnored, "K1", super::the_clock_skew_is_tolerated_on_both_sides_and_no_further),
    (CredentialMutant::LeaseOutlived, "K1", super::a_credential_expires_before_its_lease_even_on_the_slowest_clock),
    (CredentialMutant::AudienceNotCompared, "K2", forged::every_claim_is_required_and_checked),
    (CredentialMutant::IssuerNotCompared, "K2", forged::every_claim_is_required_and_checked),
    (CredentialMutant::ResourceNotCompared, "K2", forged::one_type_of_signed_text_is_never_accepted_as_another),
    (CredentialMutant::OldListAccepted, "K3", super::a_verifier_without_a_recent_list_rejects_every_credential),
    (CredentialMutant::RevokedAccepted, "K3", super::a_revoked_credential_is_rejected_after_the_next_list),
    (
        CredentialMutant::WithdrawnAccepted,
        "K4",
        super::a_stolen_key_is_rejected_after_the_next_list_although_the_verifier_still_has_it,
    ),
    (CredentialMutant::WithdrawnTooEarly, "K4", super::a_rotated_key_verifies_its_credentials_until_it_is_withdrawn),
];

#[test]
fn every_mutant_is_caught_by_the_test_of_its_guarantee() {
    for (mutant, guarantee, test) in CAUGHT {
        test();
        choose(Some(*mutant));
        let caught = catch_unwind(test);
        choose(None);
        assert!(caught.is_err(), "{mutant:?} breaks {guarantee}, and its test did not notice");
    }
}
