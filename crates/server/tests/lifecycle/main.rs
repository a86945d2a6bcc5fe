//! Disconnects, timeouts, limits and shutdown: everything that ends before its reply was read.

mod deposed;
mod disconnects;
mod expensive_work;
mod fair_turns;
mod health;
mod shutdown;
mod slow_clients;
#[path = "../bad_input/test_server.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod test_server;
#[path = "../bad_input/transport_clients.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod transport_clients;
mod turn_size;
