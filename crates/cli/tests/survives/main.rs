//! The real binary, killed, rolled back and starved of its disk: what it has told stays true.
//!
//! These tests start `leasehold serve` as a process and talk to it over gRPC. They live beside the binary because only here
//! cargo tells where it was built; what they know of the wire is for tests alone.

mod chance;
mod crash;
mod crowd;
mod disk;
mod history;
mod kept;
mod line;
mod link;
mod rollback;
mod server;
mod sleeper;
mod stall;
mod worker;
mod writer;
