//! What can be asked of a cached key, and what it answers.

use super::Kind;
use crate::ids::SessionId;
use crate::time::Millis;
use crate::token::Number;

/// What can be asked of a cached key. Names were checked at the edge.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Asks for a read lease.
    Read {
        /// The cached key.
        key: &'a str,
        /// The session with which the read lease ends, and which hears of writes.
        session: Option<SessionId>,
        /// Who reads.
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
    /// The reader says that it dropped its copy.
    Invalidated {
        /// The cached key.
        key: &'a str,
        /// The read lease.
        lease: Number,
    },
    /// A writer means to change the key: no new read lease from here on (R1).
    Intend {
        /// The cached key.
        key: &'a str,
        /// The session with which the intent ends, and which hears when nobody reads any more.
        session: Option<SessionId>,
        /// Who writes.
        writer: &'a str,
        /// How long the intent stands.
        ttl_ms: u64,
    },
    /// The write is done: a new version.
    Commit {
        /// The cached key.
        key: &'a str,
        /// The intent.
        intent: Number,
    },
    /// Nothing was written under the intent, or nothing was filled.
    Abort {
        /// The cached key.
        key: &'a str,
        /// The intent, or the token to fill.
        number: Number,
    },
    /// Asks for a read lease on a filled copy, or for the task to fill it.
    GetOrFill {
        /// The cached key.
        key: &'a str,
        /// The session with which the read lease or the task ends.
        session: Option<SessionId>,
        /// Who asks.
        reader: &'a str,
        /// How long the read lease or the task lasts.
        ttl_ms: u64,
        /// A version that was looked for and not found: if it is still the newest, it has to be filled again.
        missing: Option<u64>,
    },
    /// The copy is filled: a new version.
    Filled {
        /// The cached key.
        key: &'a str,
        /// The token to fill.
        token: Number,
    },
}

/// What a granted command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A copy of this version may be used.
    Reading {
        /// The version; 0 if nobody has written or filled the key here.
        version: u64,
        /// The read lease.
        lease: Number,
        /// For how long.
        remaining_ms: u64,
    },
    /// The read lease is over.
    Dropped,
    /// The intent stands.
    Intended {
        /// The intent's token: the target's fence compares it.
        intent: Number,
        /// How many readers have yet to drop their copies. Write only when none is left.
        waiting_for: u32,
        /// When their last deadline passes; stalls of the grantor may move it further.
        until: Millis,
    },
    /// The write is visible.
    Committed {
        /// The new version.
        version: u64,
    },
    /// The intent or the task to fill is over; the version stays.
    Aborted,
    /// You fill it.
    Fill {
        /// The token to fill under.
        token: Number,
        /// For how long nobody else fills.
        remaining_ms: u64,
    },
    /// Somebody else fills it: ask again.
    Wait {
        /// When the other's time is over at the latest.
        remaining_ms: u64,
    },
    /// The copy can be read.
    Filled {
        /// The new version.
        version: u64,
    },
}

/// What is known about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The newest version.
    pub version: u64,
    /// Whether that version was filled.
    pub filled: bool,
    /// Read leases on record.
    pub readers: usize,
    /// Who has the key to itself, and for what.
    pub sole: Option<(Kind, Number)>,
}
