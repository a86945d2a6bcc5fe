//! What may be asked of a grantor: the typed command, where a caller's rights will be checked.

mod answer;
mod secret;

pub use answer::*;
pub use secret::Secret;

use crate::charter::Charter;
pub use crate::charter::Style;
use crate::coverage::Report;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, Reason};
use crate::payload::{cache, delivery};
use crate::token::{Cluster, Number, Token};

/// One thing that happens to a grantor.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a tick is rare, and boxing would cost every request")]
pub enum Input<'a> {
    /// Somebody asks for something.
    Asked(Request, Command<'a>),
    /// Time has passed. The last input of every turn.
    Tick,
}

/// Who asks, as far as answering goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The driver's own mark; it comes back with every reply.
    pub tag: u64,
    /// The id under which a retry is recognised (L11).
    pub id: Option<RequestId>,
    /// The highest token the caller has seen; a grantor shown one above its counter was rolled back (T9).
    pub shown: Option<Token>,
}

impl Request {
    /// A request with nothing but the driver's mark.
    pub const fn tagged(tag: u64) -> Self {
        Self { tag, id: None, shown: None }
    }
}

/// A retryable request: which of a session's, and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The session.
    pub session: SessionId,
    /// Its own counting, from 1.
    pub sequence: u64,
    /// The lowest sequence whose answer the client still waits for.
    pub lowest: u64,
    /// A digest of the body, so that another body under the same id is a conflict.
    pub digest: u64,
}

