//! Kinds of faults that a run can inject, chosen from its seed.

use crate::rng::SimRng;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal,)*) => {
        /// One kind of fault. The seed chooses which kinds a run has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[doc = $doc])* $name,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in traces and tables.
            pub const fn name(self) -> &'static str {
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
    /// A message is duplicated.
    Duplicate = "duplicate",
    /// A message takes up to three seconds.
    Delay = "delay",
    /// A partition, in one direction or both.
    Partition = "partition",
    /// A server is killed, at any effect.
    ServerKill = "server_kill",
    /// A server is paused while its clock continues.
    ServerStall = "server_stall",
    /// A server is paused together with its clock.
    ServerSleep = "server_sleep",
    /// Another server takes over, whether the first lives or not.
    Failover = "failover",
    /// The wall clock of a server is set.
    WallClockStep = "wall_clock_step",
    /// A server's clock has a rate from a half to twice.
    ServerDrift = "server_drift",
    /// An append with an unknown outcome; it may be applied later.
    UnknownAppend = "unknown_append",
    /// Unsynced data is torn in a crash.
    TornTail = "torn_tail",
    /// Unsynced data is corrupt after a crash.
    CorruptTail = "corrupt_tail",
    /// A byte that was synced long ago changes.
    BitRot = "bit_rot",
    /// A sync reports success and does nothing.
    LyingSync = "lying_sync",
    /// A sync fails.
    FailedSync = "failed_sync",
    /// The disk is full for a while.
    DiskFull = "disk_full",
    /// The journal is rolled back without the grantor's knowledge.
    Rollback = "rollback",
    /// A backup is restored, once or twice.
    Restore = "restore",
    /// A holder is paused between its check and its act.
    HolderPause = "holder_pause",
    /// A holder's machine sleeps, and its clock stops.
    HolderSleep = "holder_sleep",
    /// A holder loses its memory and restarts.
    HolderRestart = "holder_restart",
    /// A holder's clock has a rate from a half to twice.
    HolderDrift = "holder_drift",
    /// Holders send prepared writes late.
    LateWrite = "late_write",
    /// Holders present stale, foreign and forged tokens.
    Misuse = "misuse",
    /// A target is killed and starts again.
    TargetKill = "target_kill",
    /// A target fails over and has lost its mark.
    MarkLost = "mark_lost",
    /// An operator revokes leases.
    Revoke = "revoke",
    /// An operator requests handoffs.
    Handoff = "handoff",
    /// An operator changes capacities.
    Resize = "resize",
}

/// Which kinds a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSet(u64);

impl FaultSet {
    /// None at all.
    pub const NONE: Self = Self(0);

    /// Chooses which kinds exist: a few, or many.
    pub fn draw(rng: &mut SimRng, shared: bool) -> Self {
        let mut faults = Self(0);
        let rare = rng.between(2, 8);
        for fault in Fault::ALL {
            let possible = match fault {
                Fault::UnknownAppend | Fault::Failover => shared,
                Fault::TornTail
                | Fault::CorruptTail
                | Fault::BitRot
                | Fault::LyingSync
                | Fault::FailedSync
                | Fault::DiskFull => !shared,
                _ => true,
            };
            // A rollback weakens most other promises, so it is rarer.
            let forks = matches!(fault, Fault::LyingSync | Fault::Rollback | Fault::Restore);
            let drawn = rng.one_in(if forks { 3 * rare } else { rare });
            if possible && drawn {
                faults = faults.with(*fault);
            }
        }
        // After a rollback the clock lifts the numbers, so the clock must be right.
        if faults.can_lose_records() {
            faults.without(Fault::WallClockStep).without(Fault::ServerDrift)
        } else {
            faults
        }
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

    /// Whether acknowledged records can be lost: by a lying disk, a rollback or a restore.
    pub const fn can_lose_records(self) -> bool {
        self.has(Fault::LyingSync) || self.has(Fault::Rollback) || self.has(Fault::Restore)
    }

    /// Those that exist, in order.
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.has(*fault))
    }
}
