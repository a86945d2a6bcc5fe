//! Tests of the fence in NATS JetStream. Each test starts its own server.

mod conformance;
mod reader;
mod server;
mod streams;
