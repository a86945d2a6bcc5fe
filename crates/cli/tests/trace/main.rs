//! `leasehold trace` against a real server, with a real fence that refuses a real zombie; its file in a real browser.

mod access;
mod browser;
mod edge_cases;
mod forgery;
mod story;
#[path = "../support/mod.rs"]
mod support;

use support::{CommandRun, leasehold, run};

/// Verifies a file without a server.
fn verify(file: &str, options: &[&str]) -> CommandRun {
    run(&mut leasehold(&[&["audit", "verify", file][..], options].concat()))
}
