//! The audit log: one entry for each change, complete across crashes, and verifiable without the server (A1).

mod crash;
mod entries;
mod fixture;
mod golden;
mod heads;
#[path = "../http_client/mod.rs"]
mod http_client;
mod integrity;
#[path = "../journal_support/mod.rs"]
mod journal_support;
mod retention;
mod server;
#[path = "../snapshot_support/mod.rs"]
mod snapshot_support;
