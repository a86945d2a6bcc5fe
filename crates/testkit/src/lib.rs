//! Tools that the tests of several crates share: child processes, servers of third parties, a TCP proxy that injects faults,
//! and seeded random numbers.
//!
//! The crate depends on no other crate of the workspace, so that the tests of each can use it. It is not published; published
//! crates name it as a path-only dev-dependency, which `cargo package` removes. The feature `tokio` adds what needs a runtime.

pub mod certificates;
pub mod collector;
pub mod depth;
pub mod etcd;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod rng;
#[cfg(feature = "tokio")]
pub mod tcp_proxy;
pub mod temp_dir;
pub mod terminal;
#[cfg(feature = "tokio")]
pub mod third_party_server;
