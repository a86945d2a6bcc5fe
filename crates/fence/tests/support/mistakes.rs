//! What is shown by mistake, at every target.

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Number, Reach, Token};

use crate::support::{parts, token};

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
