//! Sealed tokens from outside: what is accepted, and that every change of text, key, name and domain is refused (A8).

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, SEALED_TOKEN_BYTES, TokenError, TokenScope};
use leasehold_seal::{Domain, Kid, PublicSealKey, SealError, SealKey, SealKeys, SealedToken, Token, verify, verify_at};
use proptest::prelude::*;

const NAME: &str = "db/orders";
const NOW: u64 = 1_800_000_000_000;

/// A key file with a fixed private key, so that texts can be compared.
const KEY_FILE: &str = r#"{
  "version": 1,
  "kid": "KID",
  "created_ms": 1,
  "active_ms": 1,
  "private": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
}
"#;

fn token(name: &str) -> Token {
    Token {
        cluster: Cluster([0, 0xC0, 0xFF, 0xEE, 0, 0xC0, 0xFF, 0xEE]),
        incarnation: Incarnation(0x0BAD_CAFE),
        resource: resource_hash(name),
        scope: TokenScope::Slot(3),
        number: Number::new(258_755_447_193_600_007).expect("in range"),
    }
}

fn key() -> SealKey {
    SealKey::generate(NOW).expect("a key")
}

fn keys(key: &SealKey) -> SealKeys {
    SealKeys::new([key.public()]).expect("a set")
}

#[test]
fn a_sealed_text_keeps_the_positions_of_a_plain_one() {
    let text = key().seal(&token(NAME), NAME).to_string();
    let plain = token(NAME).to_string();
    assert_eq!(text.len(), SEALED_TOKEN_BYTES);
    assert_eq!(text.len(), 172);
    assert_eq!((&text[..4], &plain[..4]), ("lh2-", "lh1-"));
    assert_eq!(text[4..76], plain[4..76]);
    assert_eq!((&text[76..77], &text[85..86]), ("-", "-"));
    assert_eq!(Token::parse(&text), Ok(token(NAME)));
    assert_eq!(SealedToken::parse(&text).expect("it parses").to_string(), text);
}

/// The key of RFC 8032, test 1: its public key is known, and Ed25519 signs without randomness.
#[test]
fn the_text_of_a_known_key_never_changes() {
    let public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let wrong = SealKey::from_file_text(&KEY_FILE.replace("KID", "00000000")).expect_err("another id");
    let leasehold_seal::SealKeyError::WrongKid { actual, .. } = wrong else { panic!("{wrong}") };
    let key = SealKey::from_file_text(&KEY_FILE.replace("KID", &actual.to_string())).expect("a key");
    assert!(keys(&key).to_json().contains(public), "{}", keys(&key).to_json());
    let golden = include_str!("../testdata/sealed_token.txt");
    assert_eq!(format!("{}\n", key.seal(&token(NAME), NAME)), golden);
    assert_eq!(verify_at(&keys(&key), golden.trim_end(), NAME, NOW), Ok(token(NAME)));
}

#[test]
fn a_plain_token_is_refused_where_a_sealed_one_is_required() {
    let key = key();
    assert_eq!(verify(&keys(&key), &token(NAME).to_string(), NAME), Err(SealError::Unsealed));
    assert_eq!(verify(&keys(&key), "", NAME), Err(SealError::Token(TokenError::Absent)));
    assert_eq!(verify(&keys(&key), "lh3-0", NAME), Err(SealError::Token(TokenError::Version { have: 3 })));
    assert_eq!(verify(&keys(&key), "17", NAME), Err(SealError::Token(TokenError::Shape)));
}

#[test]
fn an_unknown_key_is_refused() {
    let (ours, other) = (key(), key());
    let text = other.seal(&token(NAME), NAME).to_string();
    assert_eq!(verify(&keys(&ours), &text, NAME), Err(SealError::UnknownKey { kid: other.kid() }));
    assert_eq!(verify(&SealKeys::default(), &text, NAME), Err(SealError::UnknownKey { kid: other.kid() }));
    // The signature of one key under the id of the other.
    let renamed = text.replacen(&other.kid().to_string(), &ours.kid().to_string(), 1);
    assert_eq!(verify(&keys(&ours), &renamed, NAME), Err(SealError::Signature { kid: ours.kid() }));
}

