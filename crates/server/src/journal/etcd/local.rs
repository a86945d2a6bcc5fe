//! What a server on etcd keeps on its own machine: its audit trail, and a witness of how far the journal was.

use std::path::Path;
use std::sync::OnceLock;

use crate::journal::OpenError;
use crate::journal::file::{Disk, LocalDisk, Trail, names};

/// The witness's file.
const WITNESS: &str = "witness";
/// It is overwritten in place, so every witness is as long.
const WITNESS_BYTES: usize = 128;

/// A locked directory of this machine.
#[derive(Debug)]
pub struct Local {
    disk: LocalDisk,
    failed: OnceLock<String>,
}

/// How far a journal was when this server last saw it. Not synced: it may lag behind, and never runs ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Which journal.
    pub journal: String,
    /// The highest revision of etcd.
    pub revision: i64,
    /// The highest batch.
    pub sequence: u64,
}

impl Local {
    /// Takes the directory, and creates it if its parent is there.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let disk = LocalDisk::open(path)?;
        let names = disk.names().map_err(|error| OpenError::from_io(path, &error))?;
        // A journal of its own is there: its trail is not this one's.
        if names.iter().any(|name| name == names::IDENTITY) {
            return Err(OpenError::Foreign { file: disk.path(names::IDENTITY) });
        }
        Ok(Self { disk, failed: OnceLock::new() })
    }

    /// The audit trail's files.
    pub fn trail(&self) -> Trail<'_, LocalDisk> {
        Trail { disk: &self.disk, failed: &self.failed }
    }

    /// What an operator should know about the directory.
    pub fn warnings(&self) -> Vec<String> {
        self.disk.warnings()
    }

    /// What was seen last. None if nothing was, or if it was not written whole.
    pub fn witness(&self) -> Option<Witness> {
        let file = self.disk.open(WITNESS).ok()?;
        let mut bytes = [0; WITNESS_BYTES];
        let got = self.disk.read(&file, 0, &mut bytes).ok()?;
        let mut words = str::from_utf8(&bytes[..got]).ok()?.split_whitespace();
        let (journal, revision, sequence) = (words.next()?, words.next()?, words.next()?);
        let text = format!("{journal} {revision} {sequence}");
        if words.next()?.parse() != Ok(crc32fast::hash(text.as_bytes())) {
            return None;
        }
        Some(Witness {
            journal: journal.to_owned(),
            revision: revision.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    /// Notes what was seen. A witness that cannot be written is missed only when etcd was set back.
    pub fn note(&self, witness: &Witness) {
        let text = format!("{} {} {}", witness.journal, witness.revision, witness.sequence);
        let line = format!("{text} {}", crc32fast::hash(text.as_bytes()));
        let line = format!("{line:<width$}\n", width = WITNESS_BYTES - 1);
        let file = self.disk.open(WITNESS).or_else(|_| self.disk.create(WITNESS));
        let _ = file.and_then(|file| self.disk.write(&file, 0, line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_is_what_was_noted_last_and_half_of_one_is_none() {
        let above = tempfile::tempdir().expect("a directory");
        let local = Local::open(&above.path().join("data")).expect("taken");
        assert_eq!(local.witness(), None);
        let mut witness = Witness { journal: "ab".repeat(16), revision: i64::MAX, sequence: u64::MAX };
        local.note(&witness);
        assert_eq!(local.witness(), Some(witness.clone()));
        witness.revision = 7;
        local.note(&witness);
        assert_eq!(local.witness(), Some(witness));
        std::fs::write(above.path().join("data/witness"), "abab 7").expect("written");
        assert_eq!(local.witness(), None);
    }
}
