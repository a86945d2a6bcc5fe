//! The words a charter is written in: what may be chosen for each term, and what each choice means.

use std::fmt;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// Every choice, in the order of its stored code; a new one goes last.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable word.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The choice that a stable word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.word() == word)
            }

            /// The code under which it is stored.
            pub const fn code(self) -> u8 {
                self as u8
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

choice! {
    /// What a lease is for; its rules come with it.
    Payload {
        /// One holder at a time: a lock.
        Exclusion = "exclusion",
        /// One who decides for many: a leader.
        Coordination = "coordination",
        /// A message that one worker has in hand: a delivery.
        WorkItem = "work_item",
        /// A part of the data, with its checkpoint.
        Shard = "shard",
        /// That somebody is there: a session.
        Liveness = "liveness",
        /// Units set aside: a reservation.
        Capacity = "capacity",
        /// That what was read still stands: a cache.
        ReadValidity = "read_validity",
        /// That somebody may: a credential.
        Permission = "permission",
    }
}

choice! {
    /// Which failure a handoff prefers; neither is not on offer.
    Style {
        /// Nobody holds it for a moment; never two.
        Gap = "gap",
        /// Two hold it for a moment; never nobody. The fence decides who writes.
        Overlap = "overlap",
    }
}

choice! {
    /// What becomes of work that the predecessor began and did not put on record.
    Uncommitted {
        /// The successor finds it and clears it away.
        Reaped = "reaped",
        /// The successor does it again.
        Replayed = "replayed",
        /// It is gone, and that is accepted.
        Lost = "lost",
    }
}

choice! {
    /// Who may have a resource after its lease was revoked.
    #[derive(Default)]
    AfterRevocation {
        /// The next in line.
        #[default]
        Free = "free",
        /// Nobody, until an operator frees it.
        HoldForOperator = "hold_for_operator",
    }
}

choice! {
    /// What is done about a deadlock.
    #[derive(Default)]
    OnDeadlock {
        /// It is told to the operator; nobody pays.
        Report = "report",
        /// The victim's wait is refused; its leases stay.
        #[default]
        RefuseWait = "refuse_wait",
        /// The victim's lease is revoked.
        Revoke = "revoke",
    }
}

choice! {
    /// Which token a holder has after a renewal.
    #[derive(Default)]
    TokenOnRenewal {
        /// The one of its grant: one token for one hold.
        #[default]
        Keep = "keep",
        /// A higher one, journaled; its own writes in flight become stale.
        Rotate = "rotate",
    }
}

/// What a renewal proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// That the holder is there.
    #[default]
    Pulse,
    /// That its work moved within this window; without that the lease ends as `stalled` (G1).
    Progress {
        /// The window, in milliseconds of served time.
        window_ms: u64,
    },
}

/// How a lease changes hands by plan (H2, H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handoff {
    /// Gap or overlap.
    pub style: Style,
    /// How long the predecessor may drain, in milliseconds; bounded, so that every handoff terminates.
    pub drain_ms: u64,
}

impl Default for Handoff {
    fn default() -> Self {
        Self { style: Style::Gap, drain_ms: crate::limits::DRAIN_DEFAULT }
    }
}

/// Where a successor goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartsFrom {
    /// At the newest checkpoint of the resource.
    #[default]
    Newest,
    /// At nothing: it begins anew.
    Nothing,
    /// At the small state under this key.
    Key(String),
}

/// What happens when a lease runs out. The resource is always free in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtExpiry {
    /// Free at once.
    #[default]
    Free,
    /// Free, unless an obligation in flight keeps a reservation a little longer.
    Veto {
        /// At most so long, in milliseconds.
        max_ms: u64,
    },
}

/// Whether a waiter may take a lease from its holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// Never.
    #[default]
    Never,
    /// From a holder of lower priority, after notice and grace (P1).
    LowerPriority {
        /// The grace, in milliseconds.
        grace_ms: u64,
    },
}

/// One place that the holder can change under the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What people call it; once per charter.
    pub name: String,
    /// Where it is: an address without a password, or plain words.
    pub at: String,
    /// How it meets a stale token; absent while nobody has said.
    pub mode: Option<Mode>,
}

/// How a target meets a stale token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The target itself refuses a write that shows no token or a lower one.
    Forced,
    /// The target refuses a lower token, from writers that show theirs.
    Cooperative,
    /// It is kept by the grantor, which refuses what is not current.
    Grantor,
    /// It checks nothing, and no holder is expected to pause this long.
    BoundedPause {
        /// The longest pause assumed, in milliseconds.
        assumed_ms: u64,
        /// What is damaged when the assumption fails.
        blast_radius: Option<String>,
    },
    /// It checks nothing.
    None {
        /// Why that is accepted.
        why: Option<String>,
    },
}

impl Mode {
    /// The stable word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Forced => "forced",
            Self::Cooperative => "cooperative",
            Self::Grantor => "grantor",
            Self::BoundedPause { .. } => "bounded_pause",
            Self::None { .. } => "none",
        }
    }

    /// Whether a stale token is refused there.
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Forced | Self::Cooperative | Self::Grantor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_names_one_choice_and_every_code_its_place() {
        for (place, payload) in Payload::ALL.iter().enumerate() {
            assert_eq!(Payload::from_word(payload.word()), Some(*payload));
            assert_eq!(usize::from(payload.code()), place);
        }
        assert_eq!(Payload::ALL.len(), 8);
        assert_eq!(Payload::from_word("Exclusion"), None);
        assert_eq!(Style::from_word("both"), None);
    }

    #[test]
    fn what_nobody_chose_is_the_careful_choice() {
        assert_eq!(Renewal::default(), Renewal::Pulse);
        assert_eq!(Handoff::default().style, Style::Gap);
        assert_eq!(AtExpiry::default(), AtExpiry::Free);
        assert_eq!(AfterRevocation::default().word(), "free");
        assert_eq!(OnDeadlock::default().word(), "refuse_wait");
        assert_eq!(Preemption::default(), Preemption::Never);
        assert_eq!(TokenOnRenewal::default().word(), "keep");
    }
}
