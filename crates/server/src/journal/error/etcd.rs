//! Errors of opening a journal in etcd, with their codes and next steps.

use std::fmt;

/// A journal in etcd was not opened. The next open repairs whatever was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named by what they say, and every variant by its sentence")]
pub enum EtcdOpenError {
    /// No endpoint responds.
    Unreachable { reason: String },
    /// This version of etcd is not supported.
    Version { endpoint: String, have: String },
    /// This version of etcd does not enforce its authentication for leases.
    Bypass { endpoint: String, have: String },
    /// Authentication failed.
    Login { reason: String },
    /// The user has no write permission.
    ReadOnly { prefix: String },
    /// The database of etcd is full.
    Full { what: String },
    /// A member of etcd has detected that its data is corrupt.
    Damaged { endpoint: String },
    /// The prefix contains keys of another application.
    Foreign { prefix: String, key: String },
    /// The prefix contains another journal than the one this server has served.
    OtherJournal { prefix: String, seen: String, found: String },
    /// This server has other keys than the cluster.
    OtherKeys { mismatch: KeyMismatch },
    /// Written by a newer version.
    Newer { prefix: String, have: u32, want: u32 },
    /// etcd was restored from a snapshot that is older than what this server has seen.
    Restored { what: String },
    /// The prefix has no journal any more, although this server, or one that left a marker, has seen batches.
    Emptied { prefix: String, what: String },
    /// Another server has found that etcd was restored, and left a marker.
    Marked { marker: String },
    /// A value is damaged.
    Corrupt { key: String, reason: String },
    /// Another server was faster.
    Taken,
    /// Another server leads.
    Led { by: String },
}

/// The own keys differ from those of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyMismatch {
    /// Secrets of leases would not be valid under this server, so it never leads.
    ClusterKey(String),
    /// Tokens of the cluster would not be proven under this server. It does not start; if it runs already, it leads all the same, because
    /// without a leader there is no service at all.
    SealKeys(String),
    /// A database would reject the tokens that this server grants. It does not start; if it runs already, it leads all the same.
    StampKeys(String),
}

impl fmt::Display for KeyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterKey(problem) | Self::SealKeys(problem) | Self::StampKeys(problem) => f.write_str(problem),
        }
    }
}

impl EtcdOpenError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::Taken => "UNAVAILABLE",
            Self::Version { .. } | Self::Newer { .. } => "UNSUPPORTED_VERSION",
            Self::Bypass { .. }
            | Self::Login { .. }
            | Self::ReadOnly { .. }
            | Self::OtherKeys { .. }
            | Self::Led { .. } => "CONFIG",
            Self::Full { .. } => "STORAGE_FULL",
            Self::Damaged { .. } | Self::Corrupt { .. } => "CORRUPT",
            Self::Foreign { .. } | Self::OtherJournal { .. } => "WRONG_CLUSTER",
            Self::Restored { .. } | Self::Emptied { .. } | Self::Marked { .. } => "ROLLED_BACK",
        }
    }
}

impl fmt::Display for EtcdOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { reason } => {
                write!(f, "etcd does not respond: {reason}; check that it runs and has a quorum")
            }
            Self::Version { endpoint, have } => {
                write!(f, "etcd at {endpoint} is version {have}; 3.4.x and 3.5.3 or newer are supported")
            }
            Self::Bypass { endpoint, have } => write!(
                f,
                "etcd at {endpoint} is version {have}, in which others can end the leader's lease despite authentication; upgrade it to \
                 3.4.44, 3.5.30, 3.6.11 or newer, or pass --insecure-etcd"
            ),
            Self::Login { reason } => {
                write!(f, "etcd authentication failed: {reason}; check --etcd-user and its password")
            }
            Self::ReadOnly { prefix } => {
                write!(f, "no write permission for {prefix} in etcd; grant the user readwrite on this prefix")
            }
            Self::Full { what } => {
                write!(
                    f,
                    "the etcd database is full ({what}); compact and defragment it, disarm the alarm, and start again"
                )
            }
            Self::Damaged { endpoint } => {
                write!(f, "etcd at {endpoint} reports corrupt data; replace that member first")
            }
            Self::Foreign { prefix, key } => {
                write!(f, "{prefix} in etcd contains keys of another application ({key}); choose another prefix")
            }
            Self::OtherJournal { prefix, seen, found } => write!(
                f,
                "{prefix} in etcd contains journal {found}, but this server has served {seen}; check the prefix and etcd, and keep --data: it knows which \
                 journal was served. A server of another cluster has a directory of its own"
            ),
            Self::OtherKeys { mismatch } => mismatch.fmt(f),
            Self::Newer { prefix, have, want } => write!(
                f,
                "{prefix} in etcd has format version {have}, newer than {want}; use a newer version of leasehold"
            ),
            Self::Restored { what } => write!(
                f,
                "etcd was rolled back: {what}; if it was restored from a snapshot, start one server with --accept-restored"
            ),
            Self::Emptied { prefix, what } => write!(
                f,
                "{prefix} in etcd has no journal any more: {what}; restore etcd from a snapshot, or begin a new cluster with another \
                 prefix and another --data"
            ),
            Self::Marked { marker } => write!(
                f,
                "etcd was rolled back, as another server found ({marker}); if it was restored from a snapshot, start one server \
                 with --accept-restored"
            ),
            Self::Corrupt { key, reason } => write!(f, "{key} in etcd: {reason}; restore from a backup"),
            Self::Taken => f.write_str("another server has taken over the journal; start again"),
            Self::Led { by } => write!(f, "the server at {by} leads; stop it, or start this one as a standby"),
        }
    }
}

impl std::error::Error for EtcdOpenError {}
