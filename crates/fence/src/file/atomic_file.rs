//! Atomic replacement of a file together with its mark, under a lock.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, XattrFlags, fgetxattr, flock, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::CLAIM_TIMEOUT;
use super::identity::{FileIdentity, OWNER_ONLY};
use super::log_file::{LOCK_POLL_INTERVAL, ensure_local_filesystem, parent_dir, rand_u64};
use crate::mark_state::MarkState;
use crate::{Error, FenceId, FenceRefusal, MarkInfo, MarkLoss, lock_holders, mark_text};

/// The extended attribute that stores the mark. It moves with the file; a copy without attributes has no mark.
const ATTRIBUTE: &str = "user.leasehold.mark";
/// Larger than any mark.
const ATTRIBUTE_BYTES: usize = 4096;
/// The extended attribute with the access control list. Where there is one, the group's bits of the mode are its mask.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Larger than any access control list.
const ACCESS_LIST_BYTES: usize = 1 << 16;
/// Part of the name of a temporary file.
const TEMP_SUFFIX: &str = ".leasehold-draft";

/// The path of a fenced file.
#[derive(Debug)]
pub(super) struct AtomicFile {
    pub(super) path: PathBuf,
    pub(super) claim_timeout: Duration,
}

/// The file at a path at the time it was opened. It may have been replaced since.
#[derive(Debug)]
pub(super) struct OpenedFile {
    file: File,
    path: PathBuf,
}

/// The current file at a path, locked until this is dropped. A replacement requires this lock.
#[derive(Debug)]
pub(super) struct LockedFile(OpenedFile);

impl std::ops::Deref for LockedFile {
    type Target = OpenedFile;

    fn deref(&self) -> &OpenedFile {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Unlock explicitly: a child process that is being spawned may share the descriptor.
        flock(&self.0.file, FlockOperation::Unlock).ok();
    }
}

/// Opens the current file. A pipe is not waited for.
pub(super) fn open(path: &Path) -> Result<OpenedFile, Error> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open");
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
        opened => {
            let file = opened?;
            if !file.metadata()?.is_file() {
                return Err(Error::InvalidArgument("the path is not that of a regular file; choose another"));
            }
            ensure_local_filesystem(&file)?;
            Ok(OpenedFile { file, path: path.to_owned() })
        }
    }
}

/// Creates the file with its mark, atomically.
pub(super) fn create(path: &Path, id: &FenceId, content: &[u8]) -> Result<(), Error> {
    let temp = TempFile::new(path)?;
    temp.write(id, &MarkState::FRESH, content)?;
    match fs::hard_link(&temp.path, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Conflict("the file exists already; arm it, or choose another name"));
        }
        linked => linked?,
    }
    drop(temp);
    Ok(File::open(parent_dir(path))?.sync_all()?)
}

/// Whether this is a temporary file, left by a writer that died.
pub(super) fn is_temp_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(TEMP_SUFFIX))
}

