//! Tests of the HTTP fence.

mod conformance;
mod deduplication;
mod draining;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod persistence;
mod refusals;
mod sealed;
mod service;
#[path = "../support/mod.rs"]
mod support;
mod unknown_outcomes;
