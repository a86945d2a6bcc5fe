//! Content of a snapshot: the state, the openings of its journal, and the end of the audit log.
//!
//! The first snapshots consisted of the state alone, whose first byte is its format version. Later ones start with `LHSTATE1`, the
//! openings by content, whether an end of the audit log follows, that end (entries, hash, position), and the state.

use leasehold_core::codec::{DecodeError, Reader, Write};
use leasehold_core::journal_lineage::Lineage;

use crate::audit::AuditHead;

const MAGIC: [u8; 8] = *b"LHSTATE1";

/// A decoded snapshot.
#[derive(Debug, PartialEq, Eq)]
pub struct SnapshotFile<'a> {
    /// The openings of the journal.
    pub lineage: Lineage,
    /// The end of the audit log of the server that took the snapshot; it was durable before.
    pub audit: Option<AuditHead>,
    /// The state.
    pub state: &'a [u8],
}

impl<'a> SnapshotFile<'a> {
    /// Encodes the snapshot.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.state.len() + 4_096);
        out.raw(&MAGIC);
        self.lineage.encode(&mut out);
        out.flag(self.audit.is_some());
        if let Some(head) = &self.audit {
            out.num(head.entries);
            out.raw(&head.hash);
            out.num(head.position);
        }
        out.raw(self.state);
        out
    }

    /// Decodes the snapshot of a sequence.
    pub fn decode(bytes: &'a [u8], sequence: u64) -> Result<Self, DecodeError> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Ok(Self { lineage: Lineage::starting_at(sequence + 1), audit: None, state: bytes });
        };
        let mut from = Reader::new(rest);
        let shift = |error: DecodeError| DecodeError { at: error.at + MAGIC.len(), ..error };
        let lineage = Lineage::decode(&mut from).map_err(shift)?;
        let audit = match from.flag().map_err(shift)? {
            true => Some(AuditHead {
                entries: from.num().map_err(shift)?,
                hash: from.array().map_err(shift)?,
                position: from.num().map_err(shift)?,
            }),
            false => None,
        };
        Ok(Self { lineage, audit, state: &rest[from.position()..] })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::journal_lineage::TenureStart;

    use super::*;

    #[test]
    fn a_snapshot_decodes_as_written_and_one_of_the_state_alone_is_read() {
        let mut lineage = Lineage::starting_at(1);
        lineage.opened(TenureStart { sequence: 4, digest: [7; 32] }, true);
        let audit = Some(AuditHead { entries: 9, hash: [3; 32], position: 5 });
        for audit in [audit, None] {
            let written = SnapshotFile { lineage: lineage.clone(), audit, state: b"\x03state" };
            assert_eq!(SnapshotFile::decode(&written.encode(), 5), Ok(written));
        }
        let old = SnapshotFile::decode(b"\x02state", 5).expect("the state alone");
        assert_eq!((old.audit, old.state), (None, &b"\x02state"[..]));
        assert_eq!(old.lineage, Lineage::starting_at(6), "openings before it are unknown");
    }

    #[test]
    fn a_truncated_snapshot_is_refused_with_its_offset() {
        let whole = SnapshotFile { lineage: Lineage::starting_at(1), audit: None, state: b"" }.encode();
        for cut in MAGIC.len()..whole.len() {
            let error = SnapshotFile::decode(&whole[..cut], 1).expect_err("truncated");
            assert!(error.at >= MAGIC.len() && error.at <= cut, "cut at {cut}: {error:?}");
        }
    }
}
