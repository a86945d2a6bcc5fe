//! Tests of the fence for object stores in memory, and in a local store without conditional puts.

mod conformance;
mod generations;
mod manifests;
#[path = "../support/mistakes.rs"]
mod mistakes;
#[path = "../support/mod.rs"]
mod support;
