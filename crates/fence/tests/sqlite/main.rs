//! The fence in SQLite, held to its promises in real files.

mod atomic;
mod ledger;
mod marks;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
