//! Tests of the PostgreSQL fence against real servers, which the tests start.

mod atomic;
mod blocked_claims;
mod bypass;
mod concurrent_ddl;
mod conformance;
mod connection_token;
mod copies;
mod database;
mod exploits;
mod installation;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod logical_replication;
mod marks;
mod matrix;
mod paused_processes;
mod probe;
mod protected_tables;
mod psql_examples;
mod random;
mod refusals;
mod rights;
mod sealed;
mod server;
mod session_token;
#[path = "../support/mod.rs"]
mod support;
mod token_cache;
