//! The fenced replace, held to its promises in real files.

mod conforms;
mod leader;
mod lost;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
