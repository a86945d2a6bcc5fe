//! How things end that nobody finishes: callers who go away, waits that are asked for twice, servers that stop or are
//! deposed, bodies that never come, turns that want too much.

mod deposed;
mod disconnects;
mod limits;
mod shutdown;
mod slow_clients;
#[path = "../bad_input/transports.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod transports;