impl OpenedFile {
    /// The text of the mark, if the file has one.
    fn mark_text(&self) -> Result<Option<String>, Error> {
        let mut bytes = [0; ATTRIBUTE_BYTES];
        match fgetxattr(&self.file, ATTRIBUTE, &mut bytes) {
            Ok(length) => {
                let unreadable = |_| Error::from(FenceRefusal::MarkLost(MarkLoss::Unreadable));
                String::from_utf8(bytes[..length].to_vec()).map(Some).map_err(unreadable)
            }
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(Errno::RANGE) => Err(FenceRefusal::MarkLost(MarkLoss::Unreadable).into()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    pub(super) fn is_marked(&self) -> Result<bool, Error> {
        Ok(self.mark_text()?.is_some())
    }

    /// The stored state, even if the file was copied.
    pub(super) fn stored_state(&self, id: &FenceId) -> Result<MarkState, Error> {
        let text = self.mark_text()?.ok_or(FenceRefusal::MarkLost(MarkLoss::Missing))?;
        mark_text::parse(&text)?.state_for(id)
    }

    /// The effective state: if this is not the file that was armed, its mark is lost.
    pub(super) fn state(&self, id: &FenceId) -> Result<MarkState, Error> {
        let text = self.mark_text()?.ok_or(FenceRefusal::MarkLost(MarkLoss::Missing))?;
        let parsed = mark_text::parse(&text)?;
        parsed.state_for(id)?;
        self.effective_state(&parsed)
    }

    fn effective_state(&self, parsed: &mark_text::ParsedMark<'_>) -> Result<MarkState, Error> {
        let value = |key| parsed.value(key).and_then(|text| text.parse().ok());
        let stored = value("inode").map(|inode| FileIdentity { inode, born: value("born").unwrap_or(0) });
        let current = FileIdentity::of(&self.file.metadata()?);
        let own = stored.is_some_and(|stored| stored.is(current));
        let lost = if own { parsed.state.loss } else { Some(MarkLoss::Moved) };
        Ok(MarkState { loss: lost, ..parsed.state })
    }

    /// The mark, if the file has one.
    pub(super) fn mark_info(&self) -> Result<Option<MarkInfo>, Error> {
        let Some(text) = self.mark_text()? else { return Ok(None) };
        let parsed = mark_text::parse(&text)?;
        Ok(Some(parsed.info(&self.effective_state(&parsed)?)))
    }

    pub(super) fn content(&self) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        (&self.file).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Makes the file durable, in case its writer died before its sync.
    pub(super) fn sync(&self, target: &AtomicFile) -> Result<(), Error> {
        self.file.sync_all()?;
        Ok(File::open(parent_dir(&target.path))?.sync_all()?)
    }

    /// Marks this file as replaced, if it has other names. Such a name is an old copy, with the identity of the file that was armed.
    fn mark_replaced(&self, names: u64, id: &FenceId) -> Result<(), Error> {
        if self.file.metadata()?.nlink() <= names {
            return Ok(());
        }
        // A file without a mark of this fence admits nothing anyway.
        let Ok(state) = self.stored_state(id) else { return Ok(()) };
        set_mark(&self.file, id, &state, FileIdentity { inode: 0, born: 0 })?;
        Ok(self.file.sync_all()?)
    }

    /// Gives another file the permissions of this one.
    fn copy_permissions(&self, to: &File) -> Result<(), Error> {
        to.set_permissions(self.file.metadata()?.permissions())?;
        let mut list = vec![0; ACCESS_LIST_BYTES];
        let copied = match fgetxattr(&self.file, ACCESS_LIST, &mut list) {
            Ok(length) => fsetxattr(to, ACCESS_LIST, &list[..length], XattrFlags::empty()),
            // The directory may give each new file a list.
            Err(Errno::NODATA) => match fremovexattr(to, ACCESS_LIST) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            },
            Err(Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(errno),
        };
        Ok(copied.map_err(io::Error::from)?)
    }

    /// Whether the path still refers to this file.
    fn is_current(&self) -> Result<bool, Error> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(current) => Ok((current.dev(), current.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FenceRefusal::MarkLost(MarkLoss::Missing).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AtomicFile {
    /// Resolves the path: a link is followed, so that its target is replaced and not the link.
    pub(super) fn resolve(path: &Path) -> Result<Self, Error> {
        match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FenceRefusal::MarkLost(MarkLoss::Missing).into())
            }
            path => Ok(Self { path: path?, claim_timeout: CLAIM_TIMEOUT }),
        }
    }

    /// Locks the current file. If another writer replaced it while this one waited, locks the new file instead.
    pub(super) fn lock(&self) -> Result<LockedFile, Error> {
        let began = Instant::now();
        loop {
            let opened_file = open(&self.path)?;
            match flock(&opened_file.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let locked = LockedFile(opened_file);
                    if locked.is_current()? {
                        return Ok(locked);
                    }
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_POLL_INTERVAL),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            if began.elapsed() >= self.claim_timeout {
                return Err(Error::Blocked { waited: began.elapsed(), blockers: lock_holders::pids(&[&self.path]) });
            }
        }
    }

    /// Replaces the file with this content and mark, durably.
    pub(super) fn replace(
        &self,
        locked: LockedFile,
        id: &FenceId,
        state: &MarkState,
        content: &[u8],
    ) -> Result<(), Error> {
        let temp = TempFile::new(&self.path)?;
        locked.copy_permissions(&temp.file)?;
        temp.write(id, state, content)?;
        // While this writer was paused, the file may have been restored and re-armed: its lock excludes no one any more.
        if !locked.is_current()? {
            return Err(FenceRefusal::MarkLost(MarkLoss::Moved).into());
        }
        locked.mark_replaced(1, id)?;
        fs::rename(&temp.path, &self.path)?;
        // Up to the rename the lock of the old file excluded other writers; from now on the new mark rejects lower tokens.
        let synced = File::open(parent_dir(&self.path))?.sync_all();
        // A name that was added in between.
        let marked = locked.mark_replaced(0, id);
        drop(locked);
        synced?;
        marked
    }

    /// Removes temporary files of writers that died. Requires the lock, so no writer uses one of them.
    pub(super) fn remove_temp_files(&self) -> Result<(), Error> {
        let own = temp_prefix(&self.path);
        for entry in fs::read_dir(parent_dir(&self.path))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&*own.to_string_lossy()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// A temporary file, removed on drop unless it was renamed.
#[derive(Debug)]
struct TempFile {
    path: PathBuf,
    file: File,
}

impl TempFile {
    fn new(path: &Path) -> Result<Self, Error> {
        let mut name = temp_prefix(path);
        name.push(format!("-{}-{:016x}", std::process::id(), rand_u64()?));
        let path = parent_dir(path).join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&path)?;
        Ok(Self { path, file })
    }

    fn write(&self, id: &FenceId, state: &MarkState, content: &[u8]) -> Result<(), Error> {
        ensure_local_filesystem(&self.file)?;
        (&self.file).write_all(content)?;
        set_mark(&self.file, id, state, FileIdentity::of(&self.file.metadata()?))?;
        Ok(self.file.sync_all()?)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // It does not exist if it was renamed.
        fs::remove_file(&self.path).ok();
    }
}

/// Sets the mark of a file, for the file with this identity.
fn set_mark(file: &File, id: &FenceId, state: &MarkState, identity: FileIdentity) -> Result<(), Error> {
    let FileIdentity { inode, born } = identity;
    let mark = mark_text::encode(id, state, &[("inode", inode.to_string()), ("born", born.to_string())]);
    fsetxattr(file, ATTRIBUTE, mark.as_bytes(), XattrFlags::empty()).map_err(|errno| match errno {
        Errno::NOTSUP => Error::NotDurable {
            setting: "the filesystem",
            actual: "one without extended attributes".to_owned(),
            required: "one with extended attributes (ext4, xfs, btrfs)",
        },
        other => io::Error::from(other).into(),
    })
}

fn temp_prefix(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(TEMP_SUFFIX);
    name
}
