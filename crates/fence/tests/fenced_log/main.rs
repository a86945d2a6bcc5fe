//! Tests of the fenced log in real files.

mod conformance;
mod crash;
mod fixture;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod lost;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
