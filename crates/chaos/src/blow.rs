//! The kinds of strikes, how often each is drawn, and their names.

use leasehold_sim::fault::Fault;

/// What can be done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
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

impl Blow {
    /// Each as often as it is listed here.
    pub const DRAWN: [Self; 32] = {
        use Blow::*;
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

    /// Its words in traces and summaries.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "holder paused with a write ready",
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

    /// What the simulator calls it.
    pub const fn fault(self) -> Fault {
        match self {
            Self::Pause | Self::Freeze => Fault::Pause,
            Self::KillHolder => Fault::Restart,
            Self::CutHolder | Self::CutServer | Self::CutPostgres | Self::CutEtcd => Fault::Partition,
            Self::StopServer | Self::StopMember => Fault::Stall,
            Self::KillServer | Self::KillMember => Fault::Kill,
            Self::StopBackends => Fault::Delay,
            Self::KillPostgres => Fault::TargetKill,
        }
    }
}
