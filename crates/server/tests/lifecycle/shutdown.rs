//! A server that shuts down completes accepted requests, sends their replies, and closes every connection with a reason.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::grantor::{Query, QueryAnswer};
use leasehold_server::driver::StopReason;
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{DiskSpace, JournalError};
use leasehold_server::metrics::GrantorStats;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};

use crate::test_server::start_server;
use crate::transport_clients::{HttpConnection, SessionStream, acquire, connect, lease_ref, with_timeout};

fn acquire_batch(from: u64, count: u64) -> v1::ClientBatch {
    let request = |sequence| {
        let operation = Some(Operation::Acquire(acquire(&format!("many/{sequence}"), "")));
        v1::Request { sequence, operation, alone: None, traceparent: None }
    };
    v1::ClientBatch {
        requests: (from..from + count).map(request).collect(),
        lowest_pending: from,
        ..Default::default()
    }
}

/// More requests than one turn accepts: all of them are answered before the streams close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_requests_are_answered_before_the_streams_close() {
    const MAX_STREAMS: u64 = 8;
    const REQUESTS_PER_STREAM: u64 = 1_000;
    let server = start_server().await;
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        streams.push(SessionStream::open(connect(server.handle.address).await).await);
    }
    for (stream, from) in streams.iter().zip((1..).step_by(REQUESTS_PER_STREAM as usize)) {
        stream.send(acquire_batch(from, REQUESTS_PER_STREAM));
    }
    // The first answer on a stream shows that its batch was accepted.
    let mut answered = Vec::new();
    for stream in &mut streams {
        answered.push(stream.next().await.expect("answers arrive").responses.len());
    }
    let stopping = tokio::spawn(server.handle.stop());
    for (stream, answered) in streams.iter_mut().zip(&mut answered) {
        let close = loop {
            let batch = stream.next().await.expect("the reason comes before the end");
            *answered += batch.responses.len();
            assert!(batch.responses.iter().all(|response| matches!(response.answer, Some(Answer::Granted(_)))));
            if let Some(close) = batch.close {
                break close;
            }
        };
        assert_eq!(close.code, "UNAVAILABLE", "{close:?}");
        assert_eq!(stream.next().await, None, "the stream ends without an error");
    }
    assert_eq!(answered, [REQUESTS_PER_STREAM as usize; MAX_STREAMS as usize]);
    with_timeout(stopping).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_watchers_are_notified_of_the_shutdown() {
    let mut server = start_server().await;
    let address = server.handle.address;
    server.acquire_lease("r", 600_000).await;
    let options = Some(v1::AcquireOptions { wait_ms: 600_000, ..Default::default() });
    let answer =
        server.stream.request(Operation::Acquire(v1::Acquire { options: options.clone(), ..acquire("r", "") })).await;
    assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    let mut client = connect(address).await;
    let wait = tokio::spawn(async move { client.acquire(v1::Acquire { options, ..acquire("r", "w") }).await });
    let mut watch = server.client.watch(v1::WatchRequest::default()).await.expect("the watch starts").into_inner();
    let mut events = HttpConnection::connect(address).await;
    events.send(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the request is sent");
    let mut byte = [0; 1];
    events.read(&mut byte).await.expect("the watch starts");
    server.wait_for_waiters("r", 2).await;
    let stopping = tokio::spawn(server.handle.stop());
    let close = server.stream.next().await.expect("a last message").close.expect("a reason");
    assert_eq!(close.code, "UNAVAILABLE");
    let status = with_timeout(wait).await.expect("no panic").expect_err("the lease was not released");
    assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
    let status = loop {
        match with_timeout(watch.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a watch ends with a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(problem_from_status(&status).code, "UNAVAILABLE", "{status:?}");
    let rest = String::from_utf8(events.read_to_end().await).expect("the events are UTF-8");
    assert!(rest.contains("event: problem") && rest.contains("UNAVAILABLE"), "{rest}");
    with_timeout(stopping).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_incomplete_connections_do_not_delay_the_shutdown_forever() {
    let server = start_server().await;
    let mut incomplete = HttpConnection::connect(server.handle.address).await;
    incomplete
        .send(b"POST /v1/leases/a:acquire HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .await
        .expect("the head is sent");
    let mut idle = HttpConnection::connect(server.handle.address).await;
    assert_eq!(idle.request("GET /healthz", "", "").await.0, 200);
    tokio::time::timeout(Duration::from_secs(60), server.handle.stop()).await.expect("the shutdown ends");
    assert_eq!(idle.read_to_end().await, b"");
    incomplete.read_to_end().await;
}

/// The pending turn cannot be stored, so it is dropped without a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_full_journal_shuts_down() {
    let journal = Memory::default();
    let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    let server = start(journal.clone(), config).await.expect("a server starts on a free port");
    let mut client = connect(server.address).await;
    let grant = client.acquire(acquire("held", "w")).await.expect("the resource is free").into_inner();
    let api = server.api().clone();
    let status = |answer: QueryAnswer<'_>| match answer {
        QueryAnswer::Status(status) => Some(*status),
        _ => None,
    };
    let (status, _) = api.query(0, Query::Status, status).await.expect("the server is running");
    let stats = GrantorStats {
        status,
        progress_ms: None,
        zombie_writes: 0,
        fence_checks: 0,
        fence_targets: 0,
        coverage_holes: Vec::new(),
    };
    journal.set_disk_space(DiskSpace::None);
    let release = tokio::spawn(async move { client.release(lease_ref("held", &grant.token)).await });
    // The turn with the release waits for space, and every later request with it.
    let full = async {
        while api.metrics.encode_with(&stats).contains("\nleasehold_journal_full_appends_total 0\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_timeout(full).await;
    let stopped = with_timeout(server.stop()).await;
    assert_eq!(stopped, StopReason::Failed(JournalError::Full));
    let status = with_timeout(release).await.expect("no panic").expect_err("the release was not stored");
    assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_after_the_last_turn_is_refused_without_effect() {
    let server = start_server().await;
    let api = server.handle.api().clone();
    api.queue.stop();
    // The driver has stopped when a query is refused.
    let stopped = async { while api.confirm().await.is_ok() {} };
    with_timeout(stopped).await;
    let mut client = server.client.clone();
    let status = with_timeout(client.acquire(acquire("late", "w"))).await.expect_err("the driver has stopped");
    assert_eq!(problem_from_status(&status).code, "UNAVAILABLE", "{status:?}");
    let mut http = HttpConnection::connect(server.handle.address).await;
    let (status, body) = http.request("GET /v1/leases/late", "", "").await;
    assert_eq!(status, 503, "{body}");
    assert_eq!(http.request("GET /readyz", "", "").await.0, 503);
    let (status, problem) = http.request("GET /metrics", "", "").await;
    assert_eq!(status, 503, "{problem}");
    server.handle.stop().await;
}
