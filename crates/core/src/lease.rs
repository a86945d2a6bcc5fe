//! States of a lease, end reasons, validity and access.

use std::fmt;

/// The three states of a lease. Expired and revoked are distinct because they require different next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseState {
    /// +1: the holder may act.
    Held,
    /// 0: it expired or was released. The holder may acquire again on its own.
    Expired,
    /// -1: an authority revoked it. The holder must not acquire again on its own.
    Revoked,
}

impl LeaseState {
    /// The ternary value: 1, 0 or -1.
    pub const fn sign(self) -> i8 {
        match self {
            Self::Held => 1,
            Self::Expired => 0,
            Self::Revoked => -1,
        }
    }

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndReason {
    /// The holder released it.
    Released,
    /// It was not renewed in time.
    Ttl,
    /// The session that carried it ended.
    Session,
    /// It was renewed without the progress that its charter requires.
    Stalled,
    /// It reached its maximum hold time.
    MaxHold,
    /// It was handed off to a successor.
    HandedOff,
    /// The cluster was restored from a backup; no lease of a backup can be renewed.
    Restored,
    /// An operator revoked it.
    Operator,
    /// It was the victim of a deadlock.
    Deadlock,
    /// A waiter of higher priority preempted it, after notice and grace.
    Priority,
    /// A charter or policy revoked it.
    Policy,
}

impl EndReason {
    /// Every reason, in the order of its code.
    pub const ALL: [Self; 11] = [
        Self::Released,
        Self::Ttl,
        Self::Session,
        Self::Stalled,
        Self::MaxHold,
        Self::HandedOff,
        Self::Restored,
        Self::Operator,
        Self::Deadlock,
        Self::Priority,
        Self::Policy,
    ];

    /// The state that this reason leads to.
    pub const fn state(self) -> LeaseState {
        match self {
            Self::Released
            | Self::Ttl
            | Self::Session
            | Self::Stalled
            | Self::MaxHold
            | Self::HandedOff
            | Self::Restored => LeaseState::Expired,
            Self::Operator | Self::Deadlock | Self::Priority | Self::Policy => LeaseState::Revoked,
        }
    }

    /// Whether a client may acquire again on its own.
    pub const fn may_retry(self) -> bool {
        matches!(self.state(), LeaseState::Expired)
    }

    /// The outcome for human readers: `released` if the holder released the lease, otherwise the word of its state.
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::Released => self.word(),
            _ => self.state().word(),
        }
    }

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Ttl => "ttl",
            Self::Session => "session",
            Self::Stalled => "stalled",
            Self::MaxHold => "max_hold",
            Self::HandedOff => "handed_off",
            Self::Restored => "restored",
            Self::Operator => "operator",
            Self::Deadlock => "deadlock",
            Self::Priority => "priority",
            Self::Policy => "policy",
        }
    }

    /// The stored code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason with this stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the validity of a lease rests on. A wall clock alone is never an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Validity {
    /// A session with a grantor on one machine.
    Session,
    /// An entry in a replicated log.
    Quorum,
    /// The signature of an issuer.
    Issuer,
}

impl Validity {
    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Quorum => "quorum",
            Self::Issuer => "issuer",
        }
    }
}

/// How much of a resource a lease occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// All of it; no other lease exists on the resource.
    Exclusive,
    /// A reader, together with other readers. It has no slot, and no write fence accepts its token.
    Shared,
    /// One unit, with its own numbered slot that a fence can guard.
    Slot,
    /// A reservation: a number of units without a slot.
    Units(u32),
}
