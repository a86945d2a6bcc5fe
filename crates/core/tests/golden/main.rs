//! Golden files of records and snapshots: their encoding never changes.
//!
//! A new record adds a line. A changed line means a changed format, and the old one must still be readable.
//! `LEASEHOLD_BLESS=1 cargo test -p leasehold-core --test golden` rewrites the files.

mod records;
mod snapshots;

use std::path::PathBuf;

use leasehold_core::token::Number;

fn number(n: u64) -> Number {
    Number::new(n).unwrap()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/golden").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The committed text, rewritten first if `LEASEHOLD_BLESS` is set.
#[allow(clippy::disallowed_methods, reason = "the test writes its files; the core writes none")]
fn golden(name: &str, now: &str) -> String {
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(path(name), now).unwrap();
    }
    std::fs::read_to_string(path(name)).unwrap()
}
