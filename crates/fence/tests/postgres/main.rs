//! Tests of the PostgreSQL fence against real servers, which the tests start.

mod atomic;
mod blocked_claims;
mod bypass;
mod conformance;
mod database;
mod exploits;
mod logical_replication;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod paused_processes;
mod protected_tables;
mod psql;
mod random;
mod refusals;
mod server;
mod session_token;
#[path = "../support/mod.rs"]
mod support;
mod token_cache;
