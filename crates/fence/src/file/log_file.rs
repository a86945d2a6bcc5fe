//! The file of a fenced log: opening with validation, locking, and reading entries.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_core::limits::LOG_ENTRY_BYTES;
use rustix::fs::{FlockOperation, flock, fstatfs};
use rustix::io::Errno;

use super::identity::{FileIdentity, OWNER_ONLY};
use super::log_format::{self, EntryHead, HEAD_LEN, HEADER_LEN, HeaderError, LogHeader};
use crate::error::OTHER_FENCE;
use crate::{Error, FenceId, FenceRefusal, MarkLoss, lock_holders};

/// Filesystems whose locks or syncs are not reliable.
const NETWORK_FILESYSTEMS: [u64; 10] = [
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB2
    0x0102_1997, // 9P
    0x6573_5546, // FUSE
    0x5346_414F, // AFS
    0x00C3_6400, // Ceph
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
];
/// Pause between two attempts to get the lock.
pub(super) const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Limit of the search for entries after damage: an index further ahead is not considered an entry of this log.
const MAX_INDEX_GAP: u64 = 1 << 20;

/// An open log.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) salt: u64,
    /// Version of the log's format.
    version: u8,
}

/// The result of reading an entry at an offset.
#[derive(Debug)]
pub(super) enum EntryAt {
    /// A complete entry, its payload, and the offset of the next one.
    Entry(EntryHead, Vec<u8>, u64),
    /// The end of the log. A crash may have remaining a partial append here, which was never acknowledged.
    End,
}

impl LogFile {
    pub(super) fn open(path: &Path, id: &FenceId) -> Result<Self, Error> {
        let (file, header) = Self::open_any(path)?;
        if header.cluster != id.cluster() {
            return Err(FenceRefusal::ForeignMark.into());
        }
        if !header.guards(id.key()) {
            return Err(Error::Conflict(OTHER_FENCE));
        }
        Ok(file)
    }

