//! How things end that nobody finishes: callers who go away, waits that are asked for twice, servers that stop or are
//! deposed, bodies that never come, turns that want too much.

mod deposed;
#[path = "../bad_input/doors.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod doors;
mod gone;
mod kept;
mod large;
mod stopping;
