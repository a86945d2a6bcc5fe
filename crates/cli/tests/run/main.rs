//! Tests of `leasehold run` and `elect` with real processes: wrapper, supervisor, command and server, and their failures.

mod blocked_stderr;
mod elect;
mod exit_codes;
mod harness;
mod lease_loss;
mod progress;
mod slots;
mod stuck_supervisor;
mod supervisor_death;
#[path = "../support/mod.rs"]
mod support;
mod unkillable;
mod usage_errors;
mod waiting;

/// Ttl of leases that expire, or nearly expire, in a test; long enough for a busy machine.
const TTL: &str = "4s";
