//! Errors of etcd calls, classified by what the caller can do.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdError {
    /// The outcome is unknown; a retry may succeed.
    Unknown(String),
    /// The database is full; nothing happened.
    Full,
    /// The user lacks the permission.
    Denied(String),
    /// Authentication failed, or the token has expired.
    Login(String),
    /// The revision was compacted.
    Compacted,
    /// The member has not reached the revision yet.
    Behind,
    /// The lease has expired.
    LeaseGone,
    /// A retry would be refused again.
    Refused(String),
}

impl EtcdError {
    /// Classifies a status. Only the text distinguishes some of them.
    pub fn of(endpoint: &str, status: &Status) -> Self {
        let message = || format!("{endpoint}: {}", root_cause(status));
        let text = status.message();
        match status.code() {
            Code::ResourceExhausted if text.contains("space exceeded") => Self::Full,
            Code::OutOfRange if text.contains("compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("future revision") => Self::Behind,
            Code::NotFound if text.contains("lease not found") => Self::LeaseGone,
            Code::PermissionDenied => Self::Denied(message()),
            Code::Unauthenticated => Self::Login(message()),
            Code::InvalidArgument if text.contains("user name is empty") || text.contains("authentication failed") => {
                Self::Login(message())
            }
            Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange | Code::NotFound => Self::Refused(message()),
            Code::FailedPrecondition if text.contains("authentication is not enabled") => Self::Login(message()),
            _ => Self::Unknown(message()),
        }
    }
}

/// The innermost cause, which has the useful message.
fn root_cause(status: &Status) -> String {
    let mut last: Option<&(dyn Error + 'static)> = status.source();
    while let Some(next) = last.and_then(Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) | Self::Denied(reason) | Self::Login(reason) | Self::Refused(reason) => {
                f.write_str(reason)
            }
            Self::Full => f.write_str("the etcd database is full"),
            Self::Compacted => f.write_str("the etcd revision was compacted"),
            Self::Behind => f.write_str("the etcd member has not reached the revision yet"),
            Self::LeaseGone => f.write_str("the etcd lease has expired"),
        }
    }
}
