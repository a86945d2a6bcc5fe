//! A server that exports spans to a collector, and requests that belong to a trace.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_server::journal::memory::Memory;
use leasehold_server::otlp::CollectorSettings;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use leasehold_testkit::collector::CollectorStub;
use serde_json::Value;

use crate::http_client::{free_port_config, http, http_with};

/// The trace of the requests of these tests.
pub const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// The span that makes them.
pub const PARENT_ID: &str = "00f067aa0ba902b7";

pub fn traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_ID}-01")
}

/// The settings of a collector at this base URL.
pub fn settings(url: &str) -> CollectorSettings {
    CollectorSettings::new(url.parse().expect("a base URL"), None).expect("a plain address needs no file")
}

pub fn config_with(settings: CollectorSettings) -> ServerConfig {
    ServerConfig { collector: Some(Arc::new(settings)), ..free_port_config() }
}

/// A server that stores nothing and exports its spans to a collector.
pub async fn server_of(collector: &CollectorStub) -> ServerHandle {
    start(Memory::new(), config_with(settings(&collector.url()))).await.expect("the server starts")
}

/// A grant.
#[derive(Debug)]
pub struct Granted {
    pub lease: String,
    pub token: String,
    pub number: String,
}

/// Sends a request with these headers; it must succeed.
pub async fn post(address: SocketAddr, path: &str, headers: &str, body: &str) -> Value {
    let (status, text) = http_with(address, "POST", path, headers, body).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("the body is JSON")
}

/// The header `traceparent`; none for an empty value.
pub fn trace_header(traceparent: &str) -> String {
    if traceparent.is_empty() { String::new() } else { format!("traceparent: {traceparent}\r\n") }
}

pub async fn acquire(address: SocketAddr, resource: &str, ttl: &str, traceparent: &str) -> Granted {
    let body = format!(r#"{{"holder":"worker-1","ttl":"{ttl}"}}"#);
    let grant = post(address, &format!("/v1/leases/{resource}:acquire"), &trace_header(traceparent), &body).await;
    let text = |name: &str| grant[name].as_str().unwrap_or_default().to_owned();
    Granted { lease: text("lease"), token: text("token"), number: text("token_number") }
}

pub async fn release(address: SocketAddr, resource: &str, granted: &Granted, traceparent: &str) {
    let body = format!(r#"{{"token":"{}"}}"#, granted.token);
    post(address, &format!("/v1/leases/{resource}:release"), &trace_header(traceparent), &body).await;
}

/// The value of a metric, with its labels as they are written.
pub async fn metric(address: SocketAddr, name: &str) -> u64 {
    let (_, text) = http(address, "GET", "/metrics", "").await;
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("no {name} in {text}"));
    value.parse().expect("a count")
}

/// Waits until a metric has at least this value, and returns it.
pub async fn metric_reaches(address: SocketAddr, name: &str, min: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let value = metric(address, name).await;
        if value >= min {
            return value;
        }
        assert!(Instant::now() < until, "{name} stays {value}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The entries of the audit log, oldest first, after the opening.
pub async fn audit_entries(address: SocketAddr) -> Vec<Value> {
    let (status, text) = http(address, "GET", "/v1/audit", "").await;
    assert_eq!(status, 200, "{text}");
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    // The first and the last line are about the export itself.
    let entries = entries.filter(|entry| entry["kind"].is_string());
    entries.filter(|entry| !["created", "opened"].map(Value::from).contains(&entry["kind"])).collect()
}
