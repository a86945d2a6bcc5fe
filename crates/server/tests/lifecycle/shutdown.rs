//! A server that is asked to stop does what it has taken, tells it, and says goodbye; then nobody is connected.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_server::driver::StopReason;
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{DiskSpace, JournalError};
use leasehold_server::metrics::GrantorStats;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, v1};

use crate::transports::{Http, Stream, acquire, connect, held, open, within};

fn requests(from: u64, count: u64) -> v1::ClientBatch {
    let request = |sequence| {
        let ask = Some(Operation::Acquire(acquire(&format!("many/{sequence}"), "")));
        v1::Request { sequence, operation: ask }
    };
    v1::ClientBatch {
        requests: (from..from + count).map(request).collect(),
        lowest_pending: from,
        ..Default::default()
    }
}

/// More than one turn takes is asked; everything that is answered before the goodbye is kept, and nothing is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_taken_is_told_and_then_comes_a_goodbye() {
    const MAX_STREAMS: u64 = 8;
    const EACH: u64 = 1_000;
    let doors = open().await;
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        streams.push(Stream::open(connect(doors.running.address).await).await);
    }
    for (stream, from) in streams.iter().zip((1..).step_by(EACH as usize)) {
        stream.send(requests(from, EACH));
    }
    // The first answer of each shows that its batch was taken.
    let mut told = Vec::new();
    for stream in &mut streams {
        told.push(stream.next().await.expect("answers").responses.len());
    }
    let stopping = tokio::spawn(doors.running.stop());
    for (stream, told) in streams.iter_mut().zip(&mut told) {
        let goodbye = loop {
            let batch = stream.next().await.expect("a goodbye comes before the end");
            *told += batch.responses.len();
            assert!(batch.responses.iter().all(|one| matches!(one.answer, Some(Answer::Granted(_)))));
            if let Some(goodbye) = batch.close {
                break goodbye;
            }
        };
        assert_eq!(goodbye.code, "UNAVAILABLE", "{goodbye:?}");
        assert_eq!(stream.next().await, None, "and then it ends well");
    }
    assert_eq!(told, [EACH as usize; MAX_STREAMS as usize]);
    within(stopping).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_or_watch_are_told_that_it_stops() {
    let mut doors = open().await;
    let at = doors.running.address;
    doors.take("r", 600_000).await;
    let terms = Some(v1::AcquireOptions { wait_ms: 600_000, ..Default::default() });
    let told = doors.stream.ask(Operation::Acquire(v1::Acquire { options: terms.clone(), ..acquire("r", "") })).await;
    assert!(matches!(told, Answer::Waiting(_)), "{told:?}");
    let mut calls = connect(at).await;
    let wait = tokio::spawn(async move { calls.acquire(v1::Acquire { options: terms, ..acquire("r", "w") }).await });
    let mut watching = doors.calls.watch(v1::WatchRequest::default()).await.expect("it watches").into_inner();
    let mut events = Http::connect(at).await;
    events.send(b"GET /v1/events HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it asks");
    let mut byte = [0; 1];
    events.read(&mut byte).await.expect("it watches");
    doors.until_waiting("r", 2).await;
    let stopping = tokio::spawn(doors.running.stop());
    let goodbye = doors.stream.next().await.expect("a last word").close.expect("a goodbye");
    assert_eq!(goodbye.code, "UNAVAILABLE");
    let status = within(wait).await.expect("no panic").expect_err("nobody gave it back");
    assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
    let status = loop {
        match within(watching.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end of a watch is told"),
            Err(status) => break status,
        }
    };
    assert_eq!(problem_from_status(&status).code, "UNAVAILABLE", "{status:?}");
    let rest = String::from_utf8(events.rest().await).expect("text");
    assert!(rest.contains("event: problem") && rest.contains("UNAVAILABLE"), "{rest}");
    within(stopping).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_go_is_cut_and_the_server_stops_all_the_same() {
    let doors = open().await;
    let mut half = Http::connect(doors.running.address).await;
    half.send(b"POST /v1/leases/a:acquire HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{").await.expect("half");
    let mut idle = Http::connect(doors.running.address).await;
    assert_eq!(idle.ask("GET /healthz", "", "").await.0, 200);
    tokio::time::timeout(Duration::from_secs(60), doors.running.stop()).await.expect("it does not wait for ever");
    assert_eq!(idle.rest().await, b"");
    half.rest().await;
}

/// Nothing that it has decided can be kept: it was told to nobody, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_stops_when_it_is_asked_to() {
    let journal = Memory::default();
    let settings = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    let running = start(journal.clone(), settings).await.expect("a server on a free port starts");
    let mut calls = connect(running.address).await;
    let grant = calls.acquire(acquire("held", "w")).await.expect("it is free").into_inner();
    let api = running.api().clone();
    let status = api.query(|grantor| grantor.status()).await.expect("it serves");
    let looked = GrantorStats { status, progress_ms: None, zombie_writes: 0, fence_checks: 0, fence_targets: 0 };
    journal.set_disk_space(DiskSpace::None);
    let release = tokio::spawn(async move { calls.release(held("held", &grant.token)).await });
    // The turn that ends it waits for room, and everybody with it.
    let waits = async {
        while api.metrics.encode_with(&looked).contains("\nleasehold_journal_full_appends_total 0\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(waits).await;
    let stopped = within(running.stop()).await;
    assert_eq!(stopped, StopReason::Failed(JournalError::Full));
    let status = within(release).await.expect("no panic").expect_err("nothing is kept");
    assert_eq!(problem_from_status(&status).code, "INDETERMINATE", "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_too_late_is_refused_and_has_not_happened() {
    let doors = open().await;
    let api = doors.running.api().clone();
    api.queue.stop();
    // The turns are over when a look is refused; what is asked then finds nobody.
    let late = async { while api.query(|_| ()).await.is_ok() {} };
    within(late).await;
    let mut calls = doors.calls.clone();
    let status = within(calls.acquire(acquire("late", "w"))).await.expect_err("nobody decides");
    assert_eq!(problem_from_status(&status).code, "UNAVAILABLE", "{status:?}");
    let mut http = Http::connect(doors.running.address).await;
    let (status, answer) = http.ask("GET /v1/leases/late", "", "").await;
    assert_eq!(status, 503, "{answer}");
    assert_eq!(http.ask("GET /readyz", "", "").await.0, 503);
    let (status, problem) = http.ask("GET /metrics", "", "").await;
    assert_eq!(status, 503, "{problem}");
    doors.running.stop().await;
}
