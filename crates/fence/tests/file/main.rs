//! The fenced log, held to its promises in real files.

mod conforms;
mod crash;
mod events;
mod lost;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod random;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
