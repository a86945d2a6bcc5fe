//! Commands under a lease: real wrappers, real commands, a real server, and everything that kills one of them.

mod elects;
mod ends;
mod lives;
mod loses;
mod misused;
mod progresses;
mod slots;
#[path = "../support/mod.rs"]
mod support;
mod wrapped;

/// Of leases that are to run out, or nearly; long enough for a machine that does other things too.
const TTL: &str = "4s";
