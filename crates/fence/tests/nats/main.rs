//! Tests of the fence in NATS JetStream. Each test starts its own server.

mod conformance;
mod lost_marks;
mod reader;
mod server;
