//! Durability tests of the real binary: kills, rollbacks of the data directory, failing and full disks, and stalls.
//!
//! The tests start `leasehold serve` as a process and call it over gRPC. They are in this package because cargo reports the
//! path of the binary only to tests of its own package.

mod clients;
mod crash;
mod disk;
mod fifo;
mod history;
mod rollback;
mod server;
mod silent_holder;
mod snapshots;
mod stall;
mod transport;
mod worker;
mod writer;
