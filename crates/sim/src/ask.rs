//! What holders and operators ask for, owned, so that a message can wait, come twice and be sent again.

mod command;

use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Access;
use leasehold_core::token::Number;

/// Resources under exclusive leases, each with a target.
pub const EXCLUSIVE: [&str; 4] = ["jobs/a", "jobs/b", "jobs/c", "jobs/d"];
/// A resource with slots.
pub const SLOTS: &str = "slots/s";
/// A resource with units.
pub const UNITS: &str = "units/u";
/// A queue.
pub const QUEUE: &str = "queue/q";
/// A resource that is read together and written alone, with pins.
pub const READ: &str = "read/r";
/// A resource for which the more urgent takes it from the less urgent, as its charter says.
pub const RUSH: &str = "rush/p";
/// What the charter of [`RUSH`] gives whoever must go.
pub const RUSH_GRACE: u64 = 400;
/// A resource whose holder must show progress this often.
pub const WORK: &str = "work/w";
/// See [`WORK`].
pub const WORK_WINDOW: u64 = 1_200;
/// A cached key.
pub const KEY: &str = "cache/k";
/// All resources that queues form at.
pub const QUEUED: [&str; 7] = ["jobs/a", "jobs/b", "jobs/c", "jobs/d", READ, RUSH, WORK];

/// A lease as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its id.
    pub lease: LeaseId,
    /// Its number.
    pub number: Number,
    /// The session that carries it.
    pub session: Option<SessionId>,
}

/// How a lease is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the core's terms")]
pub struct How {
    pub ttl: Option<u64>,
    pub wait: u64,
    pub max_hold: Option<u64>,
    pub priority: u8,
    /// What is held already is entered again.
    pub again: bool,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the core's commands")]
pub enum Ask {
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
        how: How,
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
        held: Known,
        progress: Option<u64>,
    },
    Release {
        held: Known,
    },
    Confirm {
        held: Known,
    },
    Rotate {
        held: Known,
    },
    Drained {
        held: Known,
    },
    ConfirmHold {
        held: Known,
    },
    ResizeHold {
        held: Known,
        units: u32,
    },
    Put {
        held: Known,
        value: u64,
    },
    Revoke {
        resource: &'static str,
        grace: u64,
    },
    HandOff {
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
        most: u32,
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
    /// Coming back to a session, with its secret or a guessed one.
    Resume {
        session: SessionId,
        secret: u8,
    },
    Pin {
        held: Known,
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
    /// What a target refused.
    Report {
        target: usize,
        presented: Number,
        mark: Number,
    },
    SetCharter,
    Show,
}

impl Ask {
    /// Every kind, by its word.
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
        "hand_off",
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
        "show",
    ];

    /// Its word in traces and tables.
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.place()]
    }

    const fn place(&self) -> usize {
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
            Self::HandOff { .. } => 15,
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
            Self::Show => 32,
        }
    }

    /// Whether it begins something, so that it is done once for each time that it arrives.
    pub const fn begins(&self) -> bool {
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
