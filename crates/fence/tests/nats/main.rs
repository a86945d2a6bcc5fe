//! The fenced log in NATS JetStream, held to its promises in a real server that each test starts itself.

mod conforms;
#[path = "../support/daemon.rs"]
#[allow(dead_code, reason = "every target uses another part of it")]
mod daemon;
mod reader;
mod server;
