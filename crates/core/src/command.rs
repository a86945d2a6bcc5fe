//! Commands: the typed requests to a grantor.

mod answer;
mod proposed_command;
mod request_envelope;

pub use answer::*;
pub(crate) use proposed_command::{ProposedCommand, ProposedSubject};
pub use request_envelope::{Proof, ProvenTokens, Request, RequestId};

use crate::access::Rights;
use crate::charter::Charter;
pub use crate::charter::HandoffMode;
use crate::coverage::FenceReport;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, EndReason};
use crate::payload::{cache, delivery};
use crate::secret::SecretDigest;
use crate::token::{Cluster, Number};

/// One input of [`Grantor::step`](crate::grantor::Grantor::step).
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a tick is rare, and boxing would cost every request")]
pub enum Input<'a> {
    /// A request of a client or an operator.
    Request(Request<'a>, Command<'a>),
    /// Processes everything that is due by time. The last input of every turn.
    Tick,
}

/// The operation of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Open a session.
    OpenSession(OpenSession<'a>),
    /// Open a session for one request under an idempotency key that its client made, or find the one that was opened for it before.
    /// The reply to the request is stored in the session, as under any request id (L11).
    OpenKeySession {
        /// Digest of the caller's identity and the key; it takes the place of a secret.
        key: SecretDigest,
        /// The request under the key: a caller that may not execute it opens nothing. `None` extends a session that exists.
        command: Option<&'a Command<'a>>,
    },
    /// Resume a session with its secret (S2).
    ResumeSession {
        /// The session.
        session: SessionId,
        /// The digest of the secret it was opened with.
        secret: SecretDigest,
    },
    /// Extend a session and all leases that live as long as the session.
    RenewSession {
        /// The session.
        session: SessionId,
        /// The leases that the client believes it holds, as a digest.
        held: Option<HeldDigest>,
    },
    /// List the leases that the client knows. An acknowledged grant that is not listed ends, so that none is orphaned.
    Reconcile {
        /// The session.
        session: SessionId,
        /// The leases the client knows, in ascending order.
        leases: &'a [LeaseId],
        /// The range of ids that the list covers; a long list is sent in several parts.
        range: IdRange,
    },
    /// End a session and all its leases in one step (S1).
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Acquire a lease, immediately or after a wait.
    Acquire(Acquire<'a>),
    /// Acquire several leases atomically: all or none.
    AcquireAll(AcquireAll<'a>),
    /// Cancel a wait (W3).
    Cancel {
        /// The waiting request's session.
        session: SessionId,
        /// The waiting request's sequence.
        sequence: u64,
    },
    /// Cancel a wait without a request id whose caller disconnected, because no retry can claim it (W3).
    Withdraw {
        /// The waiting request's session.
        session: SessionId,
        /// The tag of the waiting request.
        tag: u64,
    },
    /// Extend a lease: compare and set on holder, token and deadline.
    Renew(Renew<'a>),
    /// Release a lease.
    Release(LeaseRef<'a>),
    /// Query whether a lease is current. An optimization; safety never depends on it.
    Confirm(LeaseRef<'a>),
    /// Issue a new, higher token for the lease.
    Rotate(LeaseRef<'a>),
    /// Report progress of the work (G1).
    Progress {
        /// The lease.
        lease: LeaseRef<'a>,
        /// The position of the work; it must increase.
        at: u64,
    },
    /// Revoke leases.
    Revoke(Revoke<'a>),
    /// Free a resource that is blocked for an operator after a revocation.
    Free {
        /// The resource.
        resource: &'a str,
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// Start a planned handoff.
    Handoff(Handoff<'a>),
    /// Report that the predecessor of a handoff has stopped and all its writes were answered.
    Drained(LeaseRef<'a>),
    /// Set a resource's capacity. A capacity below the current use ends no lease (C3).
    SetCapacity {
        /// The resource.
        resource: &'a str,
        /// Units.
        units: u32,
    },
    /// Turn a reservation into a commitment (C4).
    ConfirmHold(LeaseRef<'a>),
    /// Change the number of units of a reservation.
    ResizeHold {
        /// The reservation.
        lease: LeaseRef<'a>,
        /// Units.
        units: u32,
    },
    /// Keep a reservation beyond its expiry for a bounded time, because an obligation is in flight.
    Veto {
        /// The reservation.
        lease: LeaseRef<'a>,
        /// Duration from now.
        for_ms: u64,
    },
    /// Pin a position for a reader; data at or above it is not collected.
    Pin {
        /// The reader's shared lease.
        lease: LeaseRef<'a>,
        /// The position.
        at: u64,
    },
    /// Query how far a collector may delete.
    Collect {
        /// The resource whose readers pin positions.
        resource: &'a str,
        /// Delete below this position, if no live pin is lower.
        below: u64,
    },
    /// Write state under a lease. The write applies only if the lease is current.
    Put {
        /// The lease.
        lease: LeaseRef<'a>,
        /// The key.
        key: &'a str,
        /// The value; `None` deletes the key.
        bytes: Option<&'a [u8]>,
        /// Write only if the key has this revision.
        expect: Option<u64>,
    },
    /// Message queue operation.
    Delivery(delivery::DeliveryCommand<'a>),
    /// Cache operation.
    Cache(cache::CacheCommand<'a>),
    /// Set the charter of a prefix.
    SetCharter {
        /// The prefix, in whole segments; empty for all names.
        prefix: &'a str,
        /// The charter.
        charter: Box<Charter>,
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// Remove the charter of a prefix.
    RemoveCharter {
        /// The prefix.
        prefix: &'a str,
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// Report what fences checked at their targets since their last report.
    Report {
        /// The cluster whose tokens the fences check.
        cluster: Cluster,
        /// One entry for each target slot, and one for each zombie.
        reports: &'a [FenceReport<'a>],
    },
    /// Remove a target that no longer exists from the coverage table.
    ForgetTarget {
        /// The resource it was reported under.
        resource: &'a str,
        /// Its name.
        target: &'a str,
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// End a quarantine early (T5). The audit log records the comment.
    WaiveQuarantine {
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// Change the longest ttl of the cluster.
    SetMaxTtl {
        /// The new longest ttl.
        max_ttl_ms: u64,
        /// Operator's comment for the audit log.
        comment: &'a str,
    },
    /// Hand leadership to another server. This grantor takes no further turn; no lease ends.
    StepDown,
    /// Approve what another identity proposed. It is executed once (A14).
    Approve {
        /// The number of the proposal.
        proposal: u64,
        /// The digest of the command that is approved.
        digest: [u8; 32],
        /// The rights that the identity that proposed it has now; the driver knows them.
        proposer: Option<&'a Rights>,
    },
    /// Withdraw a proposal.
    CancelProposal {
        /// The number of the proposal.
        proposal: u64,
    },
    /// Only present the observed token of the [`Request`].
    ObserveToken,
}

impl Command<'_> {
    /// Whether the command only ends something, so that it is executed even when the journal is full.
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
                | Self::Delivery(delivery::DeliveryCommand::Ack { .. } | delivery::DeliveryCommand::Extend { .. })
                | Self::Cache(cache::CacheCommand::Invalidated { .. } | cache::CacheCommand::Abort { .. })
        )
    }
}

/// A new session.
#[derive(Clone, Copy, Debug)]
pub struct OpenSession<'a> {
    /// Name for human readers. It is not an identity: two sessions with one name are two holders (L5).
    pub holder: &'a str,
    /// Time until the session expires unless renewed.
    pub ttl_ms: u64,
    /// The digest of random bytes that the driver drew.
    pub secret: SecretDigest,
    /// Whether the session carries only waits. A lease granted to it then lives by its own ttl and token.
    pub waits_only: bool,
}

/// A range of lease ids; unbounded by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdRange {
    /// First id, inclusive.
    pub from: Option<LeaseId>,
    /// End of the range, exclusive.
    pub until: Option<LeaseId>,
}

impl IdRange {
    /// Every id.
    pub const ALL: Self = Self { from: None, until: None };

    /// Whether the range contains an id.
    pub fn contains(&self, lease: LeaseId) -> bool {
        self.from.is_none_or(|from| from <= lease) && self.until.is_none_or(|until| lease < until)
    }
}

/// Digest of the leases that a client believes it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldDigest {
    /// Number of leases.
    pub count: u32,
    /// XOR of their token numbers.
    pub digest: u64,
}

/// A request for one lease.
#[derive(Clone, Copy, Debug)]
pub struct Acquire<'a> {
    /// The resource.
    pub resource: &'a str,
    /// Name of the holder. In a session, the name of an actor; empty for the session's own name.
    pub holder: &'a str,
    /// The session that carries the lease.
    pub session: Option<SessionId>,
    /// How much of the resource.
    pub access: Access,
    /// The number of slots of the resource, if it has no capacity yet.
    pub slots: Option<u32>,
    /// Time until the lease expires unless renewed. `None` in a session: as long as the session.
    pub ttl_ms: Option<u64>,
    /// Options shared with [`AcquireAll`].
    pub options: AcquireOptions<'a>,
}

impl<'a> Acquire<'a> {
    /// Requests an exclusive lease without a session and without a wait.
    pub const fn exclusive(resource: &'a str, holder: &'a str, ttl_ms: u64) -> Self {
        Self {
            resource,
            holder,
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(ttl_ms),
            options: AcquireOptions::DEFAULT,
        }
    }
}

/// A request for several leases, granted atomically.
#[derive(Clone, Copy, Debug)]
pub struct AcquireAll<'a> {
    /// The resources and how much of each.
    pub resources: &'a [(&'a str, Access)],
    /// Name of the holder.
    pub holder: &'a str,
    /// The session that carries the leases.
    pub session: Option<SessionId>,
    /// Time until the leases expire unless renewed. `None` in a session: as long as the session.
    pub ttl_ms: Option<u64>,
    /// Options shared with [`Acquire`].
    pub options: AcquireOptions<'a>,
}

/// Options for waiting and for holding a lease.
#[derive(Clone, Copy, Debug)]
pub struct AcquireOptions<'a> {
    /// Longest wait; zero tries once. A wait requires a session.
    pub wait_ms: u64,
    /// Waiters with a higher priority are served first.
    pub priority: u8,
    /// Whether to re-enter a lease that the same actor already holds.
    pub reentrant: bool,
    /// Longest hold over all renewals.
    pub max_hold_ms: Option<u64>,
    /// Renewals require progress within this window.
    pub progress_ms: Option<u64>,
    /// Application data for discovery and for operators.
    pub metadata: &'a [u8],
}

impl AcquireOptions<'_> {
    /// Priority of requests that do not set one.
    pub const DEFAULT_PRIORITY: u8 = 100;
    /// No wait, default priority, no limits.
    pub const DEFAULT: Self = Self {
        wait_ms: 0,
        priority: Self::DEFAULT_PRIORITY,
        reentrant: false,
        max_hold_ms: None,
        progress_ms: None,
        metadata: &[],
    };
}

/// Reference to a lease: id or resource, with the token number.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRef<'a> {
    /// The lease, by id or by resource.
    pub selector: LeaseSelector<'a>,
    /// The token number.
    pub number: Number,
    /// The session that carries the lease, if any.
    pub session: Option<SessionId>,
    /// The holder's name, if it should be compared.
    pub holder: Option<&'a str>,
}

impl<'a> LeaseRef<'a> {
    /// Refers to a lease by id and token number.
    pub const fn by_id(id: LeaseId, number: Number) -> Self {
        Self { selector: LeaseSelector::Id(id), number, session: None, holder: None }
    }

    /// Refers to a lease by resource and token number.
    pub const fn by_name(resource: &'a str, number: Number) -> Self {
        Self { selector: LeaseSelector::Resource(resource), number, session: None, holder: None }
    }
}

/// Selects a lease by id or by resource.
#[derive(Clone, Copy, Debug)]
pub enum LeaseSelector<'a> {
    /// The lease id.
    Id(LeaseId),
    /// The resource; the token number selects one of its leases.
    Resource(&'a str),
}

/// A renewal.
#[derive(Clone, Copy, Debug)]
pub struct Renew<'a> {
    /// The lease.
    pub lease: LeaseRef<'a>,
    /// A new ttl, if it changes.
    pub ttl_ms: Option<u64>,
    /// The position of the work, if it progressed.
    pub progress: Option<u64>,
}

/// A revocation.
#[derive(Clone, Copy, Debug)]
pub struct Revoke<'a> {
    /// All leases on a resource, or one lease.
    pub selector: LeaseSelector<'a>,
    /// End reason of the leases: operator or policy.
    pub reason: EndReason,
    /// Operator's comment for the audit log.
    pub comment: &'a str,
    /// Time between the notice to the holder and the end of the lease; zero ends it immediately.
    pub grace_ms: u64,
}

/// A planned handoff.
#[derive(Clone, Copy, Debug)]
pub struct Handoff<'a> {
    /// The lease.
    pub selector: LeaseSelector<'a>,
    /// The token number if the holder requests the handoff; `None` if an operator does.
    pub number: Option<Number>,
    /// Name of the successor; `None` for the first waiter.
    pub to: Option<&'a str>,
    /// Gap or overlap; `None` for the charter's choice.
    pub mode: Option<HandoffMode>,
    /// How long the predecessor may drain; `None` for the charter's choice.
    pub drain_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_secret_and_no_digest_of_one() {
        let (session, secret) = (SessionId { slot: 1, reuse: 0 }, SecretDigest::of(&[0xab; 32]));
        let open = OpenSession { holder: "w", ttl_ms: 1_000, secret, waits_only: false };
        let proof = Proof { session: Some(secret), ..Proof::NONE };
        let inputs = [
            Input::Request(Request::tagged(1), Command::OpenSession(open)),
            Input::Request(Request::tagged(1), Command::ResumeSession { session, secret }),
            Input::Request(Request { proof, ..Request::tagged(1) }, Command::CloseSession { session }),
        ];
        for input in inputs {
            let text = format!("{input:?}");
            let first = format!("{}, {}", secret.bytes()[0], secret.bytes()[1]);
            assert!(text.contains("SecretDigest(..)") && !text.contains(&first) && !text.contains("171"), "{text}");
        }
    }
}
