//! Scan of one file of the audit log, up to its end or to the first damage.

use super::frame::{self, FileHeader, Frame};
use super::{Hash, link};
use crate::journal::{AuditFiles, ReadError};

/// An entry in a file.
#[derive(Clone, Copy, Debug)]
pub struct EntryFrame<'a> {
    /// Its number.
    pub entry: u64,
    /// The key by which entries of a resource are found.
    pub key: [u8; 8],
    /// Its text.
    pub text: &'a [u8],
    /// Its hash.
    pub hash: Hash,
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentScan {
    /// Header of the file.
    pub header: FileHeader,
    /// The salt of its frames.
    pub salt: u32,
    /// Number of the entry after the last valid one.
    pub next: u64,
    /// Hash of the last valid entry.
    pub hash: Hash,
    /// The last frame, if it is a checkpoint: the log is complete up to its position.
    pub checkpoint: Option<(u64, Hash)>,
    /// Offset of the end or of the first damage.
    pub at: usize,
    /// The damage at that offset.
    pub damage: Option<&'static str>,
}

/// Scans the bytes of a file and passes every valid entry to `each`. Checksums are always checked, hashes only if `verify_hashes`.
pub fn scan<'a>(
    bytes: &'a [u8],
    verify_hashes: bool,
    mut each: impl FnMut(EntryFrame<'a>),
) -> Result<SegmentScan, &'static str> {
    let (header, salt) = FileHeader::decode(bytes)?;
    let mut scan = SegmentScan {
        header,
        salt,
        next: header.first,
        hash: header.previous,
        checkpoint: None,
        at: frame::HEADER_BYTES,
        damage: None,
    };
    loop {
        match frame::read(salt, bytes, scan.at) {
            Frame::End => return Ok(scan),
            Frame::Damaged(damage) => return Ok(SegmentScan { damage: Some(damage), ..scan }),
            Frame::Checkpoint { position, batch, end } => {
                scan.checkpoint = Some((position, batch));
                scan.at = end;
            }
            Frame::Entry { key, text, hash, end } => {
                if verify_hashes && hash != link(&scan.hash, text) {
                    return Ok(SegmentScan { damage: Some("the hash does not follow the previous entry"), ..scan });
                }
                each(EntryFrame { entry: scan.next, key, text, hash });
                scan = SegmentScan { next: scan.next + 1, hash, checkpoint: None, at: end, ..scan };
            }
        }
    }
}

/// Reads a whole file.
pub(super) fn read(files: &dyn AuditFiles, number: u64, length: u64, into: &mut Vec<u8>) -> Result<(), ReadError> {
    let length = usize::try_from(length).map_err(|_| ReadError::Unreadable { reason: files.label(number) })?;
    *into = vec![0; length];
    let got = files.read(number, 0, into)?;
    into.truncate(got);
    Ok(())
}
