//! Writes several files together: all of them appear, or none.
//!
//! Every file is complete and synced under a temporary name before the first one gets its own. If a later step fails, the files and
//! directories that were created are removed again. A replaced file is the last step, so that nothing can fail after it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use leasehold::Error;

use crate::output::CommandError;
use crate::part_file::{PartFile, sync_folder, write_error};

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Only its owner, from its creation on.
    Private,
    /// Everyone, as far as the umask allows.
    Public,
}

/// Files that are written together.
#[derive(Default)]
pub struct FileSet {
    directories: Vec<(PathBuf, u32)>,
    created: Vec<(PathBuf, FileAccess, String)>,
    replaced: Vec<(PathBuf, String)>,
}

impl FileSet {
    /// Adds a directory, which may exist already. Its parent exists, or was added before.
    pub fn directory(&mut self, path: &Path, mode: u32) {
        self.directories.push((path.to_owned(), mode));
    }

    /// Adds a directory that must not exist, because another user could own it.
    pub fn new_directory(&mut self, path: &Path, mode: u32) -> Result<(), CommandError> {
        refuse_existing(path)?;
        self.directory(path, mode);
        Ok(())
    }

    /// Adds a file that must not exist.
    pub fn create(&mut self, path: PathBuf, access: FileAccess, contents: String) -> Result<(), CommandError> {
        refuse_existing(&path)?;
        self.created.push((path, access, contents));
        Ok(())
    }

    /// Adds the new contents of an existing file, which keeps its mode and its owner.
    pub fn replace(&mut self, path: PathBuf, contents: String) {
        self.replaced.push((path, contents));
    }

    /// Writes all files. Returns the names of new and replaced ones.
    pub fn commit(self) -> Result<Vec<PathBuf>, CommandError> {
        let mut undo = Undo::default();
        for (path, mode) in &self.directories {
            match DirBuilder::new().mode(*mode).create(path) {
                Ok(()) => undo.directories.push(path.clone()),
                // Also through a symbolic link.
                Err(_) if path.is_dir() => {}
                Err(error) => return Err(write_error(path, &error)),
            }
        }
        let mut parts = Vec::new();
        for (path, access, contents) in &self.created {
            let part = PartFile::create(path)?;
            parts.push(complete(if *access == FileAccess::Public { part.readable() } else { part }, contents)?);
        }
        let mut replacements = Vec::new();
        for (path, contents) in &self.replaced {
            replacements.push(complete(PartFile::replace(path)?, contents)?);
        }
        for part in parts {
            undo.files.push(part.publish()?);
        }
        for name in &undo.files {
            sync_folder(name)?;
        }
        let mut names = undo.keep();
        for part in replacements {
            let name = part.publish()?;
            sync_folder(&name)?;
            names.push(name);
        }
        Ok(names)
    }
}

fn refuse_existing(path: &Path) -> Result<(), Error> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let at = path.display();
    let message = format!("{at} already exists and nothing was written; remove it, or choose another name");
    Err(Error::config("file", message))
}

fn complete(mut part: PartFile, contents: &str) -> Result<PartFile, CommandError> {
    part.write(contents.as_bytes())?;
    part.sync()?;
    Ok(part)
}

/// Removes what was created, unless everything was.
#[derive(Default)]
struct Undo {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Undo {
    fn keep(mut self) -> Vec<PathBuf> {
        self.directories.clear();
        std::mem::take(&mut self.files)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // What cannot be removed is reported by the next attempt, which finds it.
        for file in self.files.iter().rev() {
            let _ = fs::remove_file(file);
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder exists").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn all_files_appear_and_an_existing_one_is_replaced_in_place() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "before").expect("the directory is writable");
        let mut files = FileSet::default();
        files.directory(&at("new"), 0o755);
        files.create(at("new/a"), FileAccess::Private, "secret".into()).expect("it does not exist");
        files.create(at("b"), FileAccess::Public, "public".into()).expect("it does not exist");
        files.replace(at("old"), "after".into());
        assert_eq!(files.commit().expect("written"), [at("new/a"), at("b"), at("old")]);
        assert_eq!(fs::read_to_string(at("old")).expect("it is there"), "after");
        assert_eq!(names(folder.path()), ["b", "new", "old"]);
        assert_eq!(names(&at("new")), ["a"]);
    }

    #[test]
    fn a_failure_after_the_first_file_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "before").expect("the directory is writable");
        let mut files = FileSet::default();
        files.directory(&at("new"), 0o755);
        files.create(at("new/a"), FileAccess::Private, "one".into()).expect("it does not exist");
        // The second file of the same name finds the first one when it gets its name.
        files.create(at("new/a"), FileAccess::Private, "two".into()).expect("it does not exist");
        files.replace(at("old"), "after".into());
        assert!(files.commit().is_err());
        assert_eq!(names(folder.path()), ["old"]);
        assert_eq!(fs::read_to_string(at("old")).expect("it is there"), "before");
    }

    #[test]
    fn an_existing_file_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("nowhere", at("link")).expect("the directory is writable");
        let mut files = FileSet::default();
        files.create(at("a"), FileAccess::Public, String::new()).expect("it does not exist");
        assert!(files.create(at("link"), FileAccess::Public, String::new()).is_err(), "also a link to nothing");
        assert_eq!(names(folder.path()), ["link"]);
    }
}
