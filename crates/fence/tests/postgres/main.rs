//! The fence in PostgreSQL, held to its promises in a real server that these tests start themselves.

mod around;
mod atomic;
mod badges;
mod bounds;
mod conforms;
mod database;
mod forced;
mod held;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod plain;
mod random;
mod refusals;
mod replicated;
mod server;
mod sly;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
