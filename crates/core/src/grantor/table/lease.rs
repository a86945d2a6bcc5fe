//! A lease in 56 bytes, and what few leases carry beside it.

use super::term::Term;
use crate::command::Style;
use crate::lease::{Access, Reason};
use crate::record::Cause;
use crate::time::Millis;
use crate::token::{Number, Reach};

/// No lease, party, crowd or waiter.
pub(crate) const NONE: u32 = u32::MAX;

/// One hold of one resource. After its end the same place tells why, until somebody takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    number: u64,
    /// The time of the grant in the lower 48 bits, flags above.
    granted: u64,
    pub resource: u32,
    pub party: u32,
    pub term: Term,
    /// The slot, or the units.
    pub units: u32,
    /// The place among the leases of its resource.
    pub place: u32,
    /// The next and previous lease of its party.
    pub next: u32,
    pub prev: u32,
}

const GRANTED: u64 = (1 << 48) - 1;
const ACCESS: u64 = 48;
const RIDES: u64 = 1 << 50;
const EXTRA: u64 = 1 << 51;
const APART: u64 = 1 << 52;
const PRIORITY: u64 = 56;

impl Lease {
    pub fn new(number: Number, at: Millis, access: Access, slot: u32, priority: u8, term: Term) -> Self {
        let (code, units) = match access {
            Access::Exclusive => (0, slot),
            Access::Shared => (1, 0),
            Access::Slot => (2, slot),
            Access::Units(units) => (3, units),
        };
        let rides = if term.ttl == 0 { RIDES } else { 0 };
        Self {
            number: number.get(),
            granted: at.0 & GRANTED | code << ACCESS | rides | u64::from(priority) << PRIORITY,
            resource: NONE,
            party: NONE,
            term,
            units,
            place: 0,
            next: NONE,
            prev: NONE,
        }
    }

    pub fn number(&self) -> Number {
        Number::new(self.number).expect("set from a number")
    }

    pub fn set_number(&mut self, number: Number) {
        self.number = number.get();
    }

    pub const fn granted(&self) -> Millis {
        Millis(self.granted & GRANTED)
    }

    pub const fn access(&self) -> Access {
        match self.granted >> ACCESS & 3 {
            0 => Access::Exclusive,
            1 => Access::Shared,
            2 => Access::Slot,
            _ => Access::Units(self.units),
        }
    }

    pub const fn reach(&self) -> Reach {
        match self.access() {
            Access::Exclusive | Access::Slot => Reach::Slot(self.units),
            Access::Shared => Reach::Shared,
            Access::Units(_) => Reach::Units,
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

    /// Whether it lives exactly as long as its session.
    pub const fn rides(&self) -> bool {
        self.granted & RIDES != 0
    }

    /// Whether something stands beside it in the table of extras.
    pub const fn has_extra(&self) -> bool {
        self.granted & EXTRA != 0
    }

    pub const fn set_extra(&mut self, yes: bool) {
        self.granted = if yes { self.granted | EXTRA } else { self.granted & !EXTRA };
    }

    /// Whether it is the draining predecessor of an overlap handoff, counted apart (L1).
    pub const fn is_apart(&self) -> bool {
        self.granted & APART != 0
    }

    pub const fn set_apart(&mut self) {
        self.granted |= APART;
    }

    /// Turns the entry into what its place tells about it from now on.
    pub fn bury(&mut self, reason: Reason) {
        self.units = u32::from(reason.code());
        self.resource = NONE;
        self.party = NONE;
    }

    /// Why the lease that was here ended.
    pub fn buried(&self) -> Reason {
        Reason::from_code(self.units as u8).expect("buried with a reason")
    }
}

/// What a lease carries if it asked for more than a ttl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// How often it was entered again.
    pub depth: u32,
    pub max_hold: Option<u64>,
    pub progress: Option<Progress>,
    pub veto: Option<Millis>,
    pub pinned: Option<u64>,
    pub drain: Option<Drain>,
    /// The lease that follows by overlap, or that this one follows.
    pub successor: Option<u32>,
    pub predecessor: Option<u32>,
    pub metadata: Box<[u8]>,
}

impl Extra {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Renewal asks for progress: a term of its own that only progress renews (G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub term: Term,
    /// How far the work was last seen on record.
    pub at: u64,
    /// How far it was seen since. Not part of the state.
    pub seen: u64,
}

/// It must be given up by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub until: Millis,
    pub cause: DrainCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DrainCause {
    HandOff { style: Style, to: Box<str> },
    Priority,
    Revoked { reason: Reason, why: Box<str> },
}

impl DrainCause {
    pub fn reason(&self) -> Reason {
        match self {
            Self::HandOff { .. } => Reason::HandedOff,
            Self::Priority => Reason::Priority,
            Self::Revoked { reason, .. } => *reason,
        }
    }

    pub fn borrowed(&self) -> Cause<'_> {
        match self {
            Self::HandOff { style, to } => Cause::HandOff { style: *style, to },
            Self::Priority => Cause::Priority,
            Self::Revoked { reason, why } => Cause::Revoked { reason: *reason, why },
        }
    }
}

impl From<Cause<'_>> for DrainCause {
    fn from(cause: Cause<'_>) -> Self {
        match cause {
            Cause::HandOff { style, to } => Self::HandOff { style, to: to.into() },
            Cause::Priority => Self::Priority,
            Cause::Revoked { reason, why } => Self::Revoked { reason, why: why.into() },
        }
    }
}
