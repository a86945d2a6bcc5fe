//! Why a journal on etcd was not opened, each with its code and the next step.

use std::fmt;

/// Why the journal was not opened. Nothing was changed that the next open does not mend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum Refused {
    /// No endpoint answers.
    Unreachable { why: String },
    /// This version of etcd does not keep what it promises.
    Version { endpoint: String, have: String },
    /// etcd wants to know who asks, and does not know this one.
    Login { why: String },
    /// This user may read and not write.
    ReadOnly { prefix: String },
    /// etcd has no room, and has said so to everybody.
    Full { what: String },
    /// A member of etcd found its own data damaged.
    Damaged { endpoint: String },
    /// The prefix holds something else.
    Foreign { prefix: String, key: String },
    /// The prefix holds another journal than the one this server has served.
    OtherJournal { prefix: String, seen: String, found: String },
    /// Written by a newer version.
    Newer { prefix: String, have: u32, want: u32 },
    /// It has forgotten what this server has seen: it was restored from a snapshot.
    Restored { what: &'static str, seen: u64, found: u64 },
    /// A value cannot be what was written.
    Corrupt { key: String, why: String },
    /// Another server was faster.
    Taken,
    /// Another server leads.
    Led { by: String },
}

impl Refused {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::Taken => "UNAVAILABLE",
            Self::Version { .. } | Self::Newer { .. } => "UNSUPPORTED_VERSION",
            Self::Login { .. } | Self::ReadOnly { .. } | Self::Led { .. } => "CONFIG",
            Self::Full { .. } => "STORAGE_FULL",
            Self::Damaged { .. } | Self::Corrupt { .. } => "CORRUPT",
            Self::Foreign { .. } | Self::OtherJournal { .. } => "WRONG_CLUSTER",
            Self::Restored { .. } => "ROLLED_BACK",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { why } => write!(f, "etcd does not answer: {why}; check that it runs and has a quorum"),
            Self::Version { endpoint, have } => {
                write!(f, "etcd at {endpoint} is version {have}; 3.4.x and 3.5.3 or newer are supported")
            }
            Self::Login { why } => {
                write!(f, "etcd does not let this server in: {why}; check --etcd-user and its password")
            }
            Self::ReadOnly { prefix } => {
                write!(f, "etcd does not let this server write under {prefix}; grant its user readwrite there")
            }
            Self::Full { what } => {
                write!(f, "etcd has no room ({what}); compact and defragment it, disarm the alarm, and start again")
            }
            Self::Damaged { endpoint } => {
                write!(f, "etcd at {endpoint} has found its own data damaged; replace that member first")
            }
            Self::Foreign { prefix, key } => {
                write!(f, "{prefix} in etcd holds something else ({key}); choose another prefix")
            }
            Self::OtherJournal { prefix, seen, found } => write!(
                f,
                "{prefix} in etcd holds journal {found}, and this server has served {seen}; choose the right prefix, or another --data"
            ),
            Self::Newer { prefix, have, want } => write!(
                f,
                "{prefix} in etcd has format version {have}, and this program knows up to {want}; use a newer one"
            ),
            Self::Restored { what, seen, found } => write!(
                f,
                "etcd was set back: this server has seen {what} {seen}, and there is {found}; if it was restored from a \
                 snapshot, start with --accept-restored"
            ),
            Self::Corrupt { key, why } => write!(f, "{key} in etcd: {why}; restore from a backup"),
            Self::Taken => f.write_str("another server has taken the journal meanwhile; start again"),
            Self::Led { by } => write!(f, "another server leads, at {by}; stop that one, or let this one follow"),
        }
    }
}

impl std::error::Error for Refused {}