#[test]
fn a_key_that_ended_is_refused_from_its_end_on() {
    let key = key().with_end(Some(NOW + 10)).expect("an end");
    let (set, text) = (keys(&key), key.seal(&token(NAME), NAME).to_string());
    assert_eq!(verify_at(&set, &text, NAME, NOW + 9), Ok(token(NAME)));
    let ended = SealError::EndedKey { kid: key.kid(), end_ms: NOW + 10 };
    assert_eq!(verify_at(&set, &text, NAME, NOW + 10), Err(ended));
    assert_eq!(verify_at(&set, &text, NAME, u64::MAX), Err(ended));
    assert!(key.is_active(NOW + 9) && !key.is_active(NOW + 10));
}

#[test]
fn a_key_signs_from_its_start_on_and_is_accepted_before() {
    let key = key().with_active(NOW + 10).expect("a start");
    assert!(!key.is_active(NOW + 9) && key.is_active(NOW + 10));
    // A verifier whose clock is behind accepts what a server already signs.
    let text = key.seal(&token(NAME), NAME).to_string();
    assert_eq!(verify_at(&keys(&key), &text, NAME, NOW), Ok(token(NAME)));
    assert!(key.with_end(Some(NOW + 10)).is_err(), "a key cannot end before it starts");
}

/// Two names whose hashes share the 64 bits in the text: the token is made for one and presented for the other.
#[test]
fn a_name_with_an_equal_short_hash_is_refused() {
    let key = key();
    // The attacker's own resource, with a token whose short hash is the victim's: a real collision costs 2^44 tries.
    let colliding = Token { resource: resource_hash("victim"), ..token("attacker/7341") };
    let text = key.seal(&colliding, "attacker/7341").to_string();
    assert_eq!(verify(&keys(&key), &text, "victim"), Err(SealError::Signature { kid: key.kid() }));
    assert_eq!(verify(&keys(&key), &text, "attacker/7341"), Err(SealError::Token(TokenError::Resource)));
}

#[test]
fn a_signature_of_another_domain_is_no_seal() {
    let (key, token) = (key(), token(NAME));
    let sealed = key.seal(&token, NAME);
    // The bytes that a seal signs, without the tag, in the two domains that a caller can use.
    let digest = <sha2::Sha256 as sha2::Digest>::digest(NAME.as_bytes());
    let mut bytes = token.sealed_body().into_bytes();
    bytes.extend_from_slice(key.kid().to_string().as_bytes());
    bytes.extend_from_slice(&digest);
    for domain in [Domain::AUDIT_HEAD, Domain::new("other")] {
        let seal = key.sign_bytes(domain, &bytes);
        assert_eq!(keys(&key).verify_bytes(domain, &bytes, &seal, NOW), Ok(()));
        let forged = SealedToken { token, seal }.to_string();
        assert_eq!(verify(&keys(&key), &forged, NAME), Err(SealError::Signature { kid: key.kid() }));
        let refused = keys(&key).verify_bytes(domain, &bytes, &sealed.seal, NOW);
        assert_eq!(refused, Err(SealError::Signature { kid: key.kid() }));
    }
    let seal = key.sign_bytes(Domain::AUDIT_HEAD, b"head");
    assert!(keys(&key).verify_bytes(Domain::new("other"), b"head", &seal, NOW).is_err());
    assert!(keys(&key).verify_bytes(Domain::AUDIT_HEAD, b"heae", &seal, NOW).is_err());
}

/// Adds the order of the group to the scalar of a signature: the same equation, another text.
#[test]
fn a_signature_whose_scalar_is_not_reduced_is_refused() {
    const ORDER: [u8; 32] = [
        0xED, 0xD3, 0xF5, 0x5C, 0x1A, 0x63, 0x12, 0x58, 0xD6, 0x9C, 0xF7, 0xA2, 0xDE, 0xF9, 0xDE, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let key = key();
    let mut sealed = key.seal(&token(NAME), NAME);
    let mut carry = 0;
    for (byte, order) in sealed.seal.signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        (*byte, carry) = (sum.to_le_bytes()[0], sum >> 8);
    }
    assert_eq!(carry, 0);
    let refused = verify(&keys(&key), &sealed.to_string(), NAME);
    assert_eq!(refused, Err(SealError::Signature { kid: key.kid() }));
}

