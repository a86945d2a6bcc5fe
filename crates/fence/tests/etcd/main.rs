//! The fence in etcd, held to its promises in a real server that each test starts itself.

mod conforms;
#[path = "../support/daemon.rs"]
#[allow(dead_code, reason = "every target uses another part of it")]
mod daemon;
mod marks;
mod server;
