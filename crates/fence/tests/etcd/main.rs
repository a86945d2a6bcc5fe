//! Tests of the fence in etcd. Each test starts its own server.

mod conformance;
#[path = "../support/daemon.rs"]
#[allow(dead_code, reason = "each target uses another part")]
mod daemon;
mod marks;
mod server;
