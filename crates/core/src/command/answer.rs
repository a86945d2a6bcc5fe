//! Answers to requests, and notices to sessions and watchers.

use crate::coverage::Zombie;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{EndReason, Validity};
use crate::payload::{cache, delivery};
use crate::refusal::{Cycle, Refusal};
use crate::time::GrantorTime;
use crate::token::{Number, TokenScope};

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The tag of the request.
    pub tag: u64,
    /// The answer.
    pub answer: Answer,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The command was executed.
    Done,
    /// The session is open.
    Session(SessionGrant),
    /// The lease is granted.
    Granted(Grant),
    /// All leases are granted, in the order of the request.
    GrantedAll(Box<[Grant]>),
    /// The lease was renewed, or is current.
    Current(CurrentLease),
    /// The wait has started. The final answer follows under the same tag.
    Waiting {
        /// The position in the queue, from 1.
        position: u32,
    },
    /// The collector may delete data below this position.
    CollectBelow(u64),
    /// The value is stored.
    Stored {
        /// The key's revision.
        revision: u64,
    },
    /// Answer to a queue operation.
    Delivery(Box<delivery::DeliveryAnswer>),
    /// Answer to a cache operation.
    Cache(Box<cache::CacheAnswer>),
    /// The command was refused.
    Refused(Refusal),
}

/// An open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionGrant {
    /// The session id.
    pub session: SessionId,
    /// Time that one renewal adds.
    pub ttl_ms: u64,
    /// Time until it expires unless renewed.
    pub remaining_ms: u64,
    /// Whether the client's digest of held leases differs. The client must then reconcile.
    pub mismatch: bool,
}

/// A granted lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lease id.
    pub lease: LeaseId,
    /// The token number: the position in the one order of all grants.
    pub number: Number,
    /// What a fence lets the token do.
    pub scope: TokenScope,
    /// Time that one renewal adds.
    pub ttl_ms: u64,
    /// Time until it expires unless renewed.
    pub remaining_ms: u64,
    /// What its validity rests on.
    pub validity: Validity,
    /// The drain period of handoffs of this resource, so that a holder can apply it without a reachable grantor.
    pub drain_ms: u64,
    /// The predecessor drains for up to this long. Claim afterwards, or after the notice that it has drained.
    pub overlaps_ms: Option<u64>,
    /// Re-entrance depth; 1 for a plain lease.
    pub depth: u32,
    /// Whether renewals change the token. A renewal without a reply must then be retried under its own request id.
    pub rotates: bool,
}

/// A lease that is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLease {
    /// The token number.
    pub number: Number,
    /// Time until it expires unless renewed again.
    pub remaining_ms: u64,
    /// The lease is being handed off or preempted; the holder must stop within this time.
    pub drain_ms: Option<u64>,
    /// The predecessor of an overlap handoff drains for up to this long.
    pub overlaps_ms: Option<u64>,
}

/// An unsolicited message to a session, or to watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The receiving session; `None` for watchers.
    pub session: Option<SessionId>,
    /// The event.
    pub event: SessionEvent,
}

/// An event for a session or for watchers. Every event follows from a record and is sent when that record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A lease was granted.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// The token number.
        number: Number,
    },
    /// A lease ended.
    Ended {
        /// The lease.
        lease: LeaseId,
        /// The token number.
        number: Number,
        /// The end reason.
        reason: EndReason,
    },
    /// A lease ends at this time, so its holder should drain and renew now to learn the remaining time.
    Draining {
        /// The lease.
        lease: LeaseId,
        /// The end, in grantor time.
        until: GrantorTime,
    },
    /// The predecessor of an overlap handoff has ended; the successor may claim.
    Drained {
        /// The successor's lease.
        lease: LeaseId,
    },
    /// A cached copy must be dropped.
    Invalidate {
        /// The cached key.
        key: String,
        /// The read lease.
        lease: Number,
    },
    /// No read lease on a key is left; its writer may write and commit.
    Clear {
        /// The cached key.
        key: String,
        /// The write intent.
        intent: Number,
    },
    /// A queue that the session found empty has a message again. Another consumer may receive it first.
    Ready {
        /// The queue.
        queue: String,
    },
    /// A deadlock was found.
    Deadlock(Box<Cycle>),
    /// A target refused a write of a former holder (F6).
    Zombie(Box<Zombie>),
    /// The grantor's state was rolled back from outside (T9).
    RolledBack {
        /// The token that proved it.
        presented: Number,
    },
}
