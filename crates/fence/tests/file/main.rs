//! Tests of the fenced log in real files.

mod conformance;
mod crash;
mod fixture;
mod lost;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
