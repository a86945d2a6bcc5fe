//! Verification of the audit log: every entry follows the previous one.

use std::fmt;

use super::segment::{SegmentScan, read, scan};
use super::{AuditHead, Hash, HeadCheck};
use crate::journal::{AuditFiles, ReadError};

/// The range of entries that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditProof {
    /// Number of the oldest retained entry.
    pub first: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Hash of the last entry.
    pub hash: Hash,
    /// Entries that say that entries before them are missing.
    pub gaps: u64,
    /// Ends of the log that were known from elsewhere and are in it.
    pub heads: u64,
}

impl AuditProof {
    /// Number of entries.
    pub fn entries(&self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }
}

/// The audit log is damaged, or it could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyError {
    /// The first damage.
    Damaged {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The damage.
        reason: String,
    },
    /// The log could not be read.
    Read(ReadError),
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file, offset, reason } => {
                write!(f, "{file} at byte {offset}: {reason}; compare it with an export")
            }
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for VerifyError {}

impl From<ReadError> for VerifyError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Whether the text of an entry says that entries before it are missing. Quotes inside of a value are escaped, so this occurs only as
/// the kind.
pub(super) fn is_gap(text: &[u8]) -> bool {
    const KIND: &[u8] = br#""kind":"gap""#;
    text.windows(KIND.len()).any(|window| window == KIND)
}

/// Verifies all retained entries, up to `head`.
pub fn verify(files: &dyn AuditFiles, head: AuditHead) -> Result<AuditProof, VerifyError> {
    verify_with(files, head, HeadCheck::default())
}

/// Like [`verify`], and the log must agree with what is known of it from elsewhere.
pub fn verify_with(files: &dyn AuditFiles, head: AuditHead, mut known: HeadCheck) -> Result<AuditProof, VerifyError> {
    let damaged = |number: u64, offset: usize, reason: &str| VerifyError::Damaged {
        file: files.label(number),
        offset: offset as u64,
        reason: reason.to_owned(),
    };
    let mut previous: Option<(u64, SegmentScan)> = None;
    let (mut first, mut last, mut gaps) = (None, None, 0);
    let mut bytes = Vec::new();
    for (number, length) in files.files()? {
        read(files, number, length, &mut bytes)?;
        let mut starts_with_gap = None;
        let scanned = scan(&bytes, true, |frame| {
            // A file that starts with a gap does not repeat the entries that the damage before it destroyed.
            let is_gap = is_gap(frame.text);
            starts_with_gap.get_or_insert(is_gap);
            gaps += u64::from(is_gap && frame.entry <= head.entries);
            if frame.entry == head.entries {
                last = Some(frame.hash);
            }
            if frame.entry <= head.entries {
                known.see(frame.entry, &frame.hash);
            }
        });
        let scanned = scanned.map_err(|reason| damaged(number, 0, reason))?;
        if let Some((other, previous)) = &previous {
            let follows = (scanned.header.first, scanned.header.previous) == (previous.next, previous.hash);
            match previous.damage {
                Some(reason) if !follows || starts_with_gap == Some(true) => {
                    return Err(damaged(*other, previous.at, reason));
                }
                None if scanned.header.first > previous.next => {
                    let reason = format!("entries {} to {} are missing", previous.next, scanned.header.first - 1);
                    return Err(damaged(*other, previous.at, &reason));
                }
                None if !follows => return Err(damaged(number, 24, "the file does not follow the previous file")),
                _ => {}
            }
        }
        first.get_or_insert(scanned.header.first);
        previous = Some((number, scanned));
    }
    let compared = |known: HeadCheck, first, last, (number, offset)| {
        known.finish(first, last).map_err(|mismatch| damaged(number, offset, &mismatch.to_string()))
    };
    let Some((number, scanned)) = previous else {
        let heads = compared(known, 1, 0, (1, 0))?;
        return Ok(AuditProof { first: 1, last: 0, hash: head.hash, gaps, heads });
    };
    if scanned.next <= head.entries {
        let reason = scanned.damage.unwrap_or("entries at the end are missing");
        return Err(damaged(number, scanned.at, reason));
    }
    if scanned.header.first <= head.entries && last != Some(head.hash) {
        return Err(damaged(number, scanned.at, "the last entry differs from the one that was written"));
    }
    let first = first.unwrap_or(1);
    let heads = compared(known, first, head.entries, (number, scanned.at))?;
    Ok(AuditProof { first, last: head.entries, hash: head.hash, gaps, heads })
}