/// What is asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Open a session.
    OpenSession(OpenSession<'a>),
    /// Come back to a session with its secret (S2).
    ResumeSession {
        /// The session.
        session: SessionId,
        /// The secret it was opened with.
        secret: Secret,
    },
    /// Extend a session and all that rides on it.
    RenewSession {
        /// The session.
        session: SessionId,
        /// What the client believes it holds.
        known: Option<Known>,
    },
    /// Say which leases the client knows; an acknowledged grant that is not among them ends (no orphans).
    Reconcile {
        /// The session.
        session: SessionId,
        /// The leases the client knows, in rising order.
        leases: &'a [LeaseId],
        /// The part of all leases that the list tells of; a long list comes in several.
        part: Part,
    },
    /// End a session and all that it holds in one step (S1).
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Take a lease, now or after waiting.
    Acquire(Acquire<'a>),
    /// Take several leases at once: all or none.
    AcquireAll(AcquireAll<'a>),
    /// Take a wait back (W3).
    Cancel {
        /// The waiting request's session.
        session: SessionId,
        /// The waiting request's sequence.
        sequence: u64,
    },
    /// Whoever listened to a wait has gone, and nobody can ask for it again: it has no request id (W3).
    Withdraw {
        /// The waiting request's session.
        session: SessionId,
        /// The driver's mark of the waiting request.
        tag: u64,
    },
    /// Extend a lease: compare and set on holder, token and deadline.
    Renew(Renew<'a>),
    /// Give a lease back.
    Release(Held<'a>),
    /// Ask whether a lease is current. An optimisation, never safety.
    Confirm(Held<'a>),
    /// Give the lease a new, higher token.
    Rotate(Held<'a>),
    /// Show evidence of progress (G1).
    Progress {
        /// The lease.
        held: Held<'a>,
        /// How far the work is; must rise.
        at: u64,
    },
    /// Take leases away.
    Revoke(Revoke<'a>),
    /// Free a resource that a revocation left to an operator.
    Free {
        /// The resource.
        resource: &'a str,
        /// Why.
        why: &'a str,
    },
    /// Begin a planned transfer.
    HandOff(HandOff<'a>),
    /// The predecessor of a handoff has stopped and every write of its was answered.
    Drained(Held<'a>),
    /// Set a resource's capacity; below use it takes nothing away (C3).
    SetCapacity {
        /// The resource.
        resource: &'a str,
        /// Units.
        units: u32,
    },
    /// Turn a hold into a commitment (C4).
    ConfirmHold(Held<'a>),
    /// Ask for more or fewer units of a hold.
    ResizeHold {
        /// The hold.
        held: Held<'a>,
        /// Units.
        units: u32,
    },
    /// An obligation in flight keeps the hold over its expiry for a bounded time.
    Veto {
        /// The hold.
        held: Held<'a>,
        /// For how long from now.
        for_ms: u64,
    },
    /// A reader pins a position; what lies at or above it is not collected.
    Pin {
        /// The reader's shared lease.
        held: Held<'a>,
        /// The position.
        at: u64,
    },
    /// A collector asks how far it may delete.
    Collect {
        /// The resource whose readers pin.
        resource: &'a str,
        /// Delete below this, if no live pin is lower.
        below: u64,
    },
    /// Small state under a lease, written only if the lease is current.
    Put {
        /// The lease.
        held: Held<'a>,
        /// The key.
        key: &'a str,
        /// The value; absent deletes.
        bytes: Option<&'a [u8]>,
        /// Only if the key stands at this revision.
        expect: Option<u64>,
    },
    /// A message queue.
    Delivery(delivery::Command<'a>),
    /// Cached reads.
    Cache(cache::Command<'a>),
    /// Set the charter of a prefix.
    SetCharter {
        /// The prefix, in whole segments; empty for all.
        prefix: &'a str,
        /// The charter.
        charter: Box<Charter>,
        /// Why.
        why: &'a str,
    },
    /// Remove the charter of a prefix.
    RemoveCharter {
        /// The prefix.
        prefix: &'a str,
        /// Why.
        why: &'a str,
    },
    /// What fences saw at their targets since they last said.
    Report {
        /// Whose tokens they check.
        cluster: Cluster,
        /// One entry for each place, and one for each zombie.
        reports: &'a [Report<'a>],
    },
    /// A target is no more.
    ForgetTarget {
        /// The resource it was reported under.
        resource: &'a str,
        /// Its name.
        target: &'a str,
        /// Why.
        why: &'a str,
    },
    /// End a quarantine before its time, in writing (T5).
    WaiveQuarantine {
        /// Why.
        why: &'a str,
    },
    /// Let another server lead: this grantor decides nothing more. Nothing that is held ends by it.
    StepDown,
    /// Show a token and nothing else.
    Show,
}

impl Command<'_> {
    /// Whether it only ends something, so that it is done even when a full journal takes nothing new.
    pub(crate) const fn only_ends(&self) -> bool {
        matches!(
            self,
            Self::ResumeSession { .. }
                | Self::Reconcile { .. }
                | Self::CloseSession { .. }
                | Self::Cancel { .. }
                | Self::Withdraw { .. }
                | Self::Release(_)
                | Self::Progress { .. }
                | Self::Revoke(_)
                | Self::Drained(_)
                | Self::StepDown
                | Self::Delivery(delivery::Command::Ack { .. } | delivery::Command::Extend { .. })
                | Self::Cache(cache::Command::Invalidated { .. } | cache::Command::Abort { .. })
        )
    }
}

/// A new session.
#[derive(Clone, Copy, Debug)]
pub struct OpenSession<'a> {
    /// Who it is for people to read. Not an identity: two sessions with one name are two holders (L5).
    pub holder: &'a str,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// Random bytes drawn by the driver; only their digest is kept.
    pub secret: Secret,
    /// Whether it only carries waits: what it is granted then lives by its own ttl and token.
    pub waits_only: bool,
}

/// Which ids a list of leases tells of: all of them unless bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The first id.
    pub from: Option<LeaseId>,
    /// The first id after it.
    pub until: Option<LeaseId>,
}

impl Part {
    /// Every id.
    pub const ALL: Self = Self { from: None, until: None };

    /// Whether an id is one of them.
    pub fn has(&self, lease: LeaseId) -> bool {
        self.from.is_none_or(|from| from <= lease) && self.until.is_none_or(|until| lease < until)
    }
}

/// What a client believes it holds, in two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// How many leases.
    pub count: u32,
    /// The exclusive or of their token numbers.
    pub digest: u64,
}

/// One lease asked for.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The resource.
    pub resource: &'a str,
    /// Who; in a session the name of an actor, empty for the session's own.
    pub holder: &'a str,
    /// The session that carries it.
    pub session: Option<SessionId>,
    /// How much.
    pub access: Access,
    /// The capacity a slot is asked of, if the resource has none yet.
    pub slots: Option<u32>,
    /// How long a renewal lasts; absent in a session: as long as the session.
    pub ttl_ms: Option<u64>,
    /// Options that are the same for one and for several.
    pub terms: Terms<'a>,
}

impl<'a> Acquire<'a> {
    /// An exclusive lease without a session, not waited for.
    pub const fn exclusive(resource: &'a str, holder: &'a str, ttl_ms: u64) -> Self {
        Self {
            resource,
            holder,
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(ttl_ms),
            terms: Terms::DEFAULT,
        }
    }
}

/// Several leases asked for at once.
#[derive(Clone, Copy, Debug)]
pub struct AcquireAll<'a> {
    /// The resources, each with how much of it.
    pub wanted: &'a [(&'a str, Access)],
    /// Who.
    pub holder: &'a str,
    /// The session that carries them.
    pub session: Option<SessionId>,
    /// How long a renewal lasts; absent in a session: as long as the session.
    pub ttl_ms: Option<u64>,
    /// The other options.
    pub terms: Terms<'a>,
}

/// How a lease is waited for and held.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// How long to wait; zero tries once. A wait needs a session.
    pub wait_ms: u64,
    /// Higher goes first.
    pub priority: u8,
    /// Whether a hold that the same actor already has is entered again.
    pub reentrant: bool,
    /// The longest it may be held, renewed or not.
    pub max_hold_ms: Option<u64>,
    /// Renewal asks for progress at least this often.
    pub progress_ms: Option<u64>,
    /// Bytes for people and discovery.
    pub metadata: &'a [u8],
}

impl Terms<'_> {
    /// The priority of those who do not say.
    pub const PRIORITY: u8 = 100;
    /// No wait, nothing special.
    pub const DEFAULT: Self = Self {
        wait_ms: 0,
        priority: Self::PRIORITY,
        reentrant: false,
        max_hold_ms: None,
        progress_ms: None,
        metadata: &[],
    };
}

/// A lease as its holder names it.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// Which, by id or by resource.
    pub lease: Which<'a>,
    /// The token's number.
    pub number: Number,
    /// The session it is carried by, if it is.
    pub session: Option<SessionId>,
    /// The holder's name, if it should be compared.
    pub holder: Option<&'a str>,
}

