//! The fence in PostgreSQL, held to its promises in a real server that these tests start themselves.

mod atomic;
mod bounds;
mod conforms;
mod database;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod plain;
mod random;
mod refusals;
mod server;
#[path = "../support/mod.rs"]
mod support;
