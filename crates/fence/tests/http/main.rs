//! Tests of the HTTP fence.

mod conformance;
mod deduplication;
mod draining;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod persistence;
mod refusals;
mod service;
#[path = "../support/mod.rs"]
mod support;
mod unknown_outcomes;
