//! Shared by several test programs: the interpreter of story files.

#![allow(dead_code, reason = "each test program uses its own part")]

#[allow(dead_code, reason = "each test uses its own part")]
pub mod approvals;
pub mod attribution;
mod caller_proof;
mod checks;
pub mod client_idempotency_key_rules;
mod commands;
mod expect;
mod labels;
mod queries;
mod scenario;
mod story;
mod story_charters;
mod story_events;
mod target;
mod tokenizer;

#[allow(unused_imports, reason = "each test program uses its own part")]
pub use story::{Story, all, run, stories};
