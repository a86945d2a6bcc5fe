//! What holders and operators ask for, owned, so that a message can wait, come twice and be sent again.

use leasehold_core::command::{
    Acquire, AcquireAll, Command, HandOff, Held, OpenSession, Renew, Revoke, Secret, Style, Terms, Which,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::payload::delivery;
use leasehold_core::token::Number;

/// Resources under exclusive leases, each with a target.
pub const EXCLUSIVE: [&str; 4] = ["jobs/a", "jobs/b", "jobs/c", "jobs/d"];
/// A resource with slots.
pub const SLOTS: &str = "slots/s";
/// A resource with units.
pub const UNITS: &str = "units/u";
/// A queue.
pub const QUEUE: &str = "queue/q";

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

impl Known {
    const fn held(&self) -> Held<'static> {
        Held { lease: Which::Id(self.lease), number: self.number, session: self.session, holder: None }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the core's commands")]
pub enum Ask {
    Open {
        ttl: u64,
        waits_only: bool,
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
        ttl: Option<u64>,
        wait: u64,
        max_hold: Option<u64>,
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
    Show,
}

impl Ask {
    /// Every kind, by its word.
    pub const KINDS: [&'static str; 23] = [
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
            Self::Show => 22,
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
        )
    }

    /// Hands the core's command to `then`.
    pub fn command<R>(&self, holder: &str, then: impl FnOnce(Command<'_>) -> R) -> R {
        let terms = |wait: u64| Terms { wait_ms: wait, ..Terms::DEFAULT };
        let deliver = |command| Command::Delivery(command);
        let command = match self {
            Self::Open { ttl, waits_only } => Command::OpenSession(OpenSession {
                holder,
                ttl_ms: *ttl,
                secret: Secret([7; 32]),
                waits_only: *waits_only,
            }),
            Self::RenewSession { session } => Command::RenewSession { session: *session, known: None },
            Self::Close { session } => Command::CloseSession { session: *session },
            Self::Acquire { resource, session, access, ttl, wait, max_hold } => Command::Acquire(Acquire {
                resource,
                holder: if session.is_some() { "" } else { holder },
                session: *session,
                access: *access,
                slots: (*access == Access::Slot).then_some(2),
                ttl_ms: *ttl,
                terms: Terms { max_hold_ms: *max_hold, ..terms(*wait) },
            }),
            Self::AcquireAll { resources, session, ttl, wait } => {
                let wanted: Vec<_> = resources.iter().map(|name| (*name, Access::Exclusive)).collect();
                let several = AcquireAll {
                    wanted: &wanted,
                    holder: "",
                    session: Some(*session),
                    ttl_ms: *ttl,
                    terms: terms(*wait),
                };
                return then(Command::AcquireAll(several));
            }
            Self::Cancel { session, sequence } => Command::Cancel { session: *session, sequence: *sequence },
            Self::Renew { held } => Command::Renew(Renew { held: held.held(), ttl_ms: None, progress: None }),
            Self::Release { held } => Command::Release(held.held()),
            Self::Confirm { held } => Command::Confirm(held.held()),
            Self::Rotate { held } => Command::Rotate(held.held()),
            Self::Drained { held } => Command::Drained(held.held()),
            Self::ConfirmHold { held } => Command::ConfirmHold(held.held()),
            Self::ResizeHold { held, units } => Command::ResizeHold { held: held.held(), units: *units },
            Self::Put { held, value } => {
                let bytes = value.to_be_bytes();
                return then(Command::Put { held: held.held(), key: "at", bytes: Some(&bytes), expect: None });
            }
            Self::Revoke { resource, grace } => Command::Revoke(Revoke {
                which: Which::Resource(resource),
                reason: Reason::Operator,
                why: "drill",
                grace_ms: *grace,
            }),
            Self::HandOff { resource, overlap, drain } => Command::HandOff(HandOff {
                which: Which::Resource(resource),
                number: None,
                to: None,
                style: Some(if *overlap { Style::Overlap } else { Style::Gap }),
                drain_ms: Some(*drain),
            }),
            Self::SetCapacity { resource, units } => Command::SetCapacity { resource, units: *units },
            Self::Enqueue { body, attempts } => {
                let body = body.to_be_bytes();
                let attempts = Some(*attempts);
                return then(deliver(delivery::Command::Enqueue {
                    queue: QUEUE,
                    body: &body,
                    delay_ms: 0,
                    max_attempts: attempts,
                }));
            }
            Self::Receive { session, visibility, most } => deliver(delivery::Command::Receive {
                queue: QUEUE,
                session: *session,
                holder,
                visibility_ms: *visibility,
                most: *most,
            }),
            Self::Ack { item, receipt } => {
                deliver(delivery::Command::Ack { queue: QUEUE, item: *item, receipt: *receipt })
            }
            Self::Nack { item, receipt } => {
                deliver(delivery::Command::Nack { queue: QUEUE, item: *item, receipt: *receipt, delay_ms: 0 })
            }
            Self::Extend { item, receipt, visibility } => deliver(delivery::Command::Extend {
                queue: QUEUE,
                item: *item,
                receipt: *receipt,
                visibility_ms: *visibility,
            }),
            Self::Show => Command::Show,
        };
        then(command)
    }
}
