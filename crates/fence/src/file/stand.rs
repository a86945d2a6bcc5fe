//! Where a replaced file stands: locked while it is the one that its path leads to, and replaced in one step.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, XattrFlags, fgetxattr, flock, fsetxattr};
use rustix::io::Errno;

use super::PATIENCE;
use super::shelf::{BETWEEN, folder_of, local, rand_u64};
use crate::place::Place;
use crate::state::State;
use crate::{Error, Kept, Lost, Refusal, blocker, text};

/// The attribute that keeps the mark. It goes where the file goes, and a copy without attributes has none.
const ATTRIBUTE: &str = "user.leasehold.mark";
/// More than any mark's text has.
const ATTRIBUTE_BYTES: usize = 4096;
/// Behind the name of a file that is not there yet.
const DRAFT: &str = ".leasehold-draft";

/// A path where a fenced file stands.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) path: PathBuf,
    pub(super) patience: Duration,
}

/// The file that stood there when it was opened.
#[derive(Debug)]
pub(super) struct Found {
    file: File,
    path: PathBuf,
}

/// The file that stands there, for as long as this lives: whoever replaces it must have this lock.
#[derive(Debug)]
pub(super) struct Inside(Found);

impl std::ops::Deref for Inside {
    type Target = Found;

    fn deref(&self) -> &Found {
        &self.0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Not by closing alone: a process that is just being started may have the descriptor too.
        flock(&self.0.file, FlockOperation::Unlock).ok();
    }
}

/// Opens the file that stands there now.
pub(super) fn read(path: &Path) -> Result<Found, Error> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Lost(Lost::Missing).into()),
        opened => {
            let file = opened?;
            local(&file)?;
            Ok(Found { file, path: path.to_owned() })
        }
    }
}

/// Makes the file with its mark, all or nothing.
pub(super) fn create(path: &Path, place: &Place, content: &[u8]) -> Result<(), Error> {
    let draft = Draft::new(path)?;
    draft.fill(place, &State::FRESH, content)?;
    match fs::hard_link(&draft.path, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Conflict("there is a file of this name already; arm it, or choose another name"));
        }
        linked => linked?,
    }
    drop(draft);
    Ok(File::open(folder_of(path))?.sync_all()?)
}

/// Whether this is what a writer that died left behind.
pub(super) fn is_draft(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(DRAFT))
}

impl Found {
    /// The mark's text, if one is kept.
    fn text(&self) -> Result<Option<String>, Error> {
        let mut bytes = [0; ATTRIBUTE_BYTES];
        match fgetxattr(&self.file, ATTRIBUTE, &mut bytes) {
            Ok(length) => {
                let unreadable = |_| Error::from(Refusal::Lost(Lost::Unreadable));
                String::from_utf8(bytes[..length].to_vec()).map(Some).map_err(unreadable)
            }
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(Errno::RANGE) => Err(Refusal::Lost(Lost::Unreadable).into()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    pub(super) fn is_marked(&self) -> Result<bool, Error> {
        Ok(self.text()?.is_some())
    }

    /// What is written there, whichever file it was written for.
    pub(super) fn as_written(&self, place: &Place) -> Result<State, Error> {
        let text = self.text()?.ok_or(Refusal::Lost(Lost::Missing))?;
        text::read(&text)?.at(place)
    }

    /// What counts: in a file that is not the one that was armed the mark is lost.
    pub(super) fn state(&self, place: &Place) -> Result<State, Error> {
        let text = self.text()?.ok_or(Refusal::Lost(Lost::Missing))?;
        let written = text::read(&text)?;
        written.at(place)?;
        self.counts(&written)
    }

    fn counts(&self, written: &text::Written<'_>) -> Result<State, Error> {
        let own = written.value("inode") == Some(self.file.metadata()?.ino().to_string().as_str());
        let lost = if own { written.state.lost } else { Some(Lost::Moved) };
        Ok(State { lost, ..written.state })
    }

    /// For a survey: nothing if no mark is kept here.
    pub(super) fn kept(&self) -> Result<Option<Kept>, Error> {
        let Some(text) = self.text()? else { return Ok(None) };
        let written = text::read(&text)?;
        Ok(Some(written.kept(&self.counts(&written)?)))
    }

    pub(super) fn content(&self) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        (&self.file).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Makes durable what stands there, whoever put it there.
    pub(super) fn sync(&self, stand: &Stand) -> Result<(), Error> {
        self.file.sync_all()?;
        Ok(File::open(folder_of(&stand.path))?.sync_all()?)
    }

    /// Whether the path still leads to it.
    fn stands(&self) -> Result<bool, Error> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Lost(Lost::Missing).into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Stand {
    /// Where the file of this path really stands: a link is not replaced, what it leads to is.
    pub(super) fn at(path: &Path) -> Result<Self, Error> {
        match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal::Lost(Lost::Missing).into()),
            path => Ok(Self { path: path?, patience: PATIENCE }),
        }
    }

    /// Takes the lock of the file that the path leads to. Who waited finds another file there, and takes that one's.
    pub(super) fn enter(&self) -> Result<Inside, Error> {
        let began = Instant::now();
        loop {
            let found = read(&self.path)?;
            match flock(&found.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let inside = Inside(found);
                    if inside.stands()? {
                        return Ok(inside);
                    }
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(BETWEEN),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            if began.elapsed() >= self.patience {
                return Err(Error::Blocked { waited: began.elapsed(), by: blocker::holders(&[&self.path]) });
            }
        }
    }

    /// Puts a file with this content and mark in the place of the one that stands there, durably.
    pub(super) fn put(&self, inside: Inside, place: &Place, state: &State, content: &[u8]) -> Result<(), Error> {
        let draft = Draft::new(&self.path)?;
        draft.file.set_permissions(inside.file.metadata()?.permissions())?;
        draft.fill(place, state, content)?;
        fs::rename(&draft.path, &self.path)?;
        // Until here the old file's lock kept others out; from here the new file's mark does.
        let folder = File::open(folder_of(&self.path))?.sync_all();
        drop(inside);
        Ok(folder?)
    }

    /// Removes what writers that died left. Whoever writes has the lock, so nobody is writing what is removed here.
    pub(super) fn clear_drafts(&self) -> Result<(), Error> {
        let own = draft_of(&self.path);
        for entry in fs::read_dir(folder_of(&self.path))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&*own.to_string_lossy()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// A file that is being made, and removed again unless it found its place.
#[derive(Debug)]
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn new(path: &Path) -> Result<Self, Error> {
        let mut name = draft_of(path);
        name.push(format!("-{}-{:016x}", std::process::id(), rand_u64()?));
        let path = folder_of(path).join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }

    fn fill(&self, place: &Place, state: &State, content: &[u8]) -> Result<(), Error> {
        local(&self.file)?;
        (&self.file).write_all(content)?;
        let mark = text::write(place, state, &[("inode", self.file.metadata()?.ino().to_string())]);
        fsetxattr(&self.file, ATTRIBUTE, mark.as_bytes(), XattrFlags::empty()).map_err(|errno| match errno {
            Errno::NOTSUP => Error::NotDurable {
                setting: "the filesystem",
                have: "without user attributes".to_owned(),
                want: "one that keeps them (ext4, xfs, btrfs)",
            },
            other => io::Error::from(other).into(),
        })?;
        Ok(self.file.sync_all()?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is not there any more if it was renamed.
        fs::remove_file(&self.path).ok();
    }
}

fn draft_of(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(DRAFT);
    name
}
