//! Commands under a lease: real wrappers, real commands, a real server, and everything that kills one of them.

mod beyond;
mod elects;
mod ends;
mod lives;
mod loses;
mod misused;
mod progresses;
mod slots;
mod stands;
#[path = "../support/mod.rs"]
mod support;
mod unread;
mod waits;
#[path = "../support/way.rs"]
mod way;
mod wrapped;

/// Of leases that are to run out, or nearly; long enough for a machine that does other things too.
const TTL: &str = "4s";