    /// Opens a log of any cluster and resource.
    pub(super) fn open_any(path: &Path) -> Result<(Self, LogHeader), Error> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into());
            }
            opened => opened?,
        };
        ensure_local_filesystem(&file)?;
        let mut bytes = [0; HEADER_LEN];
        let whole = file.metadata()?.len() >= bytes.len() as u64;
        if whole {
            file.read_exact_at(&mut bytes, 0)?;
        }
        let corrupt = |reason| Error::Corrupt { file: path.to_owned(), offset: 0, reason };
        let header = LogHeader::decode(&bytes).map_err(|error| match error {
            HeaderError::Shape => FenceRefusal::MarkLost(MarkLoss::Unreadable).into(),
            HeaderError::Version(found) => {
                Error::Version { found: found.into(), supported: log_format::VERSION.into() }
            }
            HeaderError::Checksum => corrupt("the header's checksum does not match"),
        })?;
        Ok((Self { path: path.to_owned(), file, salt: header.salt, version: header.version }, header))
    }

    /// Locks this log until the guard is dropped.
    pub(super) fn lock(&self, mode: LockMode, timeout: Duration) -> Result<LogLock<'_>, Error> {
        let began = Instant::now();
        let operation = match mode {
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
        };
        loop {
            match flock(&self.file, operation) {
                Ok(()) => return Ok(LogLock(&self.file)),
                Err(Errno::WOULDBLOCK) if began.elapsed() < timeout => thread::sleep(LOCK_POLL_INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Blocked {
                        waited: began.elapsed(),
                        blockers: lock_holders::pids(&[&self.path]),
                    });
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    /// The identity of the open file, if the path still refers to it.
    pub(super) fn identity(&self) -> Result<FileIdentity, Error> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => Ok(FileIdentity::of(&own)),
            Ok(_) => Err(FenceRefusal::MarkLost(MarkLoss::Moved).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(FenceRefusal::MarkLost(MarkLoss::Missing).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the entry with this index at `offset`. Requires the lock.
    pub(super) fn read_entry(&self, offset: u64, index: u64) -> Result<EntryAt, Error> {
        let end = self.file.metadata()?.len();
        if end < offset {
            return Err(self.corrupt(end, "the file is shorter than what was read from it earlier"));
        }
        if let Some((head, bytes)) = self.read_whole(offset, end, index)? {
            let next = offset + bytes.len() as u64;
            return Ok(EntryAt::Entry(head, bytes[HEAD_LEN..].to_vec(), next));
        }
        self.ensure_torn_tail(offset, end, index)?;
        Ok(EntryAt::End)
    }

    fn read_whole(&self, offset: u64, end: u64, index: u64) -> Result<Option<(EntryHead, Vec<u8>)>, Error> {
        if end - offset < HEAD_LEN as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; HEAD_LEN];
        self.file.read_exact_at(&mut bytes, offset)?;
        let Some(length) = log_format::entry_len(&bytes, index).filter(|length| *length as u64 <= end - offset) else {
            return Ok(None);
        };
        bytes.resize(length, 0);
        self.file.read_exact_at(&mut bytes[HEAD_LEN..], offset + HEAD_LEN as u64)?;
        Ok(log_format::decode(self.salt, &bytes).map(|head| (head, bytes)))
    }

    /// Ensures that the incomplete entry at `offset` is a torn append, which may be cut off. Each append is synced before the
    /// next begins. So an incomplete entry that is followed by a complete one, or by more bytes than one append can leave, was
    /// complete once: it is damage.
    fn ensure_torn_tail(&self, offset: u64, end: u64, index: u64) -> Result<(), Error> {
        let remaining = end - offset;
        if remaining > (HEAD_LEN + LOG_ENTRY_BYTES) as u64 {
            return Err(self.corrupt(offset, "more bytes follow than one append can leave"));
        }
        let mut rest = vec![0; usize::try_from(remaining).expect("it was compared with the limit above")];
        self.file.read_exact_at(&mut rest, offset)?;
        for from in 1..rest.len().saturating_sub(HEAD_LEN - 1) {
            let bytes = &rest[from..];
            let found_index = u64::from_le_bytes(std::array::from_fn(|i| bytes[9 + i]));
            if found_index <= index || found_index - index > MAX_INDEX_GAP {
                continue;
            }
            let length = log_format::entry_len(bytes, found_index).filter(|length| *length <= bytes.len());
            if length.and_then(|length| log_format::decode(self.salt, &bytes[..length])).is_some() {
                return Err(self.corrupt(offset, "an entry is incomplete and a complete one follows"));
            }
        }
        Ok(())
    }

    /// The identity to store in an arming. Version 1 has no time of birth.
    pub(super) fn identity_to_store(&self) -> Result<FileIdentity, Error> {
        let identity = self.identity()?;
        Ok(if self.version == 1 { FileIdentity { born: 0, ..identity } } else { identity })
    }

    pub(super) fn corrupt(&self, offset: u64, reason: &'static str) -> Error {
        Error::Corrupt { file: self.path.clone(), offset, reason }
    }
}

/// Creates the file of a log with its first bytes, atomically: written and synced under another name, then linked.
pub(super) fn create(path: &Path, bytes: impl FnOnce(FileIdentity) -> Vec<u8>) -> Result<(), Error> {
    let dir = parent_dir(path);
    let mut temp = path.as_os_str().to_owned();
    temp.push(format!(".{}-{:08x}.new", std::process::id(), rand_u64()?));
    let temp = PathBuf::from(temp);
    let file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&temp)?;
    let created = ensure_local_filesystem(&file).and_then(|()| {
        file.write_all_at(&bytes(FileIdentity::of(&file.metadata()?)), 0)?;
        file.sync_all()?;
        match fs::hard_link(&temp, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::Conflict("the file exists already; open it, or choose another name"))
            }
            linked => Ok(linked?),
        }
    });
    fs::remove_file(&temp)?;
    created?;
    Ok(File::open(dir)?.sync_all()?)
}

/// The directory of this path.
pub(super) fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns a random number.
pub(super) fn rand_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(u64::from_le_bytes(bytes))
}

pub(super) fn ensure_local_filesystem(file: &File) -> Result<(), Error> {
    let kind = fstatfs(file).map_err(io::Error::from)?.f_type as u64;
    if NETWORK_FILESYSTEMS.contains(&kind) {
        let actual = format!("a network filesystem ({kind:#x})");
        return Err(Error::NotDurable { setting: "the filesystem", actual, required: "a local one" });
    }
    Ok(())
}

/// How the log is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockMode {
    /// For appending.
    Exclusive,
    /// For reading complete entries.
    Shared,
}

/// Releases the lock when it is dropped.
#[derive(Debug)]
pub(super) struct LogLock<'a>(&'a File);

impl Drop for LogLock<'_> {
    fn drop(&mut self) {
        // Unlocking fails only for a closed descriptor.
        flock(self.0, FlockOperation::Unlock).ok();
    }
}
