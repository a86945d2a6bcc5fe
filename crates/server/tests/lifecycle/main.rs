//! Disconnects, timeouts, limits and shutdown: everything that ends before its reply was read.

mod deposed;
mod disconnects;
mod limits;
mod shutdown;
mod slow_clients;
#[path = "../bad_input/test_server.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod test_server;
#[path = "../bad_input/transports.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod transports;