impl<'a> Held<'a> {
    /// By id and token.
    pub const fn by_id(id: LeaseId, number: Number) -> Self {
        Self { lease: Which::Id(id), number, session: None, holder: None }
    }

    /// By resource and token.
    pub const fn by_name(resource: &'a str, number: Number) -> Self {
        Self { lease: Which::Resource(resource), number, session: None, holder: None }
    }
}

/// A lease by its id, or by the resource it is on.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// The id of the grant.
    Id(LeaseId),
    /// The resource; the token tells which of its leases.
    Resource(&'a str),
}

/// A renewal.
#[derive(Clone, Copy, Debug)]
pub struct Renew<'a> {
    /// The lease.
    pub held: Held<'a>,
    /// A new ttl, if it should change.
    pub ttl_ms: Option<u64>,
    /// Evidence of progress, if there is any.
    pub progress: Option<u64>,
}

/// A revocation.
#[derive(Clone, Copy, Debug)]
pub struct Revoke<'a> {
    /// All leases on a resource, or one lease.
    pub which: Which<'a>,
    /// Why it is revoked: by an operator, or by policy.
    pub reason: Reason,
    /// In words.
    pub why: &'a str,
    /// Notice first, this long.
    pub grace_ms: u64,
}

/// A planned transfer.
#[derive(Clone, Copy, Debug)]
pub struct HandOff<'a> {
    /// The lease; the holder names its token, an operator does not.
    pub which: Which<'a>,
    /// The holder's token, if the holder asks.
    pub number: Option<Number>,
    /// To whom, by holder name, if not to the first waiter.
    pub to: Option<&'a str>,
    /// Gap or overlap, if not as the charter says.
    pub style: Option<Style>,
    /// How long the predecessor may drain, if not as the charter says.
    pub drain_ms: Option<u64>,
}
