//! Atomic file creation: data is written to a `.part` file, synced, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use leasehold::{Code, Error};

use crate::output::CommandError;

/// A file that appears under its name only when it is complete. Dropping it before [`PartFile::commit`] removes the data.
pub struct PartFile {
    path: PathBuf,
    name: PathBuf,
    file: Option<File>,
}

impl PartFile {
    /// Prepares a file that does not exist yet. The `.part` file is created by the first write.
    pub fn create(name: &Path) -> Result<Self, CommandError> {
        let at = name.display();
        if fs::symlink_metadata(name).is_ok() {
            return Err(Error::config("file", format!("{at} already exists; choose another name")).into());
        }
        let last =
            name.file_name().ok_or_else(|| Error::config("file", format!("{at} is not a file name; name a file")))?;
        let mut part = last.to_owned();
        part.push(".part");
        Ok(Self { path: name.with_file_name(part), name: name.to_owned(), file: None })
    }

    /// Path of the `.part` file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let failed = |error| write_error(&self.path, &error);
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            self.file =
                Some(options.write(true).create(true).truncate(true).mode(0o600).open(&self.path).map_err(failed)?);
        }
        self.file.as_mut().expect("just opened").write_all(bytes).map_err(failed)
    }

    /// Syncs the data to disk, so that the caller can read it back before [`PartFile::commit`].
    pub fn sync(&mut self) -> Result<(), CommandError> {
        self.write(&[])?;
        let file = self.file.as_ref().expect("a write opens the file");
        file.sync_all().map_err(|error| write_error(&self.path, &error))
    }

    /// Renames the file to its final name and syncs the directory.
    pub fn commit(mut self) -> Result<(), CommandError> {
        fs::rename(&self.path, &self.name).map_err(|error| write_error(&self.name, &error))?;
        self.file = None;
        let folder = self.name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| write_error(folder, &error))
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // If the incomplete file cannot be removed, its name still ends in `.part`.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The error for a file that cannot be written or read back.
pub fn write_error(path: &Path, error: &io::Error) -> CommandError {
    let at = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Code::StorageFull, format!("{at}: no space left on the device; free some space and retry"))
                .into()
        }
        _ => Error::config("file", format!("cannot write {at}: {error}; check the path and its mode")).into(),
    }
}
