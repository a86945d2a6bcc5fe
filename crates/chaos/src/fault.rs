//! Kinds of faults, their weights and their names.

use leasehold_sim::fault::Fault;

/// A fault that a run can inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChaosFault {
    Pause,
    Freeze,
    KillHolder,
    CutHolder,
    StopServer,
    KillServer,
    CutServer,
    StopBackends,
    KillPostgres,
    CutPostgres,
    StopMember,
    KillMember,
    CutEtcd,
}

impl ChaosFault {
    /// Every kind, as often as its weight.
    pub const WEIGHTED: [Self; 32] = {
        use ChaosFault::*;
        [
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Pause,
            Freeze,
            Freeze,
            Freeze,
            Freeze,
            KillHolder,
            CutHolder,
            CutHolder,
            CutHolder,
            StopServer,
            StopServer,
            KillServer,
            KillServer,
            CutServer,
            StopBackends,
            StopBackends,
            KillPostgres,
            CutPostgres,
            StopMember,
            StopMember,
            KillMember,
            CutEtcd,
            CutEtcd,
        ]
    };

    /// Name in traces and summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "holder paused before a write",
            Self::Freeze => "holder stopped anywhere",
            Self::KillHolder => "holder killed",
            Self::CutHolder => "holder cut off",
            Self::StopServer => "server stopped",
            Self::KillServer => "server killed",
            Self::CutServer => "server cut off",
            Self::StopBackends => "PostgreSQL backends stopped",
            Self::KillPostgres => "PostgreSQL killed",
            Self::CutPostgres => "PostgreSQL cut off",
            Self::StopMember => "etcd member stopped",
            Self::KillMember => "etcd member killed",
            Self::CutEtcd => "server cut off from etcd",
        }
    }

    /// The simulator's name for this fault.
    pub const fn sim_fault(self) -> Fault {
        match self {
            Self::Pause | Self::Freeze => Fault::HolderPause,
            Self::KillHolder => Fault::HolderRestart,
            Self::CutHolder | Self::CutServer | Self::CutPostgres | Self::CutEtcd => Fault::Partition,
            Self::StopServer | Self::StopMember => Fault::ServerStall,
            Self::KillServer | Self::KillMember => Fault::ServerKill,
            Self::StopBackends => Fault::Delay,
            Self::KillPostgres => Fault::TargetKill,
        }
    }
}
