//! The tokens of the suite: valid ones as a grantor prints them, and invalid ones.

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Incarnation, Number, Token, TokenScope};

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

fn parts(value: u64) -> Token {
    let (resource, number) = (resource_hash(RESOURCE), number(value));
    Token { cluster: CLUSTER, incarnation: INCARNATION, resource, scope: TokenScope::Slot(0), number }
}

/// Invalid tokens: description, text, and the error code.
pub(super) fn invalid_tokens(number: u64) -> Vec<(&'static str, String, &'static str)> {
    let good = token(number);
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
