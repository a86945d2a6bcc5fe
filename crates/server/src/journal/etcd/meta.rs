//! What stands under `meta`: that this is a journal of ours, which one, and where its newest snapshot is. Text, for people.

use std::fmt::Write;

/// The first word of all.
const MAGIC: &str = "leasehold-journal";
/// The form in which keys and values are written.
pub const FORMAT: u32 = 1;

/// Which journal this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Drawn at random when it was created.
    pub id: String,
    /// The newest snapshot that is whole.
    pub snapshot: Option<Snapshot>,
}

/// A snapshot that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last batch in it.
    pub sequence: u64,
    /// In how many chunks it lies.
    pub chunks: u64,
    /// How long it is.
    pub bytes: u64,
    /// The checksum of all of it.
    pub checksum: u32,
}

/// Why a value is not a meta of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// Somebody else's.
    Foreign,
    /// Written by a newer version.
    Newer(u32),
}

impl Meta {
    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{MAGIC} {FORMAT}\nid {}\n", self.id);
        if let Some(Snapshot { sequence, chunks, bytes, checksum }) = self.snapshot {
            // Writing to a text does not fail.
            let _ = writeln!(text, "snapshot {sequence} {chunks} {bytes} {checksum}");
        }
        text.into_bytes()
    }

    /// What was kept.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotOurs> {
        let text = str::from_utf8(bytes).map_err(|_| NotOurs::Foreign)?;
        let mut lines = text.lines();
        let format = lines.next().and_then(|line| line.strip_prefix(MAGIC)?.trim().parse().ok());
        match format.ok_or(NotOurs::Foreign)? {
            FORMAT => {}
            newer => return Err(NotOurs::Newer(newer)),
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).ok_or(NotOurs::Foreign)?.to_owned();
        let snapshot = lines.next().map(|line| snapshot(line).ok_or(NotOurs::Foreign)).transpose()?;
        Ok(Self { id, snapshot })
    }
}

fn snapshot(line: &str) -> Option<Snapshot> {
    let mut words = line.strip_prefix("snapshot ")?.split(' ');
    let (sequence, chunks) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (bytes, checksum) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(Snapshot { sequence, chunks, bytes, checksum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_is_read_as_it_was_written_and_nothing_else_is() {
        let mut meta = Meta { id: "ab12".to_owned(), snapshot: None };
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta.clone()));
        meta.snapshot = Some(Snapshot { sequence: 9, chunks: 2, bytes: 700_000, checksum: 17 });
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
        assert_eq!(Meta::decode(b"leasehold-journal 2\nid x\n"), Err(NotOurs::Newer(2)));
        for foreign in [
            &b""[..],
            b"\xff",
            b"a value",
            b"leasehold-journal",
            b"leasehold-journal 1\n",
            b"leasehold-journal x\nid 1",
        ] {
            assert_eq!(Meta::decode(foreign), Err(NotOurs::Foreign));
        }
    }
}
