//! What a grantor answers, and what it tells those who did not ask.

use crate::coverage::Zombie;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Reason, Rung};
use crate::payload::{cache, delivery};
use crate::refusal::{Cycle, Refusal};
use crate::time::Millis;
use crate::token::{Number, Reach};

/// An answer on its way to whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The driver's mark of the request.
    pub to: u64,
    /// The answer.
    pub answer: Answer,
}

/// What a grantor says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It is done.
    Done,
    /// The session is open.
    Session(SessionGrant),
    /// The lease is held.
    Granted(Grant),
    /// All leases are held, in the order they were asked for.
    GrantedAll(Box<[Grant]>),
    /// The lease is extended, or was found current.
    Current(Current),
    /// The wait has begun. The final answer follows under the same mark.
    Waiting {
        /// The place in the queue, from 1.
        position: u32,
    },
    /// The collector may delete below this.
    CollectBelow(u64),
    /// The value is stored.
    Stored {
        /// The key's revision.
        revision: u64,
    },
    /// A queue's answer.
    Delivery(Box<delivery::Answer>),
    /// A cache's answer.
    Cache(Box<cache::Answer>),
    /// No.
    Refused(Refusal),
}

/// A session as granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionGrant {
    /// Its id.
    pub session: SessionId,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// How long it lives unless renewed.
    pub remaining_ms: u64,
    /// Whether what the client believes it holds differs: reconcile.
    pub mismatch: bool,
}

/// A lease as granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its id.
    pub lease: LeaseId,
    /// Its place in the one order of all grants.
    pub number: Number,
    /// What its token reaches at a fence.
    pub reach: Reach,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// How long it lives unless renewed.
    pub remaining_ms: u64,
    /// What it stands on.
    pub rung: Rung,
    /// The drain period of this resource's handoffs, so that a holder can count it without a live grantor.
    pub drain_ms: u64,
    /// The predecessor still drains for this long: claim after it, or when told it has drained.
    pub overlaps_ms: Option<u64>,
    /// How often it was entered; 1 for a plain hold.
    pub depth: u32,
    /// Renewals raise its token, so that a renewal without an answer must be asked for again under its own request id.
    pub rotates: bool,
}

/// A lease that is current, as told to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Its token.
    pub number: Number,
    /// How long it lives unless renewed again.
    pub remaining_ms: u64,
    /// It is being handed off or pre-empted, and must be given up within this.
    pub drain_ms: Option<u64>,
    /// The predecessor of an overlap still drains for this long.
    pub overlaps_ms: Option<u64>,
}

/// Something a session should know although it did not ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who should know; none for those who watch.
    pub session: Option<SessionId>,
    /// What.
    pub event: Event,
}

/// What happened. Every event follows from a record and leaves when that record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A lease was granted.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Its token.
        number: Number,
    },
    /// A lease is over.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// Its token.
        number: Number,
        /// Why.
        reason: Reason,
    },
    /// A holder must give its lease up by then: ask now.
    Draining {
        /// The lease.
        lease: LeaseId,
        /// When it ends, in grantor time.
        until: Millis,
    },
    /// The predecessor of an overlap is gone: the successor may claim.
    Drained {
        /// The successor's lease.
        lease: LeaseId,
    },
    /// A cached read must be dropped.
    Invalidate {
        /// The key.
        key: String,
        /// The read lease.
        lease: Number,
    },
    /// Nobody reads a key under a lease any more: its writer may write and commit.
    Clear {
        /// The key.
        key: String,
        /// The write's intent.
        intent: Number,
    },
    /// A queue at which the session stood idle has something to receive; perhaps for another, who came first.
    Ready {
        /// The queue.
        queue: String,
    },
    /// A deadlock was found.
    Deadlock(Box<Cycle>),
    /// A target refused a holder whose authority is over (F6).
    Zombie(Box<Zombie>),
    /// This grantor's state was rolled back behind its back (T9).
    RolledBack {
        /// The token that showed it.
        shown: Number,
    },
}
