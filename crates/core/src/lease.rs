//! The words for a lease's life: held, expired or revoked, always with the reason.

use std::fmt;

/// The three states of a lease. Expired and revoked are told apart because they ask for different next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// +1: the holder may act.
    Held,
    /// 0: it ran out, or was given back. The holder may try again by itself.
    Expired,
    /// -1: authority took it away. The holder must not try again by itself.
    Revoked,
}

impl State {
    /// The sign under which the state is counted.
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

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The holder gave it back.
    Released,
    /// Nobody renewed it in time.
    Ttl,
    /// The session that carried it ended.
    Session,
    /// It was renewed without the progress that its charter asks for.
    Stalled,
    /// It reached its maximum hold.
    MaxHold,
    /// It was handed to a successor.
    HandedOff,
    /// The cluster was restored from a backup; nothing in a backup is renewable.
    Restored,
    /// An operator took it.
    Operator,
    /// It was the victim of a deadlock.
    Deadlock,
    /// A higher priority took it, after notice and grace.
    Priority,
    /// A charter or rule took it.
    Policy,
}

impl Reason {
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
    pub const fn state(self) -> State {
        match self {
            Self::Released
            | Self::Ttl
            | Self::Session
            | Self::Stalled
            | Self::MaxHold
            | Self::HandedOff
            | Self::Restored => State::Expired,
            Self::Operator | Self::Deadlock | Self::Priority | Self::Policy => State::Revoked,
        }
    }

    /// Whether a client may acquire again by itself.
    pub const fn may_retry(self) -> bool {
        matches!(self.state(), State::Expired)
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

    /// The code under which it is stored.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason stored under a code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a lease's validity rests on. A bare wall clock is never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// A grantor on one machine hears the holder.
    Session,
    /// The authority is an entry of a replicated log.
    Quorum,
    /// An issuer signed it.
    Issuer,
}

impl Rung {
    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Quorum => "quorum",
            Self::Issuer => "issuer",
        }
    }
}

/// How much of a resource a lease takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// All of it; nobody else holds anything.
    Exclusive,
    /// A reader among readers; it has no slot and no write fence accepts it.
    Shared,
    /// One unit, with a slot of its own that a fence can guard.
    Slot,
    /// So many units without a slot: a reservation.
    Units(u32),
}
