//! Tests of the SQLite fence against real database files.

mod atomic;
mod conformance;
mod fixture;
mod marks;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod protected_tables;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
