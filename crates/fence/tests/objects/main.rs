//! Tests of the fence for object stores in memory, and in a local store without conditional puts.

mod conformance;
mod generations;
#[path = "../support/invalid_tokens.rs"]
mod invalid_tokens;
mod manifests;
#[path = "../support/mod.rs"]
mod support;
