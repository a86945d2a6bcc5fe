//! Subjects of refusals with their texts, and the limits that can be exceeded.

use crate::lease::Access;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$item])* $variant,)*
        }

        impl $name {
            /// All values, in the order of their stored codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable word.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

named! {
    /// The subject of a `NOT_FOUND` or `CONFLICT`.
    RefusalSubject {
        /// A resource.
        Resource => "resource",
        /// A lease.
        Lease => "lease",
        /// A session.
        Session => "session",
        /// A wait.
        Wait => "wait",
        /// A request id that was used with another body.
        Request => "request",
        /// A charter.
        Charter => "charter",
        /// A message of a queue.
        Message => "message",
        /// A key of the state stored under a resource.
        Key => "key",
        /// The write intent of a cached key.
        Intent => "intent",
        /// The capacity of a resource.
        Capacity => "capacity",
        /// A pending handoff.
        Handoff => "handoff",
        /// A collector's floor.
        Floor => "floor",
        /// A reservation.
        Hold => "hold",
        /// A quarantine.
        Quarantine => "quarantine",
        /// A target that reported.
        Target => "target",
        /// A standby server that could lead.
        Standby => "standby",
        /// The longest ttl of the cluster.
        MaxTtl => "max_ttl",
        /// A proposal that waits for an approval.
        Proposal => "proposal",
        /// The tenure of the server that leads.
        Tenure => "tenure",
    }
}

impl RefusalSubject {
    /// What a `NOT_FOUND` says: what does not exist, and the next step.
    pub(super) const fn not_found_text(self) -> &'static str {
        match self {
            Self::Resource => "no lease, waiter or setting of this resource exists; check its name",
            Self::Lease => "no lease on this resource exists; check its name",
            Self::Session => "the session does not exist or has ended; open a new session",
            Self::Wait => "no matching waiter exists; it has ended, or none waits for this resource",
            Self::Request => "the request is not known; send it under a new request id",
            Self::Charter => "this prefix has no charter of its own; list the charters",
            Self::Message => "the message does not exist or was acknowledged; receive another one",
            Self::Key => "the key does not exist; list the keys of the resource",
            Self::Intent => "the write intent does not exist; begin the write again",
            Self::Capacity => "the resource has no capacity; set one",
            Self::Handoff => "no handoff of this lease is in progress; nothing is left to do",
            Self::Floor => "the resource has no floor; nothing is left to do",
            Self::Hold => "the resource is not held for an operator; nothing is left to free",
            Self::Quarantine => "there is no quarantine; nothing is left to waive",
            Self::Target => "no fence reported a target of this name; check it in the coverage of the resource",
            Self::Standby => {
                "no standby exists, because the journal is on this machine; only a server over etcd can step down"
            }
            Self::MaxTtl => "the cluster has no longest ttl; create the cluster first",
            Self::Proposal => "the proposal does not exist, expired, was withdrawn or was executed; list the proposals",
            Self::Tenure => "no server leads; read the cluster status before you retry",
        }
    }

    /// What a `CONFLICT` says: what is in the way, and the next step.
    pub(super) const fn conflict_text(self) -> &'static str {
        match self {
            Self::Request => "the request id was used for another request; use a new request id",
            Self::Capacity => "the resource has another number of slots; read it, then request that number",
            Self::Message => "the message is not a dead letter; only a dead letter is redriven or dropped",
            Self::Key => "the key has another revision; read it before you retry",
            Self::Intent => "a write of this key is in progress; retry when it has ended",
            Self::Handoff => "the lease is already being drained; wait until that has ended",
            Self::Floor => "data at this position may be deleted already; pin a position at or above the floor",
            Self::Hold => "the lease is not a reservation of units; use the commands of a lease",
            Self::Resource => "the request conflicts with the current resource; read it before you retry",
            Self::Lease => "the request conflicts with the current lease; read it before you retry",
            Self::Session => "the request conflicts with the current session; read it before you retry",
            Self::Wait => "the request conflicts with the current wait; read it before you retry",
            Self::Charter => "the request conflicts with the current charter; read it before you retry",
            Self::Quarantine => "the request conflicts with the quarantine; read the status before you retry",
            Self::Target => "the request conflicts with the reported target; read the coverage before you retry",
            Self::Standby => "the request conflicts with the standbys; read the cluster status before you retry",
            Self::Proposal => {
                "the proposal is another command than the approved one; list the proposals and read it again"
            }
            Self::Tenure => "another server leads; read the cluster status before you retry",
            Self::MaxTtl => {
                "a lease, session, wait, message, cached key or charter has a longer ttl; end or shorten it, then retry"
            }
        }
    }
}

