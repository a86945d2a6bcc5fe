//! Files of a cluster server on its own disk: the audit log, and a high-water mark of the journal in etcd.

use std::path::Path;
use std::sync::OnceLock;

use leasehold_core::journal_lineage::{SeenBatch, TenureStart};

use crate::hex::{hex, unhex};
use crate::journal::OpenError;
use crate::journal::file::{Disk, DiskAuditFiles, LocalDisk, names};

/// Name of the file with the high-water mark.
const HIGH_WATER: &str = "witness";
/// Length of the file, fixed because it is overwritten in place.
const HIGH_WATER_BYTES: usize = 512;
/// A field that is not known.
const UNKNOWN: &str = "-";

/// A locked directory on this machine.
#[derive(Debug)]
pub struct LocalFiles {
    disk: LocalDisk,
    failed: OnceLock<String>,
}

/// How far this server has seen the journal. It is not synced: it may lag behind, but it is never ahead.
///
/// Its text is `journal revision sequence digest opening incarnation checksum`, where an opening is `sequence:digest`. The first version
/// had no digest and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighWater {
    /// Id of the journal.
    pub journal: String,
    /// Highest revision of etcd.
    pub revision: i64,
    /// Highest batch.
    pub sequence: u64,
    /// Digest of that batch.
    pub digest: Option<[u8; 32]>,
    /// The opening of its tenure.
    pub opening: Option<TenureStart>,
    /// The first opening of its incarnation.
    pub incarnation: Option<TenureStart>,
}

impl HighWater {
    /// The batch by content, if that is known.
    pub fn batch(&self) -> Option<SeenBatch> {
        let (sequence, incarnation) = (self.sequence, self.incarnation);
        Some(SeenBatch { sequence, digest: self.digest?, opening: self.opening?, incarnation })
    }

    fn encode(&self) -> String {
        let start = |start: Option<TenureStart>| {
            start.map_or(UNKNOWN.to_owned(), |start| format!("{}:{}", start.sequence, hex(&start.digest)))
        };
        let digest = self.digest.map_or(UNKNOWN.to_owned(), |digest| hex(&digest));
        let Self { journal, revision, sequence, .. } = self;
        let (opening, incarnation) = (start(self.opening), start(self.incarnation));
        let text = format!("{journal} {revision} {sequence} {digest} {opening} {incarnation}");
        format!("{text} {}", crc32fast::hash(text.as_bytes()))
    }

    /// Decodes the text; `None` if it is incomplete.
    fn decode(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (check, words) = words.split_last()?;
        if check.parse() != Ok(crc32fast::hash(words.join(" ").as_bytes())) {
            return None;
        }
        let start = |word: &str| match word.split_once(':') {
            Some((sequence, digest)) => {
                Some(Some(TenureStart { sequence: sequence.parse().ok()?, digest: unhex(digest)? }))
            }
            None => (word == UNKNOWN).then_some(None),
        };
        let (journal, revision, sequence, rest) = match words {
            [journal, revision, sequence, rest @ ..] => (journal, revision, sequence, rest),
            _ => return None,
        };
        let (digest, opening, incarnation) = match rest {
            [] => (None, None, None),
            [digest, opening, incarnation] => {
                let digest = if *digest == UNKNOWN { None } else { Some(unhex(digest)?) };
                (digest, start(opening)?, start(incarnation)?)
            }
            _ => return None,
        };
        Some(Self {
            journal: (*journal).to_owned(),
            revision: revision.parse().ok()?,
            sequence: sequence.parse().ok()?,
            digest,
            opening,
            incarnation,
        })
    }
}

impl LocalFiles {
    /// Locks the directory; creates it if its parent exists.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let disk = LocalDisk::open(path)?;
        let names = disk.names().map_err(|error| OpenError::from_io(path, &error))?;
        // A directory with a file journal has another audit log.
        if names.iter().any(|name| name == names::IDENTITY) {
            return Err(OpenError::Foreign { file: disk.path(names::IDENTITY) });
        }
        Ok(Self { disk, failed: OnceLock::new() })
    }

    /// The files of the audit log.
    pub fn audit_files(&self) -> DiskAuditFiles<'_, LocalDisk> {
        DiskAuditFiles { disk: &self.disk, failed: &self.failed }
    }

    /// Warnings about the directory for the operator.
    pub fn warnings(&self) -> Vec<String> {
        self.disk.warnings()
    }

    /// The saved high-water mark; `None` if there is none or if it is incomplete.
    pub fn high_water(&self) -> Option<HighWater> {
        let file = self.disk.open(HIGH_WATER).ok()?;
        let mut bytes = [0; HIGH_WATER_BYTES];
        let got = self.disk.read(&file, 0, &mut bytes).ok()?;
        // A version that wrote less leaves the rest of a longer line after its own.
        let text = str::from_utf8(&bytes[..got]).ok()?.lines().next()?;
        HighWater::decode(text)
    }

    /// Saves the high-water mark. A failure is ignored: it matters only if etcd is restored later.
    pub fn save_high_water(&self, high_water: &HighWater) {
        let line = format!("{:<width$}\n", high_water.encode(), width = HIGH_WATER_BYTES - 1);
        let file = self.disk.open(HIGH_WATER).or_else(|_| self.disk.create(HIGH_WATER));
        let _ = file.and_then(|file| self.disk.write(&file, 0, line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_the_last_saved_one_and_an_incomplete_one_is_ignored() {
        let above = tempfile::tempdir().expect("a directory");
        let local = LocalFiles::open(&above.path().join("data")).expect("opened");
        assert_eq!(local.high_water(), None);
        let start = Some(TenureStart { sequence: u64::MAX, digest: [0xee; 32] });
        let mut high_water = HighWater {
            journal: "ab".repeat(16),
            revision: i64::MAX,
            sequence: u64::MAX,
            digest: Some([0xff; 32]),
            opening: start,
            incarnation: start,
        };
        local.save_high_water(&high_water);
        assert_eq!(local.high_water(), Some(high_water.clone()));
        (high_water.revision, high_water.opening, high_water.incarnation) = (7, None, None);
        local.save_high_water(&high_water);
        assert_eq!(local.high_water(), Some(high_water));
        std::fs::write(above.path().join("data/witness"), "abab 7").expect("written");
        assert_eq!(local.high_water(), None);
    }

    #[test]
    fn a_high_water_mark_of_the_first_version_is_read_without_digests() {
        let above = tempfile::tempdir().expect("a directory");
        let local = LocalFiles::open(&above.path().join("data")).expect("opened");
        // As that version wrote it: 128 bytes, padded.
        let text = "abababababababababababababababab 41 17";
        let line = format!("{:<127}\n", format!("{text} {}", crc32fast::hash(text.as_bytes())));
        std::fs::write(above.path().join("data/witness"), line).expect("written");
        let read = local.high_water().expect("a mark");
        assert_eq!((read.revision, read.sequence), (41, 17));
        assert_eq!((read.batch(), read.digest, read.opening), (None, None, None));
    }
}
