//! Tests of the fenced file in real files.

mod conformance;
mod fixture;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod lost;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
