//! The error that every fence returns.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::name::NameError;

use crate::FenceRefusal;

/// The message of a conflict: the mark is not that of the fence which reads it.
#[cfg(any(
    feature = "dynamodb",
    feature = "etcd",
    feature = "file",
    feature = "nats",
    feature = "objects",
    feature = "redis"
))]
pub(crate) const OTHER_FENCE: &str = "the mark belongs to another resource or slot; pass the resource and slot for which it was armed, or another target";

/// Why nothing was claimed or written. Each variant has a stable code, and its text ends with the next step.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The fence rejected the token. The decision is final for this token, unless the refusal says otherwise.
    Refused(FenceRefusal),
    /// Another writer held the target for the whole timeout (F8). Nothing changed.
    Blocked {
        /// How long the call waited.
        waited: Duration,
        /// Process ids of the writers that hold the target, where the target reports them. In a database server these are
        /// backend process ids.
        blockers: Vec<u32>,
    },
    /// With its current settings the target could lose a mark (F2).
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// Its value.
        actual: String,
        /// The value that it must have.
        required: &'static str,
    },
    /// The target contains another version of the fence.
    Version {
        /// The version in the target.
        found: u32,
        /// The version that this crate supports.
        supported: u32,
    },
    /// The name of a resource is invalid. The error names the field.
    InvalidName(NameError),
    /// An argument is invalid, or the call is not allowed here.
    InvalidArgument(&'static str),
    /// The request contradicts what the target stores.
    Conflict(&'static str),
    /// The target rejected the call. Nothing changed.
    Rejected {
        /// The stable code.
        code: &'static str,
        /// The target's own message, with the next step.
        message: String,
    },
    /// Stored bytes are damaged.
    Corrupt {
        /// The file or object.
        file: PathBuf,
        /// Byte offset of the damage.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// The target failed. The write may or may not have been applied; read the target to find out.
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// The stable code from the table of error codes.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Blocked { .. } => "UNAVAILABLE",
            Self::NotDurable { .. } => "CONFIG",
            Self::Version { .. } => "UNSUPPORTED_VERSION",
            Self::InvalidName(error) => error.code(),
            Self::InvalidArgument(_) => "INVALID_ARGUMENT",
            Self::Conflict(_) => "CONFLICT",
            Self::Rejected { code, .. } => code,
            Self::Corrupt { .. } => "CORRUPT",
            Self::Storage(_) => "STORAGE_FAILED",
        }
    }

    /// The refusal, if the fence rejected the token.
    pub const fn refusal(&self) -> Option<&FenceRefusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Blocked { waited, blockers } => {
                write!(f, "another writer held the target for {waited:?}")?;
                if blockers.is_empty() {
                    f.write_str("; find the writer, then retry")
                } else {
                    write!(f, ": process {blockers:?}; end it if it is a paused holder, then retry")
                }
            }
            Self::NotDurable { setting, actual, required } => {
                write!(f, "{setting} is {actual}: a power failure could lose the mark; set it to {required}")
            }
            Self::Version { found, supported } => {
                write!(
                    f,
                    "the target has fence version {found}, this library supports {supported}; update the older side"
                )
            }
            Self::InvalidName(error) => error.fmt(f),
            Self::InvalidArgument(what) | Self::Conflict(what) => f.write_str(what),
            Self::Rejected { message, .. } => f.write_str(message),
            Self::Corrupt { file, offset, reason } => {
                write!(
                    f,
                    "{} is damaged at byte {offset}: {reason}; keep the file and restore a backup",
                    file.display()
                )
            }
            Self::Storage(error) => {
                let error = with_causes(&**error);
                write!(f, "the target failed: {error}; read the target to see if the write was applied, then retry")
            }
        }
    }
}

/// The text of an error and of its causes. Some errors repeat their cause, and some name it only there.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::InvalidName(error) => Some(error),
            Self::Storage(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<FenceRefusal> for Error {
    fn from(refusal: FenceRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Storage(Box::new(error))
    }
}
