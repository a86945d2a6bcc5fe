//! Tests of the SQLite fence against real database files.

mod atomic;
mod conformance;
mod fixture;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod marks;
mod probe;
mod protected_tables;
mod random;
mod refusals;
mod sealed;
#[path = "../support/mod.rs"]
mod support;
