//! Spans of a running server, received by a collector over OTLP, and the trace of each request in the audit log.

mod audit_log;
mod collector_outages;
mod fixture;
mod hold_spans;
#[path = "../http_client/mod.rs"]
mod http_client;
#[path = "../journal_support/mod.rs"]
mod journal_support;
mod secure_collector;
