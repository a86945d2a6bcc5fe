//! Fixed parameters of every run: the cluster, the ttl limit and the resources.

use leasehold_core::token::Cluster;

/// The cluster of every run.
pub const CLUSTER: Cluster = Cluster(*b"simulate");
/// The ttl limit of every run, in milliseconds.
pub const MAX_TTL: u64 = 3_000;

/// Resources under exclusive leases, each with a target.
pub const EXCLUSIVE: [&str; 4] = ["jobs/a", "jobs/b", "jobs/c", "jobs/d"];
/// A resource with slots.
pub const SLOTS: &str = "slots/s";
/// A resource with units.
pub const UNITS: &str = "units/u";
/// A queue.
pub const QUEUE: &str = "queue/q";
/// A resource with shared readers, exclusive writers and pins.
pub const READ: &str = "read/r";
/// A resource whose charter lets a higher priority preempt a lower one.
pub const RUSH: &str = "rush/p";
/// Grace of a preempted holder of [`RUSH`], in milliseconds.
pub const RUSH_GRACE: u64 = 400;
/// A resource whose holder must report progress every [`WORK_WINDOW`].
pub const WORK: &str = "work/w";
/// Progress window of [`WORK`], in milliseconds.
pub const WORK_WINDOW: u64 = 1_200;
/// A cached key.
pub const KEY: &str = "cache/k";
/// All resources with wait queues.
pub const QUEUED: [&str; 7] = ["jobs/a", "jobs/b", "jobs/c", "jobs/d", READ, RUSH, WORK];
