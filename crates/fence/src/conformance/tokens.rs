//! The tokens of the suite: valid ones as a grantor prints them, and invalid ones.

use std::sync::LazyLock;

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};
use leasehold_seal::{Domain, Seal, SealKey, SealKeys, SealedToken};
use sha2::{Digest, Sha256};

use crate::FenceId;

/// The cluster of the tokens.
pub const CLUSTER: Cluster = Cluster(*b"conforms");
/// The incarnation of the cluster.
pub const INCARNATION: Incarnation = Incarnation(7);
/// The resource of the target under test. Its slot is 0.
pub const RESOURCE: &str = "conformance/target";

/// The id of the fence under test: slot 0 of [`RESOURCE`] in [`CLUSTER`].
pub fn fence_id() -> FenceId {
    FenceId::new(CLUSTER, RESOURCE).expect("a valid name")
}

/// The text of the token with this number. Panics if the number is 0 or at least 2^63.
pub fn token(number: u64) -> String {
    token_of(number, INCARNATION)
}

/// The text of a token of another incarnation.
pub fn token_of(number: u64, incarnation: Incarnation) -> String {
    Token { incarnation, ..parts(number) }.to_string()
}

/// A token number. Panics if it is 0 or at least 2^63.
pub fn number(number: u64) -> Number {
    Number::new(number).expect("from 1 to below 2^63")
}

/// The keys of a sealed fence under test.
struct SuiteKeys {
    current: SealKey,
    /// It ended long ago.
    ended: SealKey,
    /// No fence knows it.
    unknown: SealKey,
}

static KEYS: LazyLock<SuiteKeys> = LazyLock::new(|| {
    let key = || SealKey::generate(0).expect("the provider creates a key");
    SuiteKeys { current: key(), ended: key().with_end(Some(1)).expect("later than its start"), unknown: key() }
});

/// The public keys with which a sealed fence under test verifies: a current one and one that has ended.
pub fn seal_keys() -> SealKeys {
    let SuiteKeys { current, ended, .. } = &*KEYS;
    SealKeys::new([current.public(), ended.public()]).expect("two keys")
}

/// The sealed text of the token with this number, signed by the current key of [`seal_keys`].
pub fn sealed_token(number: u64) -> String {
    KEYS.current.seal(&parts(number), RESOURCE).to_string()
}

/// Texts that a fence with [`seal_keys`] must refuse: description, text, and the reason.
pub fn forged_tokens(number: u64) -> Vec<(String, String, &'static str)> {
    let SuiteKeys { current, ended, unknown } = &*KEYS;
    let (good, genuine) = (parts(number), current.seal(&parts(number), RESOURCE));
    // What the key signs for a token, signed for another use.
    let digest = Sha256::digest(RESOURCE.as_bytes());
    let message = [good.sealed_body().as_bytes(), current.kid().to_string().as_bytes(), digest.as_slice()].concat();
    let other_use = SealedToken { seal: current.sign_bytes(Domain::new("another use"), &message), ..genuine };
    let higher = SealedToken { token: parts(number + 1), ..genuine };
    let renamed = SealedToken { seal: Seal { kid: unknown.kid(), ..genuine.seal }, ..genuine };
    // As the token of a resource whose name has the same 64 bits of hash: only the signature differs.
    let other_name = current.seal(&good, "conformance/other");
    let other_incarnation = SealedToken { token: Token { incarnation: Incarnation(8), ..good }, ..genuine };
    let text = genuine.to_string();
    let mut all = vec![
        ("a plain token".to_owned(), token(number), "unsealed"),
        ("a token of an unknown key".to_owned(), unknown.seal(&good, RESOURCE).to_string(), "unknown_key"),
        ("a token that names an unknown key".to_owned(), renamed.to_string(), "unknown_key"),
        ("a token of a key that has ended".to_owned(), ended.seal(&good, RESOURCE).to_string(), "ended_key"),
        ("a token signed for another name".to_owned(), other_name.to_string(), "signature"),
        ("a signature for another use".to_owned(), other_use.to_string(), "signature"),
        ("the signature of a lower token".to_owned(), higher.to_string(), "signature"),
        ("the signature of another incarnation".to_owned(), other_incarnation.to_string(), "signature"),
        ("a truncated signature".to_owned(), text[..text.len() - 1].to_owned(), "shape"),
    ];
    for bit in [0, 1, 255, 256, 300, 511] {
        let mut flipped = genuine;
        flipped.seal.signature[bit / 8] ^= 1 << (bit % 8);
        all.push((format!("a signature with bit {bit} flipped"), flipped.to_string(), "signature"));
    }
    all
}

fn parts(value: u64) -> Token {
    let (resource, number) = (resource_hash(RESOURCE), number(value));
    Token { cluster: CLUSTER, incarnation: INCARNATION, resource, scope: TokenScope::Slot(0), number }
}

/// Invalid tokens: description, text, and the error code.
pub(super) fn invalid_tokens(number: u64) -> Vec<(&'static str, String, &'static str)> {
    let (good, sealed) = (token(number), sealed_token(number));
    let mut flipped = good.clone();
    flipped.replace_range(75..76, if good.as_bytes()[75] == b'9' { "8" } else { "9" });
    vec![
        ("no token", String::new(), "TOKEN_INVALID"),
        ("a bare number", number.to_string(), "TOKEN_INVALID"),
        ("a negative number", "-1".to_owned(), "TOKEN_INVALID"),
        ("a token without its last character", good[..good.len() - 1].to_owned(), "TOKEN_INVALID"),
        ("a token with one character more", format!("{good}0"), "TOKEN_INVALID"),
        ("a token in capitals", good.to_uppercase(), "TOKEN_INVALID"),
        ("a token with another digit", flipped, "TOKEN_INVALID"),
        ("a token of a later version", good.replacen("lh1-", "lh3-", 1), "UNSUPPORTED_VERSION"),
        ("a plain token with the version of a sealed one", good.replacen("lh1-", "lh2-", 1), "TOKEN_INVALID"),
        ("a sealed token with the version of a plain one", sealed.replacen("lh2-", "lh1-", 1), "TOKEN_INVALID"),
        ("a sealed token without its last character", sealed[..sealed.len() - 1].to_owned(), "TOKEN_INVALID"),
        ("a sealed token with one character more", format!("{sealed}A"), "TOKEN_INVALID"),
        ("a sealed token with another alphabet", format!("{}+{}", &sealed[..100], &sealed[101..]), "TOKEN_INVALID"),
        (
            "a token of another cluster",
            Token { cluster: Cluster(*b"another!"), ..parts(number) }.to_string(),
            "WRONG_CLUSTER",
        ),
        (
            "a token for another resource",
            Token { resource: resource_hash("conformance/other"), ..parts(number) }.to_string(),
            "TOKEN_INVALID",
        ),
        (
            "a token for another slot",
            Token { scope: TokenScope::Slot(1), ..parts(number) }.to_string(),
            "TOKEN_INVALID",
        ),
        ("a reader's token", Token { scope: TokenScope::Shared, ..parts(number) }.to_string(), "TOKEN_INVALID"),
        ("a reservation's token", Token { scope: TokenScope::Units, ..parts(number) }.to_string(), "TOKEN_INVALID"),
        ("an implausible number", Token { number: Number::MAX, ..parts(number) }.to_string(), "TOKEN_IMPLAUSIBLE"),
    ]
}
