//! The fence in SQLite, held to its promises in real files.

mod atomic;
mod conforms;
mod forced;
mod ledger;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
