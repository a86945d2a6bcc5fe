//! Tests of the fence in etcd. Each test starts its own server.

mod conformance;
mod marks;
mod server;
