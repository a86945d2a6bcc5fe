//! The audit log: one entry per change, chained by hash; it can be queried, exported and verified (A1).
//!
//! A change is durable in the journal before any reply depends on it; that record is the proof. The audit log is derived from the
//! journal before the journal is trimmed, in a form for readers: who did what, why, under which token. It can always be derived again
//! from where it ends, so a crash loses nothing, and it contains nothing that the journal did not.
//!
//! An entry is the text of one JSON object. Its hash is the SHA-256 of the previous hash and that text; the first entry follows
//! 32 zeros. The log consists of files (see [`frame`]). Each starts with the hash that it follows, so that the oldest file can be
//! removed and the rest can still be verified.

mod entry;
mod export;
mod export_tail;
pub mod frame;
mod head_check;
mod query;
mod recent;
mod segment;
mod signed_head;
mod verify;
mod writer;

pub use entry::AuditEntry;
pub use export::{AuditExport, ExportLineError, read_export, verify_export, verify_export_with};
pub use export_tail::{ExportTail, ExportTailError};
pub use head_check::{ExpectedEntry, HeadCheck, HeadMismatch};
pub use query::{AuditMatches, AuditQuery, MAX_SEARCH_BYTES, query};
pub use recent::RecentEntries;
pub use segment::{EntryFrame, SegmentScan, scan};
pub use signed_head::{
    HeadError, HeadLineError, HeadSigner, MAX_HEADS, SignedHead, add_head, encode_heads, parse_heads,
};
pub use verify::{AuditProof, VerifyError, verify, verify_with};
pub use writer::{AuditWriteError, AuditWriter, BatchStep, first_header, proven_position};

pub use crate::hex::{hex, unhex};

use sha2::{Digest, Sha256};

/// The hash of an entry.
pub type Hash = [u8; 32];

/// Size at which the next file begins.
const FILE_BYTES: u64 = 16 << 20;

/// How much of the audit log is retained. The newest file always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Limit on the bytes of all files.
    pub bytes: u64,
    /// Files whose entries are all older than this are removed.
    pub age_ms: Option<u64>,
    /// Size at which the next file begins.
    pub file_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 1 << 30, age_ms: None, file_bytes: FILE_BYTES }
    }
}

/// The end of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditHead {
    /// Number of entries over all time; also the number of the last entry.
    pub entries: u64,
    /// Hash of the last entry.
    pub hash: Hash,
    /// The journal position up to which the log is complete.
    pub position: u64,
}

/// The hash of an entry that follows another.
pub fn link(previous: &Hash, text: &[u8]) -> Hash {
    Sha256::new().chain_update(previous).chain_update(text).finalize().into()
}
