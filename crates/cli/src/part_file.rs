//! Atomic creation and replacement of files: data is written under an unpredictable name in the same directory, synced, then renamed.
//!
//! The directory may be writable by others, like `/tmp`: nothing that already exists is opened, followed or replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use leasehold::{Code, Error};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::output::CommandError;
use crate::random_name::random_hex;

/// A file that appears under its name only when it is complete. Dropping it before [`PartFile::commit`] removes the data.
pub struct PartFile {
    /// Where the data is until the commit.
    path: PathBuf,
    name: PathBuf,
    file: Option<File>,
    mode: u32,
    /// Whether the commit replaces an existing file.
    replaces: bool,
}

impl PartFile {
    /// Prepares a file that does not exist yet. Nothing is created before the first write.
    pub fn create(name: &Path) -> Result<Self, CommandError> {
        if fs::symlink_metadata(name).is_ok() {
            return Err(exists(name));
        }
        Self::prepare(name, 0o600, false)
    }

    /// Prepares the new contents of a file, which keeps its mode and its owner.
    pub fn replace(name: &Path) -> Result<Self, CommandError> {
        let known = fs::symlink_metadata(name).map_err(|error| write_error(name, &error))?;
        if !known.is_file() {
            let at = name.display();
            return Err(Error::config("file", format!("{at} is not a regular file; replace it by one")).into());
        }
        let mut part = Self::prepare(name, known.mode() & 0o777, true)?;
        part.write(&[])?;
        let file = part.file.as_ref().expect("a write opens the file");
        // The umask may have removed bits of the mode.
        let kept = file.set_permissions(known.permissions()).and_then(|()| {
            let now = file.metadata()?;
            let same = (now.uid(), now.gid()) == (known.uid(), known.gid());
            if same { Ok(()) } else { fchown(file, Some(known.uid()), Some(known.gid())) }
        });
        kept.map_err(|error| write_error(name, &error))?;
        Ok(part)
    }

    /// Lets everyone read the file, as far as the umask allows.
    #[must_use]
    pub fn readable(mut self) -> Self {
        self.mode = 0o644;
        self
    }

    fn prepare(name: &Path, mode: u32, replaces: bool) -> Result<Self, CommandError> {
        let at = name.display();
        let last =
            name.file_name().ok_or_else(|| Error::config("file", format!("{at} is not a file name; name a file")))?;
        let random = random_hex().map_err(|error| write_error(name, &error))?;
        // A name has at most 255 bytes, so that the part file's name does not repeat a long one.
        let readable = last.to_string_lossy().chars().take(32).collect::<String>();
        let part = format!(".{readable}.{random}.part");
        Ok(Self { path: name.with_file_name(part), name: name.to_owned(), file: None, mode, replaces })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            // `create_new` (O_EXCL) neither opens an existing file nor follows a symbolic link.
            let opened = options.read(true).write(true).create_new(true).mode(self.mode).open(&self.path);
            self.file = Some(opened.map_err(|error| write_error(&self.name, &error))?);
        }
        let file = self.file.as_mut().expect("just opened");
        file.write_all(bytes).map_err(|error| write_error(&self.name, &error))
    }

    /// Syncs the data to disk. Returns the same open file at its start, so that what is read back is what was written, even if
    /// another process replaced its name.
    pub fn sync(&mut self) -> Result<File, CommandError> {
        self.write(&[])?;
        let file = self.file.as_ref().expect("a write opens the file");
        let reopened = file.sync_all().and_then(|()| file.try_clone()).and_then(|mut file| {
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        });
        reopened.map_err(|error| write_error(&self.name, &error))
    }

    /// Renames the file to its final name, unless a file of that name exists by now, and syncs the directory.
    pub fn commit(self) -> Result<(), CommandError> {
        sync_folder(&self.publish()?)
    }

    /// The same without the sync of the directory. Returns the name.
    pub fn publish(mut self) -> Result<PathBuf, CommandError> {
        self.rename().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.name),
            _ => write_error(&self.name, &error),
        })?;
        self.file = None;
        Ok(self.name.clone())
    }

    fn rename(&self) -> io::Result<()> {
        if self.replaces {
            return fs::rename(&self.path, &self.name);
        }
        match renameat_with(CWD, &self.path, CWD, &self.name, RenameFlags::NOREPLACE) {
            // The filesystem does not support the flag. A hard link replaces nothing either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                fs::hard_link(&self.path, &self.name)?;
                fs::remove_file(&self.path)
            }
            renamed => Ok(renamed?),
        }
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

/// Syncs the directory that contains a file.
pub fn sync_folder(name: &Path) -> Result<(), CommandError> {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| write_error(folder, &error))
}

fn exists(name: &Path) -> CommandError {
    Error::config("file", format!("{} already exists; choose another name", name.display())).into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_that_appears_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = dir.path().join("monday.backup");
        let mut part = PartFile::create(&name).expect("prepared");
        part.write(b"data").expect("written");
        fs::write(&name, "of another user").expect("planted");
        let refused = part.commit().expect_err("it exists");
        assert!(format!("{refused:?}").contains("already exists"), "{refused:?}");
        assert_eq!(fs::read_to_string(&name).expect("it is there"), "of another user");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "the part file was removed");
    }

    #[test]
    fn a_planted_link_is_neither_followed_nor_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (victim, name) = (dir.path().join("victim"), dir.path().join("monday.backup"));
        fs::write(&victim, "precious").expect("written");
        symlink(&victim, &name).expect("planted");
        assert!(PartFile::create(&name).is_err(), "the name itself is a link");
        fs::remove_file(&name).expect("removed");
        let mut part = PartFile::create(&name).expect("prepared");
        symlink(&victim, &part.path).expect("an attacker guessed the name");
        assert!(part.write(b"data").is_err(), "the part file must be new");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "precious");
    }

    #[test]
    fn the_file_is_private_and_read_back_from_the_same_open_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = dir.path().join("n".repeat(255));
        let mut part = PartFile::create(&name).expect("prepared");
        part.write(b"da").expect("written");
        part.write(b"ta").expect("written");
        let mode = fs::metadata(&part.path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::rename(&part.path, dir.path().join("moved")).expect("moved away");
        fs::write(&part.path, "forged").expect("replaced");
        let mut read = String::new();
        part.sync().expect("synced").read_to_string(&mut read).expect("read");
        assert_eq!(read, "data");
    }
}
