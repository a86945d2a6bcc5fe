//! The gate before a service: what it refuses, whom it keeps waiting, and what it remembers.

mod apart;
mod conforms;
mod kept;
mod known;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod refusals;
mod sequences;
mod service;
#[path = "../support/mod.rs"]
mod support;
