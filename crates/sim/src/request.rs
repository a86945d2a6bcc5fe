//! Requests of holders and operators, as owned values, so that a message can be queued, duplicated and retried.

mod to_command;

use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::token::Number;

/// A lease as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownLease {
    /// Lease id.
    pub lease: LeaseId,
    /// Token number.
    pub number: Number,
    /// Session of the lease.
    pub session: Option<SessionId>,
}

/// Options of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the core's options")]
pub struct SimAcquireOptions {
    pub ttl: Option<u64>,
    pub wait: u64,
    pub max_hold: Option<u64>,
    pub priority: u8,
    /// Whether a held lease is acquired again.
    pub reentrant: bool,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the core's commands")]
pub enum SimRequest {
    Open {
        ttl: u64,
        waits_only: bool,
        secret: u8,
    },
    RenewSession {
        session: SessionId,
    },
    Close {
        session: SessionId,
    },
    Acquire {
        resource: &'static str,
        session: Option<SessionId>,
        access: Access,
        options: SimAcquireOptions,
    },
    AcquireAll {
        resources: Vec<&'static str>,
        session: SessionId,
        ttl: Option<u64>,
        wait: u64,
    },
    Cancel {
        session: SessionId,
        sequence: u64,
    },
    Renew {
        held: KnownLease,
        progress: Option<u64>,
    },
    Release {
        held: KnownLease,
    },
    Confirm {
        held: KnownLease,
    },
    Rotate {
        held: KnownLease,
    },
    Drained {
        held: KnownLease,
    },
    ConfirmHold {
        held: KnownLease,
    },
    ResizeHold {
        held: KnownLease,
        units: u32,
    },
    Put {
        held: KnownLease,
        value: u64,
    },
    Revoke {
        resource: &'static str,
        grace: u64,
    },
    Handoff {
        resource: &'static str,
        overlap: bool,
        drain: u64,
    },
    SetCapacity {
        resource: &'static str,
        units: u32,
    },
    Enqueue {
        body: u64,
        attempts: u32,
    },
    Receive {
        session: Option<SessionId>,
        visibility: u64,
        limit: u32,
    },
    Ack {
        item: u64,
        receipt: Number,
    },
    Nack {
        item: u64,
        receipt: Number,
    },
    Extend {
        item: u64,
        receipt: Number,
        visibility: u64,
    },
    /// Resumes a session, with its secret or a guessed one.
    Resume {
        session: SessionId,
        secret: u8,
    },
    Pin {
        held: KnownLease,
        at: u64,
    },
    Collect {
        below: u64,
    },
    Read {
        session: Option<SessionId>,
        ttl: u64,
    },
    Dropped {
        lease: Number,
    },
    Intend {
        session: Option<SessionId>,
        ttl: u64,
    },
    Commit {
        intent: Number,
    },
    Abort {
        intent: Number,
    },
    /// Reports a refusal of a target.
    Report {
        target: usize,
        presented: Number,
        mark: Number,
    },
    SetCharter,
    ObserveToken,
}

impl SimRequest {
    /// Names of all kinds.
    pub const KINDS: [&'static str; 33] = [
        "open",
        "renew_session",
        "close",
        "acquire",
        "acquire_all",
        "cancel",
        "renew",
        "release",
        "confirm",
        "rotate",
        "drained",
        "confirm_hold",
        "resize_hold",
        "put",
        "revoke",
        "handoff",
        "set_capacity",
        "enqueue",
        "receive",
        "ack",
        "nack",
        "extend",
        "resume",
        "pin",
        "collect",
        "read",
        "dropped",
        "intend",
        "commit",
        "abort",
        "report",
        "set_charter",
        "observe_token",
    ];

    /// Name in traces and tables.
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }

    const fn kind_index(&self) -> usize {
        match self {
            Self::Open { .. } => 0,
            Self::RenewSession { .. } => 1,
            Self::Close { .. } => 2,
            Self::Acquire { .. } => 3,
            Self::AcquireAll { .. } => 4,
            Self::Cancel { .. } => 5,
            Self::Renew { .. } => 6,
            Self::Release { .. } => 7,
            Self::Confirm { .. } => 8,
            Self::Rotate { .. } => 9,
            Self::Drained { .. } => 10,
            Self::ConfirmHold { .. } => 11,
            Self::ResizeHold { .. } => 12,
            Self::Put { .. } => 13,
            Self::Revoke { .. } => 14,
            Self::Handoff { .. } => 15,
            Self::SetCapacity { .. } => 16,
            Self::Enqueue { .. } => 17,
            Self::Receive { .. } => 18,
            Self::Ack { .. } => 19,
            Self::Nack { .. } => 20,
            Self::Extend { .. } => 21,
            Self::Resume { .. } => 22,
            Self::Pin { .. } => 23,
            Self::Collect { .. } => 24,
            Self::Read { .. } => 25,
            Self::Dropped { .. } => 26,
            Self::Intend { .. } => 27,
            Self::Commit { .. } => 28,
            Self::Abort { .. } => 29,
            Self::Report { .. } => 30,
            Self::SetCharter => 31,
            Self::ObserveToken => 32,
        }
    }

    /// Whether each copy that arrives creates something new, so that it is not idempotent without a request id.
    pub const fn creates(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Acquire { .. }
                | Self::AcquireAll { .. }
                | Self::Enqueue { .. }
                | Self::Receive { .. }
                | Self::Rotate { .. }
                | Self::Read { .. }
                | Self::Intend { .. }
        )
    }
}
