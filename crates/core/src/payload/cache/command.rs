//! Commands for cached keys, and their answers.

use super::OwnerKind;
use crate::ids::SessionId;
use crate::time::GrantorTime;
use crate::token::Number;

/// A command for a cached key. Names are validated before.
#[derive(Clone, Copy, Debug)]
pub enum CacheCommand<'a> {
    /// Acquires a read lease.
    Read {
        /// The cached key.
        key: &'a str,
        /// The session that carries the read lease and receives invalidations.
        session: Option<SessionId>,
        /// Name of the reader.
        reader: &'a str,
        /// How long the copy may be used unless renewed.
        ttl_ms: u64,
    },
    /// Renews a read lease for its ttl.
    RenewRead {
        /// The cached key.
        key: &'a str,
        /// The read lease.
        lease: Number,
    },
    /// Confirms that the reader dropped its copy.
    Invalidated {
        /// The cached key.
        key: &'a str,
        /// The read lease.
        lease: Number,
    },
    /// Announces a write: no read lease is granted from here on (R1).
    Intend {
        /// The cached key.
        key: &'a str,
        /// The session that carries the intent and is notified when no reader is left.
        session: Option<SessionId>,
        /// Name of the writer.
        writer: &'a str,
        /// How long the intent lasts.
        ttl_ms: u64,
    },
    /// Completes the write with a new version.
    Commit {
        /// The cached key.
        key: &'a str,
        /// The intent.
        intent: Number,
    },
    /// Ends an intent without a write, or a fill without a copy.
    Abort {
        /// The cached key.
        key: &'a str,
        /// The intent, or the fill token.
        number: Number,
    },
    /// Acquires a read lease on a filled copy, or the task to fill it.
    GetOrFill {
        /// The cached key.
        key: &'a str,
        /// The session that carries the read lease or the task.
        session: Option<SessionId>,
        /// Name of the reader.
        reader: &'a str,
        /// How long the read lease or the task lasts.
        ttl_ms: u64,
        /// A version that the reader could not find. If it is still the newest, it must be filled again.
        missing: Option<u64>,
    },
    /// Completes a fill with a new version.
    Filled {
        /// The cached key.
        key: &'a str,
        /// The fill token.
        token: Number,
    },
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAnswer {
    /// A copy of this version may be used.
    Reading {
        /// The version; 0 if the key was never written or filled here.
        version: u64,
        /// The read lease.
        lease: Number,
        /// Time until the read lease expires.
        remaining_ms: u64,
    },
    /// The read lease ended.
    Dropped,
    /// The intent is granted.
    Intended {
        /// The token of the intent, which the target's fence compares.
        intent: Number,
        /// Readers that have not dropped their copies. Write only when none is left.
        waiting_for: u32,
        /// The last deadline of these readers; stalls of the grantor can move it later.
        until: GrantorTime,
    },
    /// The write is visible.
    Committed {
        /// The new version.
        version: u64,
    },
    /// The intent or the fill ended; the version stays.
    Aborted,
    /// The caller must fill the copy.
    Fill {
        /// The fill token.
        token: Number,
        /// Time during which no other caller fills.
        remaining_ms: u64,
    },
    /// Another caller fills the copy; retry later.
    Wait {
        /// The latest end of that fill.
        remaining_ms: u64,
    },
    /// The copy can be read.
    Filled {
        /// The new version.
        version: u64,
    },
}

/// The state of a cached key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedKeyView {
    /// The newest version.
    pub version: u64,
    /// Whether that version was filled.
    pub filled: bool,
    /// Recorded read leases.
    pub readers: usize,
    /// The writer or filler, with its token number.
    pub owner: Option<(OwnerKind, Number)>,
}
