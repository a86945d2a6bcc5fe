//! What a run is made of beside its holders: servers, etcd, PostgreSQL, namespaces.

pub mod etcd;
pub mod namespace;
pub mod postgres;
pub mod server;
