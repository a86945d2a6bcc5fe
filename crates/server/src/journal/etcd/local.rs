//! Files of a cluster server on its own disk: the audit log, and a high-water mark of the journal in etcd.

use std::path::Path;
use std::sync::OnceLock;

use crate::journal::OpenError;
use crate::journal::file::{Disk, DiskAuditFiles, LocalDisk, names};

/// Name of the file with the high-water mark.
const HIGH_WATER: &str = "witness";
/// Length of the file, fixed because it is overwritten in place.
const HIGH_WATER_BYTES: usize = 128;

/// A locked directory on this machine.
#[derive(Debug)]
pub struct LocalFiles {
    disk: LocalDisk,
    failed: OnceLock<String>,
}

/// How far this server has seen the journal. It is not synced: it may lag behind, but it is never ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighWater {
    /// Id of the journal.
    pub journal: String,
    /// Highest revision of etcd.
    pub revision: i64,
    /// Highest batch.
    pub sequence: u64,
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
        let mut words = str::from_utf8(&bytes[..got]).ok()?.split_whitespace();
        let (journal, revision, sequence) = (words.next()?, words.next()?, words.next()?);
        let text = format!("{journal} {revision} {sequence}");
        if words.next()?.parse() != Ok(crc32fast::hash(text.as_bytes())) {
            return None;
        }
        Some(HighWater {
            journal: journal.to_owned(),
            revision: revision.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    /// Saves the high-water mark. A failure is ignored: it matters only if etcd is restored later.
    pub fn save_high_water(&self, high_water: &HighWater) {
        let text = format!("{} {} {}", high_water.journal, high_water.revision, high_water.sequence);
        let line = format!("{text} {}", crc32fast::hash(text.as_bytes()));
        let line = format!("{line:<width$}\n", width = HIGH_WATER_BYTES - 1);
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
        let mut high_water = HighWater { journal: "ab".repeat(16), revision: i64::MAX, sequence: u64::MAX };
        local.save_high_water(&high_water);
        assert_eq!(local.high_water(), Some(high_water.clone()));
        high_water.revision = 7;
        local.save_high_water(&high_water);
        assert_eq!(local.high_water(), Some(high_water));
        std::fs::write(above.path().join("data/witness"), "abab 7").expect("written");
        assert_eq!(local.high_water(), None);
    }
}
