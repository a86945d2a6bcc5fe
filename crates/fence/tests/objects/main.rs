//! The fence for object stores where no server is needed: in memory, and in a store that has no compare-and-swap.

mod conforms;
mod generations;
mod manifests;
#[path = "../support/mistakes.rs"]
mod mistakes;
#[path = "../support/mod.rs"]
mod support;
