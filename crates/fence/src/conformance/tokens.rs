//! The tokens that the suite shows: as a grantor prints them, and as they come by mistake.

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};

/// The cluster whose tokens the suite shows.
pub const CLUSTER: Cluster = Cluster(*b"conforms");
/// Its incarnation.
pub const INCARNATION: Incarnation = Incarnation(7);
/// The resource that guards the target under test, in slot 0.
pub const RESOURCE: &str = "conformance/target";

/// [`RESOURCE`] as a name.
pub fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("it is a name")
}

/// The text that the holder of this number shows. Panics at 0 and from 2^63 on, which no holder has.
pub fn token(number: u64) -> String {
    token_of(number, INCARNATION)
}

/// The same, of another life of the cluster.
pub fn token_of(number: u64, incarnation: Incarnation) -> String {
    Token { incarnation, ..parts(number) }.to_string()
}

/// A number as the suite counts them.
pub fn number(number: u64) -> Number {
    Number::new(number).expect("holders have numbers from 1 to below 2^63")
}

fn parts(of: u64) -> Token {
    let (resource, number) = (resource_hash(RESOURCE), number(of));
    Token { cluster: CLUSTER, incarnation: INCARNATION, resource, reach: Reach::Slot(0), number }
}

/// What is shown by mistake, in words, and the code it gets.
pub(super) fn mistakes(number: u64) -> Vec<(&'static str, String, &'static str)> {
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
        ("a token of a later version", good.replacen("lh1-", "lh2-", 1), "UNSUPPORTED_VERSION"),
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
        ("a token for another slot", Token { reach: Reach::Slot(1), ..parts(number) }.to_string(), "TOKEN_INVALID"),
        ("a reader's token", Token { reach: Reach::Shared, ..parts(number) }.to_string(), "TOKEN_INVALID"),
        ("a reservation's token", Token { reach: Reach::Units, ..parts(number) }.to_string(), "TOKEN_INVALID"),
        (
            "a number that no clock explains",
            Token { number: Number::MAX, ..parts(number) }.to_string(),
            "TOKEN_IMPLAUSIBLE",
        ),
    ]
}
