//! What holders work with: servers, connections to PostgreSQL, and network namespaces.

pub mod namespace;
pub mod postgres;
pub mod server;
