//! Lost marks: streams that remove records, subjects without a readable mark, and marks of another fence.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use leasehold_fence::conformance::{CLUSTER, Subject, fence_id, number, token};
use leasehold_fence::nats::{Fence, list_marks};
use leasehold_fence::{Error, FenceId, FenceRefusal, MarkLoss};

use crate::server::{NatsServer, SUBJECT};

fn lost(error: &Error) -> Option<MarkLoss> {
    match error {
        Error::Refused(FenceRefusal::MarkLost(loss)) => Some(*loss),
        _ => None,
    }
}

/// Creates a stream with one subject, and opens its fence.
async fn fence_of(jetstream: &Context, config: Config) -> Fence {
    let (name, subject) = (config.name.clone(), config.subjects[0].clone());
    jetstream.create_stream(config).await.expect("a stream");
    Fence::open(jetstream, &name, &subject, &fence_id()).await.expect("opened")
}

fn config(name: &str) -> Config {
    Config { name: name.to_owned(), subjects: vec![format!("{name}.eu")], ..Config::default() }
}

async fn publish(jetstream: &Context, subject: &str, headers: HeaderMap) {
    let sent = jetstream.publish_with_headers(subject.to_owned(), headers, "without the fence".into()).await;
    sent.expect("sent").await.expect("the server accepts it");
}

/// If a consumer acknowledges the newest claim before older records, the server removes the claim, and the mark with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_removes_acknowledged_records_cannot_be_armed_or_claimed() {
    let nats = NatsServer::start().await;
    let jetstream = nats.jetstream().await;
    for (name, retention) in [("queue", RetentionPolicy::WorkQueue), ("interest", RetentionPolicy::Interest)] {
        let fence = fence_of(&jetstream, Config { retention, ..config(name) }).await;
        let armed = fence.arm().await.expect_err("its records do not stay");
        assert_eq!(armed.code(), "CONFIG", "{armed}");
        assert!(
            armed.to_string().contains(&format!("retention is {}", if name == "queue" { "workqueue" } else { name }))
        );
        let claimed = fence.claim(&token(33)).await.expect_err("its records do not stay");
        assert_eq!(claimed.code(), "CONFIG", "{claimed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_whose_marks_are_gone_can_be_re_armed_from_a_floor() {
    let nats = NatsServer::start().await;
    let jetstream = nats.jetstream().await;
    let one = fence_of(&jetstream, Config { max_messages_per_subject: 1, ..config("one") }).await;
    let rollup = fence_of(&jetstream, Config { allow_rollup: true, ..config("rollup") }).await;
    let purged = fence_of(&jetstream, config("purged")).await;
    for fence in [&one, &rollup, &purged] {
        fence.arm().await.expect("armed");
        fence.claim(&token(33)).await.expect("claimed");
    }
    publish(&jetstream, "one.eu", HeaderMap::new()).await;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Rollup", "sub");
    publish(&jetstream, "rollup.eu", headers).await;
    jetstream.get_stream("purged").await.expect("a stream").purge().await.expect("purged");
    for (fence, loss) in [(&one, MarkLoss::Unreadable), (&rollup, MarkLoss::Unreadable), (&purged, MarkLoss::Missing)] {
        let refused = fence.claim(&token(34)).await.expect_err("the mark is gone");
        assert_eq!(lost(&refused), Some(loss), "{refused}");
        fence.rearm(number(34)).await.expect("re-armed from a floor");
        assert_eq!(fence.append(&token(33), "late").await.expect_err("stale").code(), "STALE_TOKEN");
        fence.append(&token(34), "after").await.expect("a later holder");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_does_not_change_the_mark_of_another_fence() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    nats.fence().await.claim(&token(33)).await.expect("claimed");
    let jetstream = nats.jetstream().await;
    let other = FenceId::new(CLUSTER, "jobs/other").expect("a name");
    let other = Fence::open(&jetstream, &nats.stream_name(), SUBJECT, &other).await.expect("opened");
    for result in [other.rearm(number(50)).await, other.declare_lost().await, other.strict(true).await] {
        assert_eq!(result.expect_err("the mark of another resource").code(), "CONFLICT");
    }
    assert_eq!(list_marks(&jetstream, &nats.stream_name()).await.expect("listed").len(), 1);
    nats.fence().await.append(&token(33), "current").await.expect("still admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_with_wildcards_is_an_error() {
    let nats = NatsServer::start().await;
    let jetstream = nats.jetstream().await;
    for subject in
        ["", "writes.*", "writes.>", ">", "*.eu", "writes..eu", ".eu", "writes.", "writes.e u", "writes.\r\n"]
    {
        let opened = Fence::open(&jetstream, &nats.stream_name(), subject, &fence_id()).await;
        assert_eq!(opened.expect_err("not one subject").code(), "INVALID_ARGUMENT", "{subject:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_too_large_is_an_error_and_the_next_append_is_applied() {
    let nats = NatsServer::start().await;
    nats.fresh().await;
    let fence = nats.fence().await;
    let error = fence.append(&token(33), vec![b'x'; 2 << 20]).await.expect_err("above the limit of the server");
    assert_eq!(error.code(), "STORAGE_FAILED", "{error}");
    fence.append_once(&token(33), 1, "first").await.expect("written");
    assert_eq!(nats.applied().await.len(), 1);
}
