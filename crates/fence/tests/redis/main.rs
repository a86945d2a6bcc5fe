//! The fence in Redis, held to its promises in a real server that each test starts itself.

mod conforms;
#[path = "../support/daemon.rs"]
mod daemon;
mod failover;
mod lua;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
#[allow(dead_code, reason = "other tests use it too")]
mod server;
#[path = "../support/mod.rs"]
mod support;
