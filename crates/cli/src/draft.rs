//! A file that appears under its name only when it is whole: written beside it, synced, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use leasehold::{Code, Error};

use crate::told::Failure;

/// A file on its way to its name. One that is dropped before leaves nothing behind.
pub struct Draft {
    path: PathBuf,
    name: PathBuf,
    file: Option<File>,
}

impl Draft {
    /// A draft for a file that is not there yet. Nothing is created before the first bytes come.
    pub fn of(name: &Path) -> Result<Self, Failure> {
        let at = name.display();
        if fs::symlink_metadata(name).is_ok() {
            return Err(Error::config("file", format!("{at} is there already; name a new file")).into());
        }
        let last = name.file_name().ok_or_else(|| Error::config("file", format!("{at} is no file; name one")))?;
        let mut draft = last.to_owned();
        draft.push(".part");
        Ok(Self { path: name.with_file_name(draft), name: name.to_owned(), file: None })
    }

    /// Where it is until it has its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// More bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let failed = |error| not_written(&self.path, &error);
        if self.file.is_none() {
            let mut how = OpenOptions::new();
            self.file = Some(how.write(true).create(true).truncate(true).mode(0o600).open(&self.path).map_err(failed)?);
        }
        self.file.as_mut().expect("just opened").write_all(bytes).map_err(failed)
    }

    /// On the disk, all of it, to be read back before it gets its name.
    pub fn sync(&mut self) -> Result<(), Failure> {
        self.write(&[])?;
        let file = self.file.as_ref().expect("writing opens it");
        file.sync_all().map_err(|error| not_written(&self.path, &error))
    }

    /// Gives it its name.
    pub fn settle(mut self) -> Result<(), Failure> {
        fs::rename(&self.path, &self.name).map_err(|error| not_written(&self.name, &error))?;
        self.file = None;
        let folder = self.name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| not_written(folder, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Half a file is none; if it cannot be removed, its name still says that it is a draft.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why a file was not written or not read back.
pub fn not_written(path: &Path, error: &io::Error) -> Failure {
    let at = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Code::StorageFull, format!("{at}: no space left; free some and begin again")).into()
        }
        _ => Error::config("file", format!("{at} cannot be written: {error}; name another file")).into(),
    }
}
