//! Tests of `leasehold run --fence`: commands that know nothing of tokens, against real targets that refuse their late writes.

mod database;
mod drivers;
#[allow(dead_code, reason = "the tests of `run` use all of it")]
#[path = "../run/harness.rs"]
mod harness;
mod http;
mod late_writes;
mod pgbouncer;
mod postgres;
#[allow(dead_code, reason = "the fence crate's tests use all of it")]
#[path = "../../../fence/tests/postgres/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;

const RESOURCE: &str = "jobs/settle";
