//! One span for each hold: its ids, times, attributes and status.

use std::collections::BTreeMap;

use leasehold_server::server::start;
use leasehold_testkit::collector::{CollectorStub, ReceivedSpan, StatusCode};

use crate::fixture::{
    PARENT_ID, TRACE_ID, acquire, config_with, metric, post, release, server_of, settings, traceparent,
};
use crate::journal_support::small_directory;

fn by_resource(spans: Vec<ReceivedSpan>) -> BTreeMap<String, ReceivedSpan> {
    let count = spans.len();
    let spans: BTreeMap<_, _> =
        spans.into_iter().map(|span| (span.attribute("leasehold.resource").to_owned(), span)).collect();
    assert_eq!(spans.len(), count, "one span for each hold");
    spans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_an_expiry_and_a_revocation_give_one_span_each() {
    let collector = CollectorStub::start();
    let server = server_of(&collector).await;
    let address = server.address;
    let before_ms = leasehold_server::clock::now().wall.0;
    let released = acquire(address, "jobs/settle", "60s", &traceparent()).await;
    release(address, "jobs/settle", &released, "").await;
    let expired = acquire(address, "jobs/short", "100ms", "").await;
    let revoked = acquire(address, "jobs/stuck", "60s", &traceparent()).await;
    post(address, "/v1/leases/jobs/stuck:revoke", "", r#"{"comment":"it leaks"}"#).await;
    let spans = by_resource(collector.wait_for_spans(3));
    let after_ms = leasehold_server::clock::now().wall.0;
    for (resource, grant) in [("jobs/settle", &released), ("jobs/short", &expired), ("jobs/stuck", &revoked)] {
        let span = &spans[resource];
        assert_eq!(span.name, format!("lease {resource}"));
        assert_eq!((span.kind, &*span.scope), (1, "leasehold"));
        let attribute = |key| span.attribute(key);
        assert_eq!(attribute("leasehold.token_number"), grant.number);
        assert_eq!(attribute("leasehold.lease_id"), grant.lease);
        assert_eq!(attribute("leasehold.holder"), "worker-1");
        assert_eq!((attribute("leasehold.access"), attribute("leasehold.slot")), ("exclusive", "0"));
        assert_eq!(attribute("leasehold.cluster"), server.issuer.cluster.to_string());
        let (start_ms, end_ms) = (span.start_ns / 1_000_000, span.end_ns / 1_000_000);
        assert!(before_ms <= start_ms && start_ms <= end_ms && end_ms <= after_ms, "{before_ms} {span:?} {after_ms}");
        assert_eq!(span.resource["service.name"], "leasehold");
        assert_eq!(span.resource["service.instance.id"], address.to_string());
    }
    let end = |resource: &str| {
        let span = &spans[resource];
        (span.attribute("leasehold.end_reason"), span.status, &*span.status_message)
    };
    assert_eq!(end("jobs/settle"), ("released", StatusCode::Unset, ""));
    assert_eq!(end("jobs/short"), ("ttl", StatusCode::Error, "expired: ttl"));
    assert_eq!(end("jobs/stuck"), ("operator", StatusCode::Error, "revoked: operator"));
    let short = &spans["jobs/short"];
    assert!(short.end_ns - short.start_ns >= 100_000_000, "{short:?}");
    for resource in ["jobs/settle", "jobs/stuck"] {
        let span = &spans[resource];
        assert_eq!((&*span.trace_id, &*span.parent_span_id, span.flags), (TRACE_ID, PARENT_ID, 0x301));
    }
    assert_eq!((short.trace_id.len(), &*short.parent_span_id, short.flags), (32, "", 0x101), "a trace of its own");
    let ids: std::collections::BTreeSet<_> = spans.values().map(|span| &span.span_id).collect();
    assert_eq!((ids.len(), metric(address, "leasehold_spans_exported_total").await), (3, 3));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_a_trace_that_is_not_sampled_gives_no_span_and_is_in_the_audit_log() {
    let collector = CollectorStub::start();
    let server = server_of(&collector).await;
    let address = server.address;
    let unsampled = traceparent().replace("-01", "-00");
    let granted = acquire(address, "jobs/quiet", "60s", &unsampled).await;
    release(address, "jobs/quiet", &granted, &unsampled).await;
    let granted = acquire(address, "jobs/loud", "60s", &traceparent()).await;
    release(address, "jobs/loud", &granted, "").await;
    let entries = crate::fixture::audit_entries(address).await;
    assert!(entries[..2].iter().all(|entry| entry["traceparent"] == unsampled.as_str()), "{entries:?}");
    // The end exports what is queued.
    server.stop().await;
    assert_eq!(by_resource(collector.spans()).into_keys().collect::<Vec<_>>(), ["jobs/loud"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_an_event_of_the_span() {
    let collector = CollectorStub::start();
    let server = server_of(&collector).await;
    let address = server.address;
    acquire(address, "jobs/settle", "60s", "").await;
    post(address, "/v1/leases/jobs/settle:revoke", "", r#"{"comment":"it leaks","grace":"200ms"}"#).await;
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    let [event] = &span.events[..] else { panic!("{span:?}") };
    assert_eq!(event.name, "leasehold.draining");
    assert_eq!(event.attributes["leasehold.drain_cause"], "operator");
    assert!(span.start_ns <= event.time_ns && event.time_ns + 200_000_000 <= span.end_ns, "{span:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_outlives_its_server_gives_one_span_with_the_start_and_the_trace_of_its_grant() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = small_directory(folder.path().join("data"));
    let collector = CollectorStub::start();
    let config = config_with(settings(&collector.url()));
    let server = start(directory.clone(), config.clone()).await.expect("the server starts");
    let granted = acquire(server.address, "jobs/settle", "60s", &traceparent()).await;
    let granted_by_ms = leasehold_server::clock::now().wall.0;
    let early = acquire(server.address, "jobs/early", "60s", "").await;
    release(server.address, "jobs/early", &early, "").await;
    // From a snapshot, which must contain the trace.
    crate::http_client::download(server.address, "/v1/backup").await;
    server.stop().await;
    let server = start(directory, config).await.expect("the server starts again");
    release(server.address, "jobs/settle", &granted, "").await;
    let spans = by_resource(collector.wait_for_spans(2));
    let span = &spans["jobs/settle"];
    assert_eq!((&*span.trace_id, &*span.parent_span_id), (TRACE_ID, PARENT_ID));
    assert_eq!(span.attribute("leasehold.token_number"), granted.number);
    assert!(span.start_ns / 1_000_000 <= granted_by_ms, "{span:?}");
    server.stop().await;
    assert_eq!(collector.spans().len(), 2, "a start exports nothing again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_described_as_the_operator_says() {
    let collector = CollectorStub::start();
    let attributes = [("deployment.environment.name", "test"), ("service.version", "not this one")];
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let headers = vec![("X-Api-Key".to_owned(), "secret".to_owned())];
    let settings = settings(&format!("{}/otlp", collector.url()))
        .with_headers("otlp_headers_file", headers)
        .expect("the collector is on this machine")
        .with_attributes(attributes)
        .with_service_name("locks");
    let server = start(leasehold_server::journal::memory::Memory::new(), config_with(settings)).await;
    let server = server.expect("the server starts");
    let granted = acquire(server.address, "jobs/settle", "60s", "").await;
    release(server.address, "jobs/settle", &granted, "").await;
    let [span] = &collector.wait_for_spans(1)[..] else { panic!("one span") };
    assert_eq!(span.resource["service.name"], "locks");
    assert_eq!(span.resource["deployment.environment.name"], "test");
    assert_eq!(span.resource["service.version"], env!("CARGO_PKG_VERSION"));
    let [export] = &collector.exports()[..] else { panic!("one request") };
    assert_eq!(export.path, "/otlp/v1/traces");
    assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(export.header("x-api-key"), Some("secret"));
    server.stop().await;
}
