//! Tests of the Redis fence against real servers, which each test starts.

mod conformance;
mod failover;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod lua;
mod marks;
#[allow(dead_code, reason = "other tests use it too")]
mod server;
#[path = "../support/mod.rs"]
mod support;
