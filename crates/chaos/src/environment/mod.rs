//! The processes that holders work with: servers, etcd, PostgreSQL, and network namespaces.

pub mod etcd;
pub mod namespace;
pub mod postgres;
pub mod server;
