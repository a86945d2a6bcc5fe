//! The tokens that the tests of all targets show.

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::{Cluster, Incarnation, Number, Reach, Token};

pub const CLUSTER: Cluster = Cluster(*b"testing!");
pub const RESOURCE: &str = "jobs/settle";

pub fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("a name")
}

pub fn number(number: u64) -> Number {
    Number::new(number).expect("tests show numbers from 1 to below 2^63")
}

pub fn parts(n: u64) -> Token {
    let resource = resource_hash(RESOURCE);
    Token { cluster: CLUSTER, incarnation: Incarnation(7), resource, reach: Reach::Slot(0), number: number(n) }
}

/// The text that the holder of this number shows.
pub fn token(number: u64) -> String {
    parts(number).to_string()
}

/// What is shown by mistake, and the code and word it gets.
pub fn mistakes() -> Vec<(String, &'static str, &'static str)> {
    let good = token(50);
    let cut = good[..good.len() - 1].to_owned();
    let longer = format!("{good}0");
    let flipped = good.replacen("-0000000000000000050-", "-0000000000000000051-", 1);
    let zero = sealed(&good.replacen("-0000000000000000050-", "-0000000000000000000-", 1));
    let large = sealed(&good.replacen("-0000000000000000050-", "-9300000000000000000-", 1));
    vec![
        (String::new(), "TOKEN_INVALID", "absent"),
        ("50".to_owned(), "TOKEN_INVALID", "shape"),
        ("-1".to_owned(), "TOKEN_INVALID", "shape"),
        (cut, "TOKEN_INVALID", "shape"),
        (longer, "TOKEN_INVALID", "shape"),
        (good.to_uppercase(), "TOKEN_INVALID", "shape"),
        (flipped, "TOKEN_INVALID", "checksum"),
        (zero, "TOKEN_INVALID", "zero"),
        (large, "TOKEN_INVALID", "too_large"),
        (good.replacen("lh1-", "lh2-", 1), "UNSUPPORTED_VERSION", "version"),
        (Token { cluster: Cluster(*b"another!"), ..parts(50) }.to_string(), "WRONG_CLUSTER", "cluster"),
        (Token { resource: resource_hash("jobs/other"), ..parts(50) }.to_string(), "TOKEN_INVALID", "resource"),
        (Token { reach: Reach::Slot(1), ..parts(50) }.to_string(), "TOKEN_INVALID", "slot"),
        (Token { reach: Reach::Shared, ..parts(50) }.to_string(), "TOKEN_INVALID", "shared"),
        (Token { reach: Reach::Units, ..parts(50) }.to_string(), "TOKEN_INVALID", "shared"),
        (Token { number: Number::MAX, ..parts(50) }.to_string(), "TOKEN_IMPLAUSIBLE", "implausible"),
    ]
}

/// The text with the checksum that its changed body needs.
fn sealed(text: &str) -> String {
    let (body, _) = text.rsplit_once('-').expect("a checksum stands behind the last dash");
    format!("{body}-{:08x}", crc32fast::hash(body.as_bytes()))
}
