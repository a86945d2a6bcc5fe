//! Connections that trickle, stay silent, are too many or never read: each has an end.

use std::time::Duration;

use leasehold_server::transport::{MAX_STREAMS, TransportLimits};
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::transports::{Http, acquire, connect, open, open_with, refused, within};

/// Soon enough for a test to wait for it, and late enough for everybody who is not meant.
fn impatient() -> TransportLimits {
    TransportLimits { header_timeout: Duration::from_secs(3), ..TransportLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_trickles_in_is_not_waited_for() {
    let mut doors = open_with(impatient()).await;
    // It asks, so that it is not missed for saying nothing.
    assert_eq!(doors.http.ask("GET /healthz", "", "").await.0, 200);
    let before = doors.state().await;
    let preface = "PRI * HTTP/2.0\r\n";
    let heads = [
        ("", ""),
        ("P", ""),
        (preface, ""),
        ("GET /healthz HTTP/1.1\r\nhost: te", "s"),
        ("POST /v1/leases/a:acquire HTTP/1.1\r\nx: ", "y"),
    ];
    let trickles = heads.map(async |(head, more)| {
        let mut http = Http::connect(doors.running.address).await;
        http.send(head.as_bytes()).await.expect("a beginning");
        // One byte now and then, for as long as the connection is there.
        let mut byte = [0; 1];
        while http.send(more.as_bytes()).await.is_ok() {
            let read = tokio::time::timeout(Duration::from_millis(50), http.read(&mut byte)).await;
            if matches!(read, Ok(Ok(0) | Err(_))) {
                return;
            }
        }
    });
    within(futures::future::join_all(trickles)).await;
    doors.until_all_counted("a head that trickles in", ("TIMEOUT", "head"), heads.len() as u64, &before).await;
    doors.calls.status(v1::StatusRequest {}).await.expect("the others are served");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_gets_a_short_answer_and_is_closed() {
    let doors = open().await;
    for hello in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00", b"\x00\x00\x00\x00", &[0xff; 64]] {
        let before = doors.state().await;
        let mut http = Http::connect(doors.running.address).await;
        http.send(hello).await.expect("a beginning");
        let rest = http.rest().await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&rest));
        doors.until_counted("another protocol", ("FRAME_ERROR", ""), &before).await;
    }
    let before = doors.state().await;
    let mut http = Http::connect(doors.running.address).await;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    // It may be closed before all of it is written.
    let _ = http.send(head.as_bytes()).await;
    let rest = http.rest().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 431"), "{:?}", String::from_utf8_lossy(&rest));
    doors.until_counted("a head that is too long", ("FRAME_ERROR", ""), &before).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_too_many_is_told_so() {
    // Nobody loses its place meanwhile because it says nothing.
    let bounds =
        TransportLimits { connections: 4, header_timeout: Duration::from_secs(600), ..TransportLimits::default() };
    let doors = open_with(bounds).await;
    // Two are taken by the doors themselves.
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut http = Http::connect(doors.running.address).await;
        assert_eq!(http.ask("GET /healthz", "", "").await.0, 200);
        kept.push(http);
    }
    let before = doors.state().await;
    let mut http = Http::connect(doors.running.address).await;
    let (status, answer) = http.ask("GET /healthz", "", "").await;
    assert_eq!(status, 429, "{answer}");
    doors.check_counted("a connection too many", ("RESOURCE_EXHAUSTED", ""), &before).await;
    assert!(answer.contains("RESOURCE_EXHAUSTED") && answer.contains(r#""limit":"connections","max":4"#), "{answer}");
    assert_eq!(http.rest().await, b"", "and it is closed");
    let before = doors.state().await;
    let mut calls = connect(doors.running.address).await;
    let status = calls.acquire(acquire("a", "w")).await.expect_err("one too many");
    let problem = problem_from_status(&status);
    doors
        .check("a call too many", &problem, refused("RESOURCE_EXHAUSTED", "", "more than 4 connections"), &before)
        .await;
    assert_eq!(problem.limit, "connections");
    drop(kept.pop());
    // The place is free as soon as the server has seen the other one go.
    let free = async {
        while Http::connect(doors.running.address).await.ask("GET /healthz", "", "").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(free).await;
    assert_eq!(kept[0].ask("GET /healthz", "", "").await.0, 200, "nobody who was inside is disturbed");
    doors.running.stop().await;
}

/// One frame of HTTP/2: its kind, its stream and its payload.
async fn frame(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    within(stream.read_exact(&mut head)).await.expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    within(stream.read_exact(&mut payload)).await.expect("its payload");
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_too_many_is_refused_and_the_connection_goes_on() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let doors = open().await;
    let mut stream = TcpStream::connect(doors.running.address).await.expect("the server listens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("a preface");
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.expect("no settings");
    let (kind, _, settings) = frame(&mut stream).await;
    assert_eq!(kind, SETTINGS);
    let most = settings.chunks(6).find(|pair| pair[..2] == [0, 3]).expect("it says how many");
    assert_eq!(u32::from_be_bytes([most[2], most[3], most[4], most[5]]), MAX_STREAMS);
    // POST http localhost/v1/leases, whose body never ends: each stays open.
    let mut block = vec![0x83, 0x86, 0x04, 10];
    block.extend(b"/v1/leases");
    block.extend([0x41, 9]);
    block.extend(b"localhost");
    for id in (0..=MAX_STREAMS).map(|i| 2 * i + 1) {
        let path = [0, 0, block.len() as u8, HEADERS, 4];
        stream.write_all(&path).await.expect("a head");
        stream.write_all(&id.to_be_bytes()).await.expect("its stream");
        stream.write_all(&block).await.expect("its block");
    }
    let too_many = 2 * MAX_STREAMS + 1;
    loop {
        let (kind, id, payload) = frame(&mut stream).await;
        if kind == RESET && id == too_many {
            assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM: nothing happened, ask again later");
            break;
        }
        assert_ne!(kind, GOAWAY, "no goodbye: {payload:?}");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_read_is_closed() {
    let bounds = TransportLimits { write_timeout: Duration::from_secs(1), ..TransportLimits::default() };
    let mut doors = open_with(bounds).await;
    let mut watcher = Http::connect(doors.running.address).await;
    watcher.send(b"GET /v1/events HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it asks");
    let mut byte = [0; 1];
    watcher.read(&mut byte).await.expect("it watches");
    assert!(doors.running.api().watchers.any());
    // Others go on, and make more events than buffers hold.
    let mut calls = doors.calls.clone();
    let long = "n".repeat(500);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while doors.running.api().watchers.any() {
        let mut some = Vec::new();
        for _ in 0..64 {
            let mut calls = calls.clone();
            let ask = v1::Acquire { access: v1::Access::Shared.into(), ..acquire(&long, "w") };
            some.push(tokio::spawn(async move { calls.acquire(ask).await.map(|_| ()) }));
        }
        for one in some {
            one.await.expect("no panic").expect("everybody else is served");
        }
        assert!(std::time::Instant::now() < until, "a slow reader is kept for ever");
    }
    calls.status(v1::StatusRequest {}).await.expect("it serves");
    // It was given up for the events that it missed, or for what it left unread, whichever came first.
    let (_, figures) = doors.http.ask("GET /metrics", "", "").await;
    let missed = !figures.contains("\nleasehold_watch_events_missed_total 0\n");
    let unread = figures.contains(r#"leasehold_invalid_requests_total{code="TIMEOUT",field="unread"} 1"#);
    assert!(missed || unread, "{figures}");
    drop(watcher);
    doors.running.stop().await;
}
