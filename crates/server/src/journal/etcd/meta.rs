//! Value of the key `meta`: format, id of the journal and its newest snapshot, as readable text.

use std::fmt::Write;

/// First word of the value.
const MAGIC: &str = "leasehold-journal";
/// Format version of keys and values.
pub const FORMAT: u32 = 1;

/// Decoded value of `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalMeta {
    /// Random id of the journal.
    pub id: String,
    /// The newest complete snapshot.
    pub snapshot: Option<SnapshotMeta>,
}

/// A complete snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last batch in it.
    pub sequence: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of all bytes.
    pub checksum: u32,
}

/// The value is not a valid `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaError {
    /// Not written by Leasehold.
    Foreign,
    /// Written by a newer version.
    Newer(u32),
}

impl JournalMeta {
    /// Encodes it as text.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC} {FORMAT}\nid {}\n", self.id);
        if let Some(SnapshotMeta { sequence, chunks, bytes, checksum }) = self.snapshot {
            // Writing to a string does not fail.
            let _ = writeln!(text, "snapshot {sequence} {chunks} {bytes} {checksum}");
        }
        text.into_bytes()
    }

    /// Decodes the text.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetaError> {
        let text = str::from_utf8(bytes).map_err(|_| MetaError::Foreign)?;
        let mut lines = text.lines();
        let format = lines.next().and_then(|line| line.strip_prefix(MAGIC)?.trim().parse().ok());
        match format.ok_or(MetaError::Foreign)? {
            FORMAT => {}
            newer => return Err(MetaError::Newer(newer)),
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).ok_or(MetaError::Foreign)?.to_owned();
        let snapshot = lines.next().map(|line| snapshot(line).ok_or(MetaError::Foreign)).transpose()?;
        Ok(Self { id, snapshot })
    }
}

fn snapshot(line: &str) -> Option<SnapshotMeta> {
    let mut words = line.strip_prefix("snapshot ")?.split(' ');
    let (sequence, chunks) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (bytes, checksum) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(SnapshotMeta { sequence, chunks, bytes, checksum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_decodes_as_written_and_other_values_are_refused() {
        let mut meta = JournalMeta { id: "ab12".to_owned(), snapshot: None };
        assert_eq!(JournalMeta::decode(&meta.encode()), Ok(meta.clone()));
        meta.snapshot = Some(SnapshotMeta { sequence: 9, chunks: 2, bytes: 700_000, checksum: 17 });
        assert_eq!(JournalMeta::decode(&meta.encode()), Ok(meta));
        assert_eq!(JournalMeta::decode(b"leasehold-journal 2\nid x\n"), Err(MetaError::Newer(2)));
        for foreign in [
            &b""[..],
            b"\xff",
            b"a value",
            b"leasehold-journal",
            b"leasehold-journal 1\n",
            b"leasehold-journal x\nid 1",
        ] {
            assert_eq!(JournalMeta::decode(foreign), Err(MetaError::Foreign));
        }
    }
}
