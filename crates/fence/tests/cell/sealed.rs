//! A sealed cell: tokens verified once count only with the keys and the whole name for which they were verified (A8).

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Token, TokenScope};
use leasehold_fence::cell::FencedCell;
use leasehold_fence::conformance::{
    CLUSTER, INCARNATION, RESOURCE, fence_id, forged_tokens, number, seal_keys, sealed_token, token,
};
use leasehold_fence::{FenceId, SealKeys, SealVerifier};
use leasehold_seal::SealKey;

fn verifier() -> SealVerifier {
    SealVerifier::new(seal_keys())
}

fn reason(error: &leasehold_fence::Error) -> &'static str {
    error.refusal().expect("refused").reason()
}

#[test]
fn a_forged_token_is_neither_verified_nor_admitted_and_is_counted() {
    let cell = FencedCell::new(&fence_id(), 0).with_seal_verifier(&verifier());
    let forged = forged_tokens(50);
    for (what, text, expected) in &forged {
        assert_eq!(reason(&cell.verify(text).expect_err(what)), *expected, "{what}");
        assert_eq!(reason(&cell.claim(text).expect_err(what)), *expected, "{what}");
        assert_eq!(reason(&cell.write(text, |value| *value += 1).expect_err(what)), *expected, "{what}");
    }
    assert_eq!((cell.mark().expect("fresh"), cell.read(|value| *value).expect("whole")), (None, 0));
    let counters = cell.counters().snapshot();
    // The text without its last character is not a token at all.
    assert_eq!((counters.unverified, counters.invalid), (3 * (forged.len() as u64 - 1), 3));
}

#[test]
fn every_flipped_bit_of_a_sealed_text_is_refused() {
    let cell = FencedCell::new(&fence_id(), ()).with_seal_verifier(&verifier());
    let text = sealed_token(40);
    cell.claim(&text).expect("as it was sealed");
    for at in 0..text.len() {
        for bit in 0..7 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let changed = String::from_utf8(bytes).expect("seven bits");
            assert!(cell.claim(&changed).is_err(), "bit {bit} of byte {at}");
        }
        assert!(cell.claim(&text[..at]).is_err(), "truncated at {at}");
    }
}

#[test]
fn a_cell_without_keys_refuses_every_token_once_it_is_sealed() {
    let cell = FencedCell::new(&fence_id(), ());
    cell.claim(&token(40)).expect("not sealed yet");
    let verified = cell.verify(token(40)).expect("a token");
    cell.seal().expect("sealed");
    assert!(cell.mark_info().expect("known").sealed);
    assert_eq!(reason(&cell.claim(&verified).expect_err("plain")), "unsealed");
    assert_eq!(reason(&cell.claim(&token(41)).expect_err("plain")), "unsealed");
    let error = cell.claim(&sealed_token(41)).expect_err("no keys");
    assert_eq!((error.code(), reason(&error)), ("CONFIG", "no_seal_keys"));
    cell.declare_lost().expect("declared");
    cell.rearm(number(50)).expect("re-armed");
    assert_eq!(reason(&cell.claim(&token(51)).expect_err("still sealed")), "unsealed");
}

#[test]
fn a_token_that_another_cell_verified_counts_only_with_the_same_keys_and_name() {
    let shared = verifier();
    let cell = FencedCell::new(&fence_id(), ()).with_seal_verifier(&shared);
    let twin = FencedCell::new(&fence_id(), ()).with_seal_verifier(&shared);
    let without_keys = FencedCell::new(&fence_id(), ());
    cell.claim(&twin.verify(sealed_token(40)).expect("sealed")).expect("the same keys and name");
    for text in [token(41), sealed_token(41)] {
        let unverified = without_keys.verify(text).expect("nothing is verified there");
        assert_eq!(reason(&cell.claim(&unverified).expect_err("not verified")), "not_verified");
    }
    let other_keys = FencedCell::new(&fence_id(), ()).with_seal_verifier(&verifier());
    let elsewhere = other_keys.verify(sealed_token(41)).expect("sealed");
    assert_eq!(reason(&cell.claim(&elsewhere).expect_err("another verifier")), "not_verified");
    assert_eq!(cell.mark().expect("known"), Some(number(40)));
}

#[test]
fn replaced_keys_end_tokens_that_were_verified_before() {
    let verifier = verifier();
    let cell = FencedCell::new(&fence_id(), ()).with_seal_verifier(&verifier);
    let verified = cell.verify(sealed_token(40)).expect("sealed");
    cell.claim(&verified).expect("current");
    verifier.replace_keys(SealKeys::default());
    assert_eq!(reason(&cell.claim(&verified).expect_err("the key was withdrawn")), "not_verified");
    assert_eq!(reason(&cell.claim(&sealed_token(40)).expect_err("the key was withdrawn")), "unknown_key");
    verifier.replace_keys(seal_keys());
    cell.claim(&sealed_token(40)).expect("it is back");
}

#[test]
fn another_slot_or_cluster_is_refused_although_the_key_signed_it() {
    let key = SealKey::generate(0).expect("a key");
    let verifier = SealVerifier::new(SealKeys::new([key.public()]).expect("one key"));
    let cell = FencedCell::new(&fence_id(), ()).with_seal_verifier(&verifier);
    let (resource, scope) = (resource_hash(RESOURCE), TokenScope::Slot(0));
    let good = Token { cluster: CLUSTER, incarnation: INCARNATION, resource, scope, number: number(40) };
    let seal = |token: Token| key.seal(&token, RESOURCE).to_string();
    cell.claim(&seal(good)).expect("its own");
    for (token, expected) in [
        (Token { scope: TokenScope::Slot(1), ..good }, "slot"),
        (Token { scope: TokenScope::Shared, ..good }, "shared"),
        (Token { cluster: leasehold_core::token::Cluster(*b"another!"), ..good }, "cluster"),
        (Token { resource: resource_hash("conformance/other"), ..good }, "resource"),
    ] {
        assert_eq!(reason(&cell.claim(&seal(token)).expect_err(expected)), expected);
    }
    let renamed = FenceId::new(CLUSTER, "conformance/other").expect("a name");
    assert_eq!(verifier.verify_token(&renamed, &seal(good)).expect_err("another name").reason(), "resource");
    assert_eq!(verifier.verify_token(&fence_id(), &seal(good)), Ok(good));
}
