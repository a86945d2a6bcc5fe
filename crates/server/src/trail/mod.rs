//! The audit trail: every change, one entry, chained by hash; to be asked, exported and verified (A1).
//!
//! A change is on record in the journal before anybody is told of it: that record is the proof. The trail is made from the
//! journal, before the journal is cut, and written for reading: who, what, why, under which token. It can always be made
//! again from where it ends, so a crash costs it nothing, and it says nothing that the journal did not keep.
//!
//! An entry is the text of one JSON object. Its hash is the SHA-256 of the hash before it and that text; the first follows
//! on 32 zeros. Parts of the trail are files of their own (see [`frame`]); each begins with the hash it follows on, so that
//! the oldest can be dropped and the rest still proves itself.

mod entry;
mod export;
pub mod frame;
mod page;
mod segment;
mod verify;
mod writer;

pub use entry::Entry;
pub use export::{BadLine, Exporting, check};
pub use page::{Asked, page};
pub use segment::{Found, Walked, walk};
pub use verify::{Broken, Verified, verify};
pub use writer::{Told, Writer, begin};

use sha2::{Digest, Sha256};

/// The hash of an entry.
pub type Hash = [u8; 32];

/// How much of the trail is kept. The newest part always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At most so many bytes in all.
    pub bytes: u64,
    /// Parts that are all older than this go too.
    pub age_ms: Option<u64>,
    /// How long a part becomes before the next begins.
    pub part_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 1 << 30, age_ms: None, part_bytes: 16 << 20 }
    }
}

/// Where the trail ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// How many entries there ever were; also the number of the last.
    pub entries: u64,
    /// The hash of the last.
    pub hash: Hash,
    /// Everything up to this journal position is told.
    pub position: u64,
}

/// The hash of an entry that follows on another.
pub fn link(before: &Hash, text: &[u8]) -> Hash {
    Sha256::new().chain_update(before).chain_update(text).finalize().into()
}

/// A hash as people write it.
pub fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
        text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
        text
    })
}

/// Reads a hash as people write it.
pub fn unhex(text: &str) -> Option<Hash> {
    let digits = text.as_bytes();
    if digits.len() != 64 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
    Some(std::array::from_fn(|at| value(digits[2 * at]) << 4 | value(digits[2 * at + 1])))
}
