//! Errors of opening, writing and reading a journal, with their codes and next steps.

mod etcd;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use etcd::{EtcdOpenError, KeyMismatch};

/// A write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The disk is full and nothing was stored. The write can be retried.
    Full,
    /// The journal was restored to an earlier state while this server led. Others are stopped by a marker where it is shared.
    RolledBack {
        /// What proves it.
        reason: String,
    },
    /// The content of the disk is unknown: the process must stop, and the journal must be opened again.
    Failed {
        /// The error, with the file.
        reason: String,
    },
}

impl JournalError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full => "STORAGE_FULL",
            Self::RolledBack { .. } => "ROLLED_BACK",
            Self::Failed { .. } => "STORAGE_FAILED",
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the journal is full; free some space and retry the request"),
            Self::RolledBack { reason } => write!(
                f,
                "the journal was rolled back while this server led: {reason}; acknowledged grants are lost; if etcd was restored \
                 from a snapshot, start one server with --accept-restored"
            ),
            Self::Failed { reason } => {
                write!(f, "the journal failed: {reason}; check the disk, then restart the server")
            }
        }
    }
}

impl std::error::Error for JournalError {}

/// A read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The batches were trimmed; start at the newest snapshot.
    Trimmed {
        /// The first sequence that is left.
        first: u64,
    },
    /// The read failed.
    Unreadable {
        /// The error, with the file.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trimmed { first } => {
                write!(f, "the journal starts at batch {first}; read the newest snapshot and continue after it")
            }
            Self::Unreadable { reason } => write!(f, "the journal cannot be read: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// A journal was not opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum OpenError {
    /// The parent directory does not exist.
    ParentMissing { path: PathBuf },
    /// The path is not a directory.
    NotADirectory { path: PathBuf },
    /// The path is a symbolic link, whose target could change.
    Symlink { path: PathBuf },
    /// This process has no write permission.
    NotWritable { path: PathBuf },
    /// Other users of this machine have access to it.
    TooOpen { path: PathBuf, mode: u32 },
    /// Another user owns it.
    OwnedByOther { path: PathBuf, owner: u32, own: u32 },
    /// A network filesystem, where the lock does not fence and a sync may not be durable.
    NetworkFilesystem { path: PathBuf, kind: &'static str },
    /// Another process has it open.
    InUse { path: PathBuf, pid: Option<u32> },
    /// It was copied or moved: two copies would issue the same tokens.
    Copied { path: PathBuf, what: &'static str },
    /// A restore into it was interrupted.
    Unfinished { path: PathBuf },
    /// Damage that no crash explains (V2).
    Corrupt { file: PathBuf, offset: u64, reason: String },
    /// A file belongs to another journal.
    Foreign { file: PathBuf },
    /// Written by a newer version.
    UnsupportedVersion { file: PathBuf, have: u32, want: u32 },
    /// The disk is full.
    Full { path: PathBuf },
    /// The operating system reported an error.
    Failed { path: PathBuf, reason: String },
    /// The journal in etcd was not opened.
    Etcd(EtcdOpenError),
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
            Self::Etcd(error) => error.code(),
        }
    }

    /// The error for a failed operation on a path.
    pub fn from_io(path: &Path, error: &io::Error) -> Self {
        let path = path.to_owned();
        if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            return Self::Symlink { path };
        }
        match error.kind() {
            _ if is_full(error) => Self::Full { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path },
            _ => Self::Failed { path, reason: error.to_string() },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentMissing { path } => {
                write!(f, "{}: the parent directory does not exist; create it first", path.display())
            }
            Self::NotADirectory { path } => {
                write!(f, "{}: not a directory; choose another path, or move the file away", path.display())
            }
            Self::Symlink { path } => {
                write!(f, "{}: a symbolic link; use its target", path.display())
            }
            Self::NotWritable { path } => {
                write!(f, "{}: not writable; change its owner or mode, or choose another directory", path.display())
            }
            Self::TooOpen { path, mode } => {
                let path = path.display();
                write!(f, "{path}: mode {mode:04o} gives access to other users; run `chmod 700 {path}`")
            }
            Self::OwnedByOther { path, owner, own } => {
                let path = path.display();
                write!(f, "{path}: owned by user {owner}, not by user {own}; run as user {owner}, or change the owner")
            }
            Self::NetworkFilesystem { path, kind } => {
                write!(f, "{}: on a {kind} filesystem; choose a directory on a local disk", path.display())
            }
            Self::InUse { path, pid: Some(pid) } => {
                write!(f, "{}: in use by process {pid}; stop it first", path.display())
            }
            Self::InUse { path, pid: None } => {
                write!(f, "{}: in use by another process; stop it first", path.display())
            }
            Self::Copied { path, what } => write!(
                f,
                "{}: a copy from another {what}; if the original never runs again, pass --accept-copy",
                path.display()
            ),
            Self::Unfinished { path } => {
                write!(f, "{}: a restore was interrupted; empty the directory and restore again", path.display())
            }
            Self::Corrupt { file, offset, reason } => {
                write!(f, "{} at byte {offset}: {reason}; restore from a backup", file.display())
            }
            Self::Foreign { file } => {
                write!(f, "{}: belongs to another journal; move it away", file.display())
            }
            Self::UnsupportedVersion { file, have, want } => write!(
                f,
                "{}: format version {have} is newer than {want}; use a newer version of leasehold",
                file.display()
            ),
            Self::Full { path } => write!(f, "{}: no space left; free some space and start again", path.display()),
            Self::Failed { path, reason } => {
                write!(f, "{}: {reason}; check the disk, then start again", path.display())
            }
            Self::Etcd(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// Whether the disk or the user's quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
