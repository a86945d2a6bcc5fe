//! Server of Leasehold: runs a grantor over a journal and serves it over gRPC and HTTP.
//!
//! [`server::start`] opens a journal and serves it; [`cluster::serve`] does so with several servers over one etcd.
//!
//! A turn drains the [`request_queue`], steps the grantor, appends to the [`journal`], and only then sends replies ([`driver`]). All
//! other work happens off this path: connections and middlewares ([`transport`]), endpoints ([`api`]), snapshots ([`snapshotter`]),
//! the pages of the [`dashboard`], the audit log ([`audit`]), backup and restore ([`backup`]), [`metrics`], and spans ([`otlp`]).

#![forbid(unsafe_code)]

pub mod access;
pub mod api;
pub mod audit;
pub mod backup;
pub mod bearer;
pub mod cancellation;
pub mod clock;
pub mod cluster;
pub mod credential_file;
pub mod dashboard;
pub mod driver;
pub mod hex;
pub mod identity;
pub mod identity_permits;
pub mod journal;
mod key_digests;
pub mod keys;
mod log_windows;
pub mod metrics;
pub mod otlp;
pub mod pending_replies;
pub mod principal_name;
pub mod queue_waits;
pub mod random;
pub mod recovery;
pub mod replicated_state;
pub mod request;
pub mod request_queue;
pub mod sealing;
pub mod server;
pub mod snapshot_file;
pub mod snapshotter;
pub mod status;
pub mod toml_file;
pub mod transport;
pub mod watch;
