//! Tests of the Redis fence against real servers, which each test starts.

mod conformance;
mod failover;
mod lua;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
#[allow(dead_code, reason = "other tests use it too")]
mod server;
#[path = "../support/mod.rs"]
mod support;
