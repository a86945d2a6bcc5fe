//! Invalid tokens that every target must refuse.

use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Number, Token, TokenScope};

use crate::support::{parts, token};

/// Invalid token texts with the expected error code and reason.
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
        (good.replacen("lh1-", "lh3-", 1), "UNSUPPORTED_VERSION", "version"),
        (Token { cluster: Cluster(*b"another!"), ..parts(50) }.to_string(), "WRONG_CLUSTER", "cluster"),
        (Token { resource: resource_hash("jobs/other"), ..parts(50) }.to_string(), "TOKEN_INVALID", "resource"),
        (Token { scope: TokenScope::Slot(1), ..parts(50) }.to_string(), "TOKEN_INVALID", "slot"),
        (Token { scope: TokenScope::Shared, ..parts(50) }.to_string(), "TOKEN_INVALID", "shared"),
        (Token { scope: TokenScope::Units, ..parts(50) }.to_string(), "TOKEN_INVALID", "shared"),
        (Token { number: Number::MAX, ..parts(50) }.to_string(), "TOKEN_IMPLAUSIBLE", "implausible"),
    ]
}

/// The text with a correct checksum.
fn sealed(text: &str) -> String {
    let (body, _) = text.rsplit_once('-').expect("the checksum follows the last dash");
    format!("{body}-{:08x}", crc32fast::hash(body.as_bytes()))
}
