//! The terms of a charter: the choices for each field and their meaning.

use std::fmt;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// Every choice, in the order of its stored code; append new ones at the end.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable word.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Parses the stable word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.word() == word)
            }

            /// The stored code.
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
    /// What a lease is for. The payload determines which rules apply.
    Payload {
        /// A lock: one holder at a time.
        Exclusion = "exclusion",
        /// A leader: one process decides for many.
        Coordination = "coordination",
        /// A delivery: a message assigned to one worker.
        WorkItem = "work_item",
        /// A partition of the data, with its checkpoint.
        Shard = "shard",
        /// A session: proof that a client is alive.
        Liveness = "liveness",
        /// A reservation: units set aside.
        Capacity = "capacity",
        /// A cache: proof that a cached value is still valid.
        ReadValidity = "read_validity",
        /// A credential: a signed permission.
        Permission = "permission",
    }
}

choice! {
    /// Whether a handoff leaves a moment without a holder or a moment with two. It cannot avoid both.
    HandoffMode {
        /// A moment without a holder; never two holders.
        Gap = "gap",
        /// A moment with two holders; never none. The fence decides which one can write.
        Overlap = "overlap",
    }
}

choice! {
    /// What happens to work that the predecessor started and did not commit.
    Uncommitted {
        /// The successor finds it and cleans it up.
        Reaped = "reaped",
        /// The successor repeats it.
        Replayed = "replayed",
        /// It is lost, and that is accepted.
        Lost = "lost",
    }
}

choice! {
    /// What happens to a resource after its lease was revoked.
    #[derive(Default)]
    AfterRevocation {
        /// It goes to the next waiter.
        #[default]
        Free = "free",
        /// It stays blocked until an operator frees it.
        HoldForOperator = "hold_for_operator",
    }
}

choice! {
    /// How a deadlock is resolved.
    #[derive(Default)]
    OnDeadlock {
        /// It is reported to operators; there is no victim.
        Report = "report",
        /// The victim's wait is refused; its leases stay.
        #[default]
        RefuseWait = "refuse_wait",
        /// The victim's lease is revoked.
        Revoke = "revoke",
    }
}

choice! {
    /// Whether a renewal changes the token.
    #[derive(Default)]
    TokenOnRenewal {
        /// The token of the grant stays.
        #[default]
        Keep = "keep",
        /// Each renewal issues a higher token and records it; the holder's own in-flight writes become stale.
        Rotate = "rotate",
    }
}

/// What a renewal proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenewalProof {
    /// The holder is alive.
    #[default]
    Pulse,
    /// The work progressed within this window; otherwise the lease ends as `stalled` (G1).
    Progress {
        /// The window, in milliseconds of grantor time.
        window_ms: u64,
    },
}

/// Terms of a planned handoff (H2, H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffTerms {
    /// Gap or overlap.
    pub mode: HandoffMode,
    /// How long the predecessor may drain, in milliseconds. It is bounded, so that every handoff terminates.
    pub drain_ms: u64,
}

impl Default for HandoffTerms {
    fn default() -> Self {
        Self { mode: HandoffMode::Gap, drain_ms: crate::limits::DRAIN_DEFAULT }
    }
}

/// Where a successor continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartsFrom {
    /// From the newest checkpoint of the resource.
    #[default]
    Newest,
    /// From nothing: it starts over.
    Nothing,
    /// From the state stored under this key.
    Key(String),
}

/// What happens when a lease expires. The resource always becomes free eventually.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtExpiry {
    /// It becomes free immediately.
    #[default]
    Free,
    /// It becomes free, unless the holder vetoes because an obligation is in flight.
    Veto {
        /// Longest veto, in milliseconds.
        max_ms: u64,
    },
}

/// Whether a waiter may preempt a holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// Never.
    #[default]
    Never,
    /// A waiter preempts a holder of lower priority, after notice and grace (P1).
    LowerPriority {
        /// The grace, in milliseconds.
        grace_ms: u64,
    },
}

/// A system that the holder writes to under the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, unique within the charter.
    pub name: String,
    /// Its location: an address without a password, or a description.
    pub at: String,
    /// How it handles a stale token; `None` if not declared.
    pub mode: Option<TargetMode>,
    /// The identity whose reports about this target are evidence of a rollback (A9); `None` if there is none.
    pub reporter: Option<String>,
}

/// How a target handles a stale token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetMode {
    /// The target itself refuses a write with no token or with a lower one.
    Forced,
    /// The target refuses a lower token, but only from writers that present one.
    Cooperative,
    /// The grantor stores it and refuses writes without a current token.
    Grantor,
    /// It checks nothing; safety rests on the assumption that no holder pauses longer than this.
    BoundedPause {
        /// The longest pause assumed, in milliseconds.
        assumed_ms: u64,
        /// What is damaged when the assumption fails.
        blast_radius: Option<String>,
    },
    /// It checks nothing.
    None {
        /// Why that is acceptable.
        comment: Option<String>,
    },
}

impl TargetMode {
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

    /// Whether the target refuses a stale token.
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Forced | Self::Cooperative | Self::Grantor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_and_every_code_is_its_index() {
        for (index, payload) in Payload::ALL.iter().enumerate() {
            assert_eq!(Payload::from_word(payload.word()), Some(*payload));
            assert_eq!(usize::from(payload.code()), index);
        }
        assert_eq!(Payload::ALL.len(), 8);
        assert_eq!(Payload::from_word("Exclusion"), None);
        assert_eq!(HandoffMode::from_word("both"), None);
    }

    #[test]
    fn defaults_are_the_safe_choices() {
        assert_eq!(RenewalProof::default(), RenewalProof::Pulse);
        assert_eq!(HandoffTerms::default().mode, HandoffMode::Gap);
        assert_eq!(AtExpiry::default(), AtExpiry::Free);
        assert_eq!(AfterRevocation::default().word(), "free");
        assert_eq!(OnDeadlock::default().word(), "refuse_wait");
        assert_eq!(Preemption::default(), Preemption::Never);
        assert_eq!(TokenOnRenewal::default().word(), "keep");
    }
}
