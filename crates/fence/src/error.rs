//! What can come of asking a fence, apart from yes.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::Refusal;

/// Why nothing was claimed or written. Each carries its stable code and names the next step.
#[derive(Debug)]
pub enum Error {
    /// The fence said no: an answer, and final for this token unless the refusal says otherwise.
    Refused(Refusal),
    /// Somebody else is inside the target and did not leave within the bound (F8). Nothing happened.
    Blocked {
        /// How long it was tried.
        waited: Duration,
        /// Who is inside, where the target can tell: process ids, of the server's backends in a database server.
        by: Vec<u32>,
    },
    /// The target is set up so that a mark could be forgotten (F2).
    NotDurable {
        /// The setting.
        setting: &'static str,
        /// What it says.
        have: String,
        /// What it must say.
        want: &'static str,
    },
    /// What is installed in the target has another version.
    Version {
        /// The version found.
        have: u32,
        /// The version this code knows.
        want: u32,
    },
    /// The call was made where it proves nothing.
    Misplaced(&'static str),
    /// What is asked contradicts what is kept.
    Conflict(&'static str),
    /// Stored bytes are damaged.
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
    },
    /// The target itself failed; whether the write was kept can be read there.
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// The stable code, as in the table of errors.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Blocked { .. } => "UNAVAILABLE",
            Self::NotDurable { .. } => "CONFIG",
            Self::Version { .. } => "UNSUPPORTED_VERSION",
            Self::Misplaced(_) => "INVALID_ARGUMENT",
            Self::Conflict(_) => "CONFLICT",
            Self::Corrupt { .. } => "CORRUPT",
            Self::Storage(_) => "STORAGE_FAILED",
        }
    }

    /// The fence's no, if that is what it is.
    pub const fn refusal(&self) -> Option<&Refusal> {
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
            Self::Blocked { waited, by } => {
                write!(f, "somebody was inside the target for all of {waited:?}")?;
                if by.is_empty() {
                    f.write_str("; find who writes there, then try again")
                } else {
                    write!(f, ": process {by:?}; end it if it is a paused holder, then try again")
                }
            }
            Self::NotDurable { setting, have, want } => {
                write!(f, "{setting} is {have}: a power cut could forget the mark; set it to {want}")
            }
            Self::Version { have, want } => {
                write!(f, "version {have} is installed in the target where {want} is known; update the older side")
            }
            Self::Misplaced(what) | Self::Conflict(what) => f.write_str(what),
            Self::Corrupt { file, offset, reason } => {
                write!(f, "{} is damaged at byte {offset}: {reason}; keep it and restore", file.display())
            }
            Self::Storage(error) => write!(f, "the target failed: {error}; read there what was kept, then try again"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Storage(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Storage(Box::new(error))
    }
}
