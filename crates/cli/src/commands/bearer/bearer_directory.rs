//! The directory with the bearer file and the access file, locked while a command changes them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::Error;
use leasehold_server::bearer::{BearerEntry, BearerFile};
use leasehold_server::credential_file;
use rustix::fs::{FlockOperation, flock};

use crate::file_set::{FileAccess, FileSet};
use crate::output::CommandError;
use crate::pki::{ACCESS, AccessDocument};

/// Name of the bearer file.
const BEARERS: &str = "bearers.toml";

/// A directory with a bearer file.
pub struct BearerDirectory {
    path: PathBuf,
    pub file: BearerFile,
    exists: bool,
    /// Held until the changes are written. Commands that change access.toml lock the same directory.
    _lock: File,
}

impl BearerDirectory {
    /// Locks the directory and reads the file. A missing file is an empty one.
    pub fn open(path: &Path) -> Result<Self, CommandError> {
        let at = path.display().to_string();
        let locked = File::open(path).and_then(|folder| {
            flock(&folder, FlockOperation::LockExclusive)?;
            Ok(folder)
        });
        let lock = locked.map_err(|error| {
            Error::config("dir", format!("dir: cannot lock {at}: {error}; name the directory of access.toml"))
        })?;
        let file = path.join(BEARERS);
        let exists = file.symlink_metadata().is_ok();
        let parsed = if exists { read(&file)? } else { BearerFile::default() };
        Ok(Self { path: path.to_owned(), file: parsed, exists, _lock: lock })
    }

    /// The path of the bearer file.
    pub fn bearer_path(&self) -> PathBuf {
        self.path.join(BEARERS)
    }

    /// The path of the access file.
    pub fn access_path(&self) -> PathBuf {
        self.path.join(ACCESS)
    }

    pub fn access(&self) -> Result<AccessDocument, Error> {
        AccessDocument::read(&self.access_path())
    }

    /// Adds the new contents of the bearer file to files that are written together.
    pub fn write(&self, files: &mut FileSet) -> Result<(), CommandError> {
        match self.exists {
            true => files.replace(self.bearer_path(), self.file.to_string()),
            false => files.create(self.bearer_path(), FileAccess::Private, self.file.to_string())?,
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<BearerFile, Error> {
    let file = path.display().to_string();
    let refused = |line, key: &str, message: String| Error::config_in_file(&file, line, key, message);
    let bytes = credential_file::read_private(path).map_err(|error| refused(None, "", error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(None, "", format!("{file} is not UTF-8 text")))?;
    BearerFile::parse(&text).map_err(|error| refused(error.line, &error.key, error.message))
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether a token counts, in one word.
pub fn state(entry: &BearerEntry, now: u64) -> &'static str {
    match entry.revoked {
        Some(_) => "revoked",
        None if now >= entry.expires => "expired",
        None => "valid",
    }
}