impl RefusalSubject {
    /// What changed between a proposal and its approval.
    pub(super) const fn changed_text(self) -> &'static str {
        match self {
            Self::Lease => "the leases are not the ones that were named",
            Self::Hold => "the resource was freed and blocked again",
            Self::Quarantine => "another quarantine began",
            Self::Charter => "the charter was changed",
            Self::MaxTtl => "max_ttl was changed",
            Self::Tenure => "another server leads",
            Self::Resource
            | Self::Session
            | Self::Wait
            | Self::Request
            | Self::Message
            | Self::Key
            | Self::Intent
            | Self::Capacity
            | Self::Handoff
            | Self::Floor
            | Self::Target
            | Self::Standby
            | Self::Proposal => "its subject was changed",
        }
    }

    /// Whether the values of a change are a number of something.
    pub(super) const fn has_count(self) -> bool {
        matches!(self, Self::Lease)
    }
}

named! {
    /// The access of a lease, without its units.
    AccessKind {
        /// All of the resource.
        Exclusive => "exclusive",
        /// Together with other readers.
        Shared => "shared",
        /// One numbered slot.
        Slot => "slot",
        /// Units of the capacity.
        Units => "units",
    }
}

impl From<Access> for AccessKind {
    fn from(access: Access) -> Self {
        match access {
            Access::Exclusive => Self::Exclusive,
            Access::Shared => Self::Shared,
            Access::Slot => Self::Slot,
            Access::Units(_) => Self::Units,
        }
    }
}

impl Limit {
    /// Whether it limits one identity.
    pub const fn is_of_identity(self) -> bool {
        matches!(
            self,
            Self::IdentitySessions
                | Self::IdentityKeys
                | Self::IdentityLeases
                | Self::IdentityWaiters
                | Self::IdentityMetadata
                | Self::IdentityCharters
                | Self::IdentityTargets
                | Self::IdentityMessages
                | Self::IdentityMessageBytes
                | Self::IdentityCacheGrants
                | Self::IdentityStateBytes
        )
    }
}

named! {
    /// A limit that a request exceeds.
    Limit {
        /// Units of a resource.
        Units => "units",
        /// Readers of a resource.
        Readers => "readers",
        /// Resources of one atomic acquire.
        Resources => "resources",
        /// Re-entrant depth.
        Depth => "depth",
        /// Leases of a session.
        SessionLeases => "session_leases",
        /// Actors of a session.
        SessionActors => "session_actors",
        /// Waits of a session.
        SessionWaits => "session_waits",
        /// Unacknowledged requests of a session.
        SessionRequests => "session_requests",
        /// Leases of the cluster.
        Leases => "leases",
        /// Sessions of the cluster.
        Sessions => "sessions",
        /// Waiters of a resource.
        Waiters => "waiters",
        /// Charters of the cluster.
        Charters => "charters",
        /// Bytes of metadata.
        Metadata => "metadata",
        /// Bytes of a value.
        Value => "value",
        /// State keys of a resource.
        Keys => "keys",
        /// Messages of a queue.
        Messages => "messages",
        /// Bytes of a message.
        Message => "message",
        /// Readers of a cached key.
        CacheReaders => "cache_readers",
        /// Cached keys.
        CacheKeys => "cache_keys",
        /// Pins of a resource.
        Pins => "pins",
        /// Entries of a batch of reports.
        Reports => "reports",
        /// Targets that reported.
        Targets => "targets",
        /// Sessions of one identity.
        IdentitySessions => "identity_sessions",
        /// Leases that one identity holds or waits for.
        IdentityLeases => "identity_leases",
        /// Waits of one identity.
        IdentityWaiters => "identity_waiters",
        /// Bytes of metadata of one identity.
        IdentityMetadata => "identity_metadata",
        /// Proposals that wait for an approval.
        Proposals => "proposals",
        /// Proposals of one identity that wait for an approval.
        IdentityProposals => "identity_proposals",
        /// Charters that one identity set.
        IdentityCharters => "identity_charters",
        /// Targets that one identity reported.
        IdentityTargets => "identity_targets",
        /// Bytes of the proposals that wait for an approval.
        ProposalBytes => "proposal_bytes",
        /// Messages that one identity sent.
        IdentityMessages => "identity_messages",
        /// Bytes of the messages that one identity sent.
        IdentityMessageBytes => "identity_message_bytes",
        /// Read leases, write intents and fills of cached keys of one identity.
        IdentityCacheGrants => "identity_cache_grants",
        /// Bytes of the state that one identity wrote.
        IdentityStateBytes => "identity_state_bytes",
        /// Idempotency keys of one identity with a stored reply.
        IdentityKeys => "identity_keys",
    }
}
