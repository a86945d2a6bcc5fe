//! What several test programs share: stories that a reader who knows no Rust can check, and the world they are played in.

#![allow(dead_code, reason = "each test program uses its own part")]

mod ask;
mod charters;
mod checks;
mod labels;
mod look;
mod scene;
mod story;
mod target;
mod told;
mod words;
mod world;

#[allow(unused_imports, reason = "each test program uses its own part")]
pub use story::{Story, all, run, stories};
