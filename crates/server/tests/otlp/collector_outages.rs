//! Collectors that are down, slow, full or that refuse: what is repeated, what is dropped, and that no request waits for them.

use std::fmt::Write;

use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;
use leasehold_testkit::collector::{CollectorAnswer, CollectorStub};
use leasehold_testkit::ports::unused_address;

use crate::fixture::{acquire, config_with, metric, metric_reaches, post, release, server_of, settings, traceparent};
use crate::http_client::free_port_config;

const EXPORTED: &str = "leasehold_spans_exported_total";
const FAILURES: &str = "leasehold_span_export_failures_total";

fn dropped(reason: &str) -> String {
    format!("leasehold_spans_dropped_total{{reason=\"{reason}\"}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_nothing_is_counted() {
    let server = start(Memory::new(), free_port_config()).await.expect("the server starts");
    let granted = acquire(server.address, "jobs/settle", "60s", &traceparent()).await;
    release(server.address, "jobs/settle", &granted, "").await;
    for reason in ["queue_full", "refused", "unreachable"] {
        assert_eq!(metric(server.address, &dropped(reason)).await, 0);
    }
    assert_eq!((metric(server.address, EXPORTED).await, metric(server.address, FAILURES).await), (0, 0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_are_exported_when_a_collector_that_was_down_comes_up() {
    let address = unused_address();
    let server = start(Memory::new(), config_with(settings(&format!("http://{address}")))).await.expect("it starts");
    let granted = acquire(server.address, "jobs/settle", "60s", &traceparent()).await;
    release(server.address, "jobs/settle", &granted, "").await;
    metric_reaches(server.address, FAILURES, 1).await;
    assert_eq!(metric(server.address, EXPORTED).await, 0);
    let collector = CollectorStub::at(address);
    let spans = collector.wait_for_spans(1);
    assert_eq!(spans[0].attribute("leasehold.token_number"), granted.number);
    assert_eq!(metric_reaches(server.address, EXPORTED, 1).await, 1);
    server.stop().await;
    assert_eq!(collector.spans().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_collector_gets_the_same_request_again_and_says_when() {
    let collector = CollectorStub::start();
    collector.answer(CollectorAnswer::Status(503, Some(0)));
    let server = server_of(&collector).await;
    let granted = acquire(server.address, "jobs/settle", "60s", "").await;
    release(server.address, "jobs/settle", &granted, "").await;
    // Without a pause of the exporter's own, because the collector names one.
    let attempts = collector.wait_for_exports(5);
    assert!(attempts.iter().all(|attempt| attempt.body == attempts[0].body), "the same request");
    collector.answer(CollectorAnswer::Accept);
    assert_eq!(collector.wait_for_spans(1).len(), 1);
    assert_eq!(metric_reaches(server.address, EXPORTED, 1).await, 1);
    assert!(metric(server.address, FAILURES).await >= 5);
    for reason in ["queue_full", "refused", "unreachable"] {
        assert_eq!(metric(server.address, &dropped(reason)).await, 0);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_collector_refuses_is_dropped_and_counted() {
    let collector = CollectorStub::start();
    collector.answer(CollectorAnswer::Status(400, None));
    let server = server_of(&collector).await;
    let hold = async |resource: &str| {
        let granted = acquire(server.address, resource, "60s", "").await;
        release(server.address, resource, &granted, "").await;
    };
    hold("jobs/a").await;
    assert_eq!(metric_reaches(server.address, &dropped("refused"), 1).await, 1);
    assert_eq!(collector.exports().len(), 1, "it is not sent again");
    collector.answer(CollectorAnswer::AcceptPartly(1, "too old".to_owned()));
    hold("jobs/b").await;
    assert_eq!(metric_reaches(server.address, &dropped("refused"), 2).await, 2);
    assert_eq!((collector.exports().len(), metric(server.address, EXPORTED).await), (2, 0));
    collector.answer(CollectorAnswer::Accept);
    hold("jobs/c").await;
    assert_eq!(metric_reaches(server.address, EXPORTED, 1).await, 1);
    server.stop().await;
}

/// Holds that fit neither the queue nor the request that is on its way.
const TOO_MANY: usize = 8_192 + 512 + 1;
/// Resources of one request.
const AT_ONCE: usize = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_busy_for_long_costs_spans_and_no_lease() {
    let collector = CollectorStub::start();
    collector.answer(CollectorAnswer::Status(503, Some(1)));
    let server = server_of(&collector).await;
    let address = server.address;
    let opened = post(address, "/v1/sessions", "", r#"{"holder":"app","ttl":"60s"}"#).await;
    let session = opened["session"].as_str().expect("an id");
    let requests = TOO_MANY.div_ceil(AT_ONCE);
    for request in 0..requests {
        let mut resources = String::new();
        for at in 0..AT_ONCE {
            let comma = if at == 0 { "" } else { "," };
            write!(resources, r#"{comma}{{"resource":"many/{request}/{at}"}}"#).expect("a text grows");
        }
        let body = format!(r#"{{"resources":[{resources}],"holder":"","session":"{session}"}}"#);
        post(address, "/v1/leases:acquire_all", "", &body).await;
    }
    // All of them end in one turn.
    post(address, &format!("/v1/sessions/{session}:close"), "", "").await;
    metric_reaches(address, &dropped("queue_full"), 1).await;
    let granted = acquire(address, "jobs/settle", "60s", "").await;
    release(address, "jobs/settle", &granted, "").await;
    let dropped = metric(address, &dropped("queue_full")).await;
    collector.answer(CollectorAnswer::Accept);
    // Every hold is counted once.
    let exported = (requests * AT_ONCE) as u64 + 1 - dropped;
    assert_eq!(metric_reaches(address, EXPORTED, exported).await, exported);
    let largest = collector.exports().iter().map(|export| export.body.len()).max().expect("requests");
    assert!(largest < 1 << 20, "{largest}");
    server.stop().await;
    assert_eq!(collector.spans().len() as u64, exported);
}