#[test]
fn points_of_small_order_are_no_keys() {
    for first in [0, 1] {
        let mut bytes = [0; 32];
        bytes[0] = first;
        assert!(PublicSealKey::new(bytes, 0, None).is_err());
        bytes[31] = 0x80;
        assert!(PublicSealKey::new(bytes, 0, None).is_err());
    }
}

#[test]
fn every_bit_of_a_sealed_text_counts() {
    let key = key();
    let (set, text) = (keys(&key), key.seal(&token(NAME), NAME).to_string());
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert!(verify(&set, &changed, NAME).is_err(), "byte {at}, bit {bit}: {changed}");
        }
    }
}

#[test]
fn a_text_that_is_cut_or_extended_is_refused() {
    let key = key();
    let (set, text) = (keys(&key), key.seal(&token(NAME), NAME).to_string());
    for end in 0..text.len() {
        let refused = verify(&set, &text[..end], NAME).expect_err("it is cut");
        assert_eq!(refused.code(), "TOKEN_INVALID", "{refused}");
    }
    for changed in
        [format!("{text}="), format!("{text}A"), format!("{text}\n"), format!(" {text}"), text.to_uppercase()]
    {
        assert!(verify(&set, &changed, NAME).is_err(), "{changed}");
    }
    // A checksum instead of a seal, and a seal after a checksum.
    let plain = token(NAME).to_string();
    assert!(verify(&set, &plain.replacen("lh1", "lh2", 1), NAME).is_err());
    assert!(verify(&set, &format!("{plain}{}", &text[76..]), NAME).is_err());
    assert!(verify(&set, &text.replacen("lh2", "lh1", 1), NAME).is_err());
}

#[test]
fn every_error_names_the_next_step() {
    let kid = Kid(0x1234_ABCD);
    let errors = [
        SealError::Unsealed,
        SealError::UnknownKey { kid },
        SealError::EndedKey { kid, end_ms: 5 },
        SealError::Signature { kid },
        SealError::Token(TokenError::Shape),
    ];
    let reasons: std::collections::BTreeSet<_> = errors.iter().map(SealError::reason).collect();
    assert_eq!(reasons.len(), errors.len());
    for error in errors {
        assert_eq!(error.code(), "TOKEN_INVALID");
        assert!(error.to_string().contains("; "), "{error}");
    }
}

proptest! {
    #[test]
    fn only_the_signed_token_and_name_verify(
        name in "[a-z]{1,8}(/[a-z0-9]{1,8}){0,3}",
        other in "[a-z]{1,8}(/[a-z0-9]{1,8}){0,3}",
        number in 1..u64::MAX >> 1,
        slot in any::<u32>(),
        bump in 1..1_000_u64,
    ) {
        let key = key();
        let set = keys(&key);
        let scope = TokenScope::Slot(slot);
        let granted = Token { scope, number: Number::new(number).expect("in range"), ..token(&name) };
        let sealed = key.seal(&granted, &name);
        prop_assert_eq!(verify(&set, &sealed.to_string(), &name), Ok(granted));
        if other != name {
            prop_assert!(verify(&set, &sealed.to_string(), &other).is_err());
        }
        // The same seal on another number, slot, kind, incarnation or cluster.
        let others = [
            Number::new(number.saturating_add(bump)).map(|number| Token { number, ..granted }),
            Some(Token { scope: TokenScope::Slot(slot ^ 1), ..granted }),
            Some(Token { scope: TokenScope::Shared, ..granted }),
            Some(Token { incarnation: Incarnation(granted.incarnation.0 ^ 1), ..granted }),
            Some(Token { cluster: Cluster([9; 8]), ..granted }),
        ];
        for token in others.into_iter().flatten() {
            let forged = SealedToken { token, seal: sealed.seal }.to_string();
            prop_assert_eq!(verify(&set, &forged, &name), Err(SealError::Signature { kid: key.kid() }));
        }
    }

    #[test]
    fn arbitrary_texts_are_refused_without_a_panic(text in "\\PC{0,200}", tail in "[-A-Za-z0-9_]{86}") {
        let key = key();
        prop_assert!(verify(&keys(&key), &text, NAME).is_err());
        let forged = format!("{}-{}-{tail}", token(NAME).sealed_body(), key.kid());
        prop_assert!(verify(&keys(&key), &forged, NAME).is_err());
        if let Ok(sealed) = SealedToken::parse(&forged) {
            prop_assert_eq!(sealed.to_string(), forged);
        }
    }
}
