//! A stored lease in 64 bytes, and the extra fields that few leases have.

use super::deadline::RenewableDeadline;
use crate::access::LOCAL_OWNER;
use crate::command::HandoffMode;
use crate::lease::{Access, EndReason};
use crate::record::DrainCause;
use crate::time::GrantorTime;
use crate::token::{Number, TokenScope};

/// No lease, actor, session, resource state or waiter.
pub(crate) const NONE: u32 = u32::MAX;

/// A lease. After its end the entry stores the end reason until its slot is reused. It is one cache line, so that a renewal reads
/// and writes no other.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct StoredLease {
    number: u64,
    /// The time of the grant in the lower 48 bits, flags above.
    granted: u64,
    pub resource: u32,
    pub actor: u32,
    pub renewal: RenewableDeadline,
    /// The slot, or the units.
    pub units: u32,
    /// Index among the leases of its resource.
    pub index_in_resource: u32,
    /// The next and previous lease of its actor.
    pub next: u32,
    pub prev: u32,
    /// The identity that was granted the lease. A tombstone keeps it.
    pub owner: u32,
    /// The epoch of the access rules under which the owner was last found to be allowed to renew. Not part of the state.
    pub checked: u32,
}

const _: () = assert!(size_of::<StoredLease>() == 64);

const GRANTED: u64 = (1 << 48) - 1;
const ACCESS: u64 = 48;
const FOLLOWS_SESSION: u64 = 1 << 50;
const EXTRA: u64 = 1 << 51;
const APART: u64 = 1 << 52;
const PRIORITY: u64 = 56;

impl StoredLease {
    pub fn new(
        number: Number,
        at: GrantorTime,
        access: Access,
        slot: u32,
        priority: u8,
        renewal: RenewableDeadline,
    ) -> Self {
        let (code, units) = match access {
            Access::Exclusive => (0, slot),
            Access::Shared => (1, 0),
            Access::Slot => (2, slot),
            Access::Units(units) => (3, units),
        };
        let follows_session = if renewal.ttl == 0 { FOLLOWS_SESSION } else { 0 };
        Self {
            number: number.get(),
            granted: at.0 & GRANTED | code << ACCESS | follows_session | u64::from(priority) << PRIORITY,
            resource: NONE,
            actor: NONE,
            renewal,
            units,
            index_in_resource: 0,
            next: NONE,
            prev: NONE,
            owner: LOCAL_OWNER,
            checked: 0,
        }
    }

    pub fn number(&self) -> Number {
        Number::new(self.number).expect("set from a number")
    }

    pub fn set_number(&mut self, number: Number) {
        self.number = number.get();
    }

    pub const fn granted(&self) -> GrantorTime {
        GrantorTime(self.granted & GRANTED)
    }

    pub const fn access(&self) -> Access {
        match self.granted >> ACCESS & 3 {
            0 => Access::Exclusive,
            1 => Access::Shared,
            2 => Access::Slot,
            _ => Access::Units(self.units),
        }
    }

    pub const fn scope(&self) -> TokenScope {
        match self.access() {
            Access::Exclusive | Access::Slot => TokenScope::Slot(self.units),
            Access::Shared => TokenScope::Shared,
            Access::Units(_) => TokenScope::Units,
        }
    }

    /// The slot of an exclusive or slot lease; zero for the others.
    pub const fn slot(&self) -> u32 {
        match self.access() {
            Access::Exclusive | Access::Slot => self.units,
            Access::Shared | Access::Units(_) => 0,
        }
    }

    pub const fn priority(&self) -> u8 {
        (self.granted >> PRIORITY) as u8
    }

    /// Whether it lasts exactly as long as its session.
    pub const fn follows_session(&self) -> bool {
        self.granted & FOLLOWS_SESSION != 0
    }

    /// Whether it has extra fields.
    pub const fn has_extra(&self) -> bool {
        self.granted & EXTRA != 0
    }

    pub const fn set_extra(&mut self, enabled: bool) {
        self.granted = if enabled { self.granted | EXTRA } else { self.granted & !EXTRA };
    }

    /// Whether it is the draining predecessor of an overlap handoff, which does not count against the capacity (L1).
    pub const fn is_predecessor(&self) -> bool {
        self.granted & APART != 0
    }

    pub const fn set_predecessor(&mut self) {
        self.granted |= APART;
    }

    /// Turns the entry into a tombstone with its end reason.
    pub fn set_tombstone(&mut self, reason: EndReason) {
        self.units = u32::from(reason.code());
        self.resource = NONE;
        self.actor = NONE;
    }

    /// The end reason of a tombstone.
    pub fn end_reason(&self) -> EndReason {
        EndReason::from_code(self.units as u8).expect("a tombstone has a reason")
    }
}

/// Fields of leases with more than a ttl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseExtra {
    /// Number of re-entries.
    pub depth: u32,
    pub max_hold: Option<u64>,
    pub progress: Option<Progress>,
    pub veto: Option<GrantorTime>,
    pub pinned: Option<u64>,
    pub drain: Option<Drain>,
    /// Successor or predecessor in an overlap handoff.
    pub successor: Option<u32>,
    pub predecessor: Option<u32>,
    pub metadata: Box<[u8]>,
}

impl LeaseExtra {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Required progress: a deadline that only progress renews (G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub renewal: RenewableDeadline,
    /// The last recorded position of the work.
    pub at: u64,
    /// The last reported position. Not part of the state.
    pub seen: u64,
}

/// A scheduled end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub until: GrantorTime,
    pub cause: StoredDrainCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredDrainCause {
    Handoff { mode: HandoffMode, to: Box<str> },
    Priority,
    Revoked { reason: EndReason, comment: Box<str> },
}

impl StoredDrainCause {
    pub fn reason(&self) -> EndReason {
        match self {
            Self::Handoff { .. } => EndReason::HandedOff,
            Self::Priority => EndReason::Priority,
            Self::Revoked { reason, .. } => *reason,
        }
    }

    pub fn borrowed(&self) -> DrainCause<'_> {
        match self {
            Self::Handoff { mode, to } => DrainCause::Handoff { mode: *mode, to },
            Self::Priority => DrainCause::Priority,
            Self::Revoked { reason, comment } => DrainCause::Revoked { reason: *reason, comment },
        }
    }
}

impl From<DrainCause<'_>> for StoredDrainCause {
    fn from(cause: DrainCause<'_>) -> Self {
        match cause {
            DrainCause::Handoff { mode, to } => Self::Handoff { mode, to: to.into() },
            DrainCause::Priority => Self::Priority,
            DrainCause::Revoked { reason, comment } => Self::Revoked { reason, comment: comment.into() },
        }
    }
}
