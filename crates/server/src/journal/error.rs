//! What stops a journal from being opened, written or read, each with its code and the next step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::etcd::Refused;

/// Why something was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no room, and nothing was kept. The same may be tried again.
    Full,
    /// What is on the disk is not known any more: the process must stop, and the journal be opened anew.
    Failed {
        /// What went wrong, with the file.
        why: String,
    },
}

impl Fault {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full => "STORAGE_FULL",
            Self::Failed { .. } => "STORAGE_FAILED",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the journal has no room; free space, and the same request can be tried again"),
            Self::Failed { why } => write!(f, "the journal failed: {why}; check the disk, then start again"),
        }
    }
}

impl std::error::Error for Fault {}

/// Why batches or a snapshot were not told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTold {
    /// They are not kept any more; begin at the newest snapshot.
    Trimmed {
        /// The first sequence that is kept.
        first: u64,
    },
    /// They could not be read.
    Unreadable {
        /// What went wrong, with the file.
        why: String,
    },
}

impl fmt::Display for NotTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trimmed { first } => {
                write!(f, "the journal begins at {first}; read the newest snapshot, then on from there")
            }
            Self::Unreadable { why } => write!(f, "the journal cannot be read: {why}"),
        }
    }
}

impl std::error::Error for NotTold {}

/// Why a journal was not opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum OpenError {
    /// The directory would have to be created in one that is not there.
    ParentMissing { path: PathBuf },
    /// Something else stands where the directory should be.
    NotADirectory { path: PathBuf },
    /// A link could lead elsewhere tomorrow.
    Symlink { path: PathBuf },
    /// This process may not write there.
    NotWritable { path: PathBuf },
    /// Others on this machine may reach into it.
    TooOpen { path: PathBuf, mode: u32 },
    /// Another user's.
    OwnedByOther { path: PathBuf, owner: u32, own: u32 },
    /// The kernel's lock holds on one machine only, and a sync may not be one.
    NetworkFilesystem { path: PathBuf, kind: &'static str },
    /// Another process writes it.
    InUse { path: PathBuf, pid: Option<u32> },
    /// It was written in another place: two copies would give out the same tokens.
    Copied { path: PathBuf, what: &'static str },
    /// A restore into it was broken off.
    Unfinished { path: PathBuf },
    /// Damage that no crash explains (V2).
    Corrupt { file: PathBuf, offset: u64, reason: String },
    /// The file of another journal.
    Foreign { file: PathBuf },
    /// Written by a newer version.
    UnsupportedVersion { file: PathBuf, have: u32, want: u32 },
    /// There is no room to begin.
    Full { path: PathBuf },
    /// The machine refused.
    Failed { path: PathBuf, why: String },
    /// The one on etcd was not opened.
    Etcd(Refused),
}

impl OpenError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ParentMissing { .. }
            | Self::NotADirectory { .. }
            | Self::Symlink { .. }
            | Self::NotWritable { .. }
            | Self::TooOpen { .. }
            | Self::OwnedByOther { .. }
            | Self::NetworkFilesystem { .. }
            | Self::InUse { .. }
            | Self::Unfinished { .. }
            | Self::Copied { .. } => "CONFIG",
            Self::Corrupt { .. } => "CORRUPT",
            Self::Foreign { .. } => "WRONG_CLUSTER",
            Self::UnsupportedVersion { .. } => "UNSUPPORTED_VERSION",
            Self::Full { .. } => "STORAGE_FULL",
            Self::Failed { .. } => "STORAGE_FAILED",
            Self::Etcd(why) => why.code(),
        }
    }

    /// What an operation on a path ran into.
    pub fn from_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            return Self::Symlink { path };
        }
        match error.kind() {
            _ if is_full(error) => Self::Full { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path },
            _ => Self::Failed { path, why: error.to_string() },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentMissing { path } => {
                write!(f, "{}: the directory above it is missing; create that first", path.display())
            }
            Self::NotADirectory { path } => {
                write!(f, "{}: not a directory; name another, or move what is there away", path.display())
            }
            Self::Symlink { path } => {
                write!(f, "{}: a symbolic link; name what it points to", path.display())
            }
            Self::NotWritable { path } => {
                write!(f, "{}: not writable; change its owner or mode, or name another directory", path.display())
            }
            Self::TooOpen { path, mode } => {
                let path = path.display();
                write!(f, "{path}: mode {mode:04o} lets others in; run `chmod 700 {path}`")
            }
            Self::OwnedByOther { path, owner, own } => {
                let path = path.display();
                write!(f, "{path}: owned by user {owner}, not by {own}; run as user {owner}, or change its owner")
            }
            Self::NetworkFilesystem { path, kind } => {
                write!(f, "{}: on a {kind} filesystem; name a directory on a disk of this machine", path.display())
            }
            Self::InUse { path, pid: Some(pid) } => {
                write!(f, "{}: in use by process {pid}; stop that one first", path.display())
            }
            Self::InUse { path, pid: None } => {
                write!(f, "{}: in use by another process; stop that one first", path.display())
            }
            Self::Copied { path, what } => write!(
                f,
                "{}: a copy, its {what} is another; if the original will never run again, accept the copy",
                path.display()
            ),
            Self::Unfinished { path } => {
                write!(f, "{}: a restore into it was broken off; empty it and restore again", path.display())
            }
            Self::Corrupt { file, offset, reason } => {
                write!(f, "{} at byte {offset}: {reason}; restore from a backup", file.display())
            }
            Self::Foreign { file } => {
                write!(f, "{}: belongs to another journal; move it away", file.display())
            }
            Self::UnsupportedVersion { file, have, want } => write!(
                f,
                "{}: format version {have}, and this program knows up to {want}; use a newer one",
                file.display()
            ),
            Self::Full { path } => write!(f, "{}: no space left; free some and start again", path.display()),
            Self::Failed { path, why } => write!(f, "{}: {why}; check the disk, then start again", path.display()),
            Self::Etcd(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// No space, or no more of it for this user.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
