//! Tests of the fenced file in real files.

mod conformance;
mod fixture;
mod lost;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
