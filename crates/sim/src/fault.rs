//! What can go wrong in a run, drawn from its seed before it begins, and what was planted to be caught.

use crate::chance::Chance;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// One kind of trouble. A run has some of them; which, its seed says first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[doc = $doc])* $name,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in traces and tables.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

faults! {
    /// A message is lost.
    Loss = "loss",
    /// A message comes twice.
    Twice = "twice",
    /// A message takes up to three seconds.
    Delay = "delay",
    /// Some cannot reach some others, in one direction or both.
    Partition = "partition",
    /// A server is killed, at any effect.
    Kill = "kill",
    /// A server stands still and its clock goes on.
    Stall = "stall",
    /// A server stands still with its clock.
    Sleep = "sleep",
    /// Another server takes over, whether the first lives or not.
    Failover = "failover",
    /// The wall clock of a server is set.
    WallSet = "wall_set",
    /// A server's clock has a rate from a half to twice.
    WildServer = "wild_server",
    /// An append whose outcome nobody is told; it may land later.
    Unknown = "unknown",
    /// What was not synced is torn at a crash.
    Torn = "torn",
    /// What was not synced is rotten at a crash.
    Rotten = "rotten",
    /// A byte of what was synced long ago is another.
    Rot = "rot",
    /// A sync says yes and has done nothing.
    LyingSync = "lying_sync",
    /// A sync fails.
    FailedSync = "failed_sync",
    /// The disk is full for a while.
    Full = "full",
    /// The journal is set back behind the grantor's back.
    Rollback = "rollback",
    /// A backup is restored, once or twice.
    Restore = "restore",
    /// A holder stands still between its check and its act.
    Pause = "pause",
    /// A holder's machine sleeps, and its clock with it.
    Dream = "dream",
    /// A holder forgets all and starts anew.
    Restart = "restart",
    /// A holder's clock has a rate from a half to twice.
    WildHolder = "wild_holder",
    /// Holders write late what they had ready.
    LateWrite = "late_write",
    /// Holders show stale, foreign and made-up tokens.
    Misuse = "misuse",
    /// A target is killed and starts again.
    TargetKill = "target_kill",
    /// A target fails over and has lost its mark.
    MarkLost = "mark_lost",
    /// An operator takes leases away.
    Revoke = "revoke",
    /// An operator has leases handed over.
    HandOff = "hand_off",
    /// An operator changes capacities.
    Resize = "resize",
}

/// Which kinds a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u64);

impl Faults {
    /// None at all.
    pub const NONE: Self = Self(0);

    /// Draws which exist: a few, or many.
    pub fn draw(chance: &mut Chance, shared: bool) -> Self {
        let mut faults = Self(0);
        let rare = chance.between(2, 8);
        for fault in Fault::ALL {
            let possible = match fault {
                Fault::Unknown | Fault::Failover => shared,
                Fault::Torn | Fault::Rotten | Fault::Rot | Fault::LyingSync | Fault::FailedSync | Fault::Full => {
                    !shared
                }
                _ => true,
            };
            // What sets the journal back takes most other promises with it, so that it is rarer.
            let forks = matches!(fault, Fault::LyingSync | Fault::Rollback | Fault::Restore);
            let drawn = chance.one_in(if forks { 3 * rare } else { rare });
            if possible && drawn {
                faults = faults.with(*fault);
            }
        }
        // A journal that is set back is lifted by the clock, so the clock must then be right.
        if faults.sets_back() { faults.without(Fault::WallSet).without(Fault::WildServer) } else { faults }
    }

    /// Whether this kind exists.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u64) != 0
    }

    /// With this kind.
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u64)
    }

    /// Without this kind.
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u64))
    }

    /// Whether acknowledged facts can be lost: by a lie of the disk, a rollback, or a restore.
    pub const fn sets_back(self) -> bool {
        self.has(Fault::LyingSync) || self.has(Fault::Rollback) || self.has(Fault::Restore)
    }

    /// Those that exist, in order.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }
}
