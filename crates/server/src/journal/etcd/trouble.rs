//! What etcd answers when it does not do what it was asked, sorted by what may be done about it.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It may have happened or not; asking again may bring more.
    Unknown(String),
    /// There is no room, and nothing happened.
    Full,
    /// This user may not.
    Denied(String),
    /// Nobody knows this user, or not any more.
    Login(String),
    /// What was asked for is not kept any more.
    Compacted,
    /// This member has not come so far yet.
    Behind,
    /// The lease is over.
    LeaseGone,
    /// It will be refused every time.
    Refused(String),
}

impl Trouble {
    /// What a status says. Nothing but the text tells some of them apart.
    pub fn of(endpoint: &str, status: &Status) -> Self {
        let said = || format!("{endpoint}: {}", deepest(status));
        let text = status.message();
        match status.code() {
            Code::ResourceExhausted if text.contains("space exceeded") => Self::Full,
            Code::OutOfRange if text.contains("compacted") => Self::Compacted,
            Code::OutOfRange if text.contains("future revision") => Self::Behind,
            Code::NotFound if text.contains("lease not found") => Self::LeaseGone,
            Code::PermissionDenied => Self::Denied(said()),
            Code::Unauthenticated => Self::Login(said()),
            Code::InvalidArgument if text.contains("user name is empty") || text.contains("authentication failed") => {
                Self::Login(said())
            }
            Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange | Code::NotFound => Self::Refused(said()),
            Code::FailedPrecondition if text.contains("authentication is not enabled") => Self::Login(said()),
            _ => Self::Unknown(said()),
        }
    }
}

/// The last link of the chain of causes: the one that says something.
fn deepest(status: &Status) -> String {
    let mut last: Option<&(dyn Error + 'static)> = status.source();
    while let Some(next) = last.and_then(Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) | Self::Denied(why) | Self::Login(why) | Self::Refused(why) => f.write_str(why),
            Self::Full => f.write_str("etcd has no room"),
            Self::Compacted => f.write_str("etcd does not keep that any more"),
            Self::Behind => f.write_str("this member of etcd has not come so far yet"),
            Self::LeaseGone => f.write_str("the lease in etcd is over"),
        }
    }
}
