//! The trace of a request in the audit log, over HTTP, gRPC and a session stream.

use leasehold_server::api::GrpcService;
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;
use leasehold_wire::v1::{self, leasehold_server::Leasehold};
use serde_json::Value;
use std::time::Duration;
use tonic::Request;

use crate::fixture::{acquire, audit_entries, post, release, trace_header, traceparent};
use crate::http_client::{free_port_config, http};

fn traces(entries: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries.iter().map(|entry| (text(&entry["kind"]), text(&entry["traceparent"]))).collect()
}

fn expect(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(kind, trace)| ((*kind).to_owned(), (*trace).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_entry_has_the_trace_of_its_request_and_the_log_verifies() {
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let (address, trace) = (server.address, traceparent());
    let other = trace.replace("4bf9", "aaaa");
    let first = acquire(address, "jobs/a", "60s", &trace).await;
    release(address, "jobs/a", &first, &other).await;
    acquire(address, "jobs/b", "60s", "").await;
    post(address, "/v1/leases/jobs/b:revoke", &trace_header(&trace), r#"{"comment":"it leaks"}"#).await;
    let opened = post(address, "/v1/sessions", &trace_header(&trace), r#"{"holder":"app","ttl":"60s"}"#).await;
    let session = opened["session"].as_str().expect("an id");
    post(address, &format!("/v1/sessions/{session}:close"), &trace_header(&other), "").await;
    let expected = [
        ("granted", &*trace),
        ("ended", &other),
        ("granted", ""),
        ("ended", &trace),
        ("session_opened", &trace),
        ("session_ended", &other),
    ];
    let entries = audit_entries(address).await;
    assert_eq!(traces(&entries), expect(&expected));
    assert!(entries.iter().all(|entry| entry["by"] == "local" && entry["via"] == "local"), "{entries:?}");
    let (status, verified) = http(address, "GET", "/v1/audit:verify", "").await;
    assert!(status == 200 && verified.contains(r#""intact":true"#), "{verified}");
    let (_, history) = http(address, "GET", "/v1/history/jobs/a", "").await;
    assert!(history.contains(&format!(r#""traceparent":"{trace}""#)), "{history}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_session_gives_its_trace_to_its_grant() {
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let (address, trace) = (server.address, traceparent());
    let first = acquire(address, "jobs/a", "60s", "").await;
    let waiting = tokio::spawn({
        let header = trace_header(&trace);
        async move {
            let body = r#"{"holder":"next","ttl":"60s","wait":"60s"}"#;
            post(address, "/v1/leases/jobs/a:acquire", &header, body).await
        }
    });
    let mut polls = 0;
    while !http(address, "GET", "/v1/waiters/jobs/a", "").await.1.contains("next") {
        polls += 1;
        assert!(polls < 3_000, "the wait began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    release(address, "jobs/a", &first, &trace.replace("4bf9", "aaaa")).await;
    waiting.await.expect("it is granted");
    let entries = audit_entries(address).await;
    let granted = entries.iter().find(|entry| entry["kind"] == "granted" && entry["holder"] == "next");
    assert_eq!(granted.expect("an entry")["traceparent"], trace.as_str());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_or_repeated_traceparent_is_ignored() {
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let address = server.address;
    let invalid = [
        trace_header("nonsense"),
        trace_header(&traceparent().to_uppercase()),
        trace_header("00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
        trace_header("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        trace_header(&traceparent()).repeat(2),
    ];
    for (index, header) in invalid.iter().enumerate() {
        let path = format!("/v1/leases/jobs/{index}:acquire");
        post(address, &path, header, r#"{"holder":"w","ttl":"60s"}"#).await;
    }
    let entries = audit_entries(address).await;
    assert_eq!(entries.len(), invalid.len());
    assert!(entries.iter().all(|entry| entry.get("traceparent").is_none()), "{entries:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_grpc_and_requests_of_a_stream_name_their_trace_too() {
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let (address, trace) = (server.address, traceparent());
    let service = GrpcService { api: server.api().clone(), hello_timeout: Duration::from_secs(10) };
    let acquire = |resource: &str| v1::Acquire {
        resource: resource.into(),
        holder: "w".into(),
        ttl_ms: Some(60_000),
        ..v1::Acquire::default()
    };
    let mut request = Request::new(acquire("jobs/unary"));
    request.metadata_mut().insert("traceparent", trace.parse().expect("metadata is ASCII"));
    service.acquire(request).await.expect("it is granted");
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = channel.connect().await.expect("the server listens");
    let mut client = v1::leasehold_client::LeaseholdClient::new(channel);
    let (sender, batches) = tokio::sync::mpsc::channel(4);
    let hello = v1::Hello {
        protocol: 1,
        session: Some(v1::hello::Session::Open(v1::OpenSession {
            holder: "app".into(),
            ttl_ms: 60_000,
            waits_only: false,
        })),
        ..v1::Hello::default()
    };
    sender.send(v1::ClientBatch { hello: Some(hello), ..Default::default() }).await.expect("the stream takes it");
    let mut requests = Vec::new();
    for (sequence, traceparent) in [(1, Some(trace.clone())), (2, Some("nonsense".to_owned())), (3, None)] {
        let operation = v1::request::Operation::Acquire(acquire(&format!("jobs/{sequence}")));
        requests.push(v1::Request { sequence, operation: Some(operation), alone: None, traceparent });
    }
    sender.send(v1::ClientBatch { requests, ..Default::default() }).await.expect("the stream takes it");
    let batches = futures::stream::unfold(batches, |mut from| async move { from.recv().await.map(|one| (one, from)) });
    let mut request = Request::new(batches);
    let of_stream = trace.replace("4bf9", "bbbb");
    request.metadata_mut().insert("traceparent", of_stream.parse().expect("metadata is ASCII"));
    let mut replies = client.session(request).await.expect("the stream opens").into_inner();
    let mut answered = 0;
    while answered < 3 {
        answered += replies.message().await.expect("the stream lasts").expect("a batch").responses.len();
    }
    let expected =
        [("granted", &*trace), ("session_opened", &of_stream), ("granted", &trace), ("granted", ""), ("granted", "")];
    assert_eq!(traces(&audit_entries(address).await), expect(&expected));
    drop((sender, replies, client));
    server.stop().await;
}
