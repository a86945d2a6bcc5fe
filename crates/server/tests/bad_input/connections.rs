//! Slow, silent, excess and unread connections: each is closed.

use std::time::Duration;

use leasehold_server::transport::{MAX_STREAMS, TransportLimits};
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::test_server::{refusal, start_server, start_server_with};
use crate::transports::{HttpConnection, acquire, connect, with_timeout};

/// Short enough for a test, and long enough for all other connections.
fn short_header_timeout() -> TransportLimits {
    TransportLimits { header_timeout: Duration::from_secs(3), ..TransportLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_request_head_times_out() {
    let mut server = start_server_with(short_header_timeout()).await;
    // The first request of the shared connection, so that it does not time out as well.
    assert_eq!(server.http.request("GET /healthz", "", "").await.0, 200);
    let before = server.state().await;
    let preface = "PRI * HTTP/2.0\r\n";
    let heads = [
        ("", ""),
        ("P", ""),
        (preface, ""),
        ("GET /healthz HTTP/1.1\r\nhost: te", "s"),
        ("POST /v1/leases/a:acquire HTTP/1.1\r\nx: ", "y"),
    ];
    let slow_connections = heads.map(async |(head, more)| {
        let mut http = HttpConnection::connect(server.handle.address).await;
        http.send(head.as_bytes()).await.expect("the first bytes are sent");
        // One byte now and then, until the server closes the connection.
        let mut byte = [0; 1];
        while http.send(more.as_bytes()).await.is_ok() {
            let read = tokio::time::timeout(Duration::from_millis(50), http.read(&mut byte)).await;
            if matches!(read, Ok(Ok(0) | Err(_))) {
                return;
            }
        }
    });
    with_timeout(futures::future::join_all(slow_connections)).await;
    server.wait_until_counted_times("a slow head", ("TIMEOUT", "head"), heads.len() as u64, &before).await;
    server.client.status(v1::StatusRequest {}).await.expect("other connections are served");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_is_refused_and_closed() {
    let server = start_server().await;
    for bytes in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00", b"\x00\x00\x00\x00", &[0xff; 64]] {
        let before = server.state().await;
        let mut http = HttpConnection::connect(server.handle.address).await;
        http.send(bytes).await.expect("the bytes are sent");
        let rest = http.read_to_end().await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&rest));
        server.wait_until_counted("another protocol", ("FRAME_ERROR", ""), &before).await;
    }
    let before = server.state().await;
    let mut http = HttpConnection::connect(server.handle.address).await;
    let head = format!("GET /healthz HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    // The server may close the connection before the write ends.
    let _ = http.send(head.as_bytes()).await;
    let rest = http.read_to_end().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 431"), "{:?}", String::from_utf8_lossy(&rest));
    server.wait_until_counted("a head above the limit", ("FRAME_ERROR", ""), &before).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_above_the_limit_is_refused() {
    // The long timeout keeps silent connections open.
    let limits =
        TransportLimits { connections: 4, header_timeout: Duration::from_secs(600), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    // The test server itself has two connections.
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut http = HttpConnection::connect(server.handle.address).await;
        assert_eq!(http.request("GET /healthz", "", "").await.0, 200);
        open.push(http);
    }
    let before = server.state().await;
    let mut http = HttpConnection::connect(server.handle.address).await;
    let (status, body) = http.request("GET /healthz", "", "").await;
    assert_eq!(status, 429, "{body}");
    server.assert_counted_once("an excess connection", ("RESOURCE_EXHAUSTED", ""), &before).await;
    assert!(body.contains("RESOURCE_EXHAUSTED") && body.contains(r#""limit":"connections","max":4"#), "{body}");
    assert_eq!(http.read_to_end().await, b"", "the connection is closed");
    let before = server.state().await;
    let mut client = connect(server.handle.address).await;
    let status = client.acquire(acquire("a", "w")).await.expect_err("the connection is above the limit");
    let problem = problem_from_status(&status);
    server
        .assert_refused(
            "an excess gRPC connection",
            &problem,
            refusal("RESOURCE_EXHAUSTED", "", "more than 4 connections"),
            &before,
        )
        .await;
    assert_eq!(problem.limit, "connections");
    drop(open.pop());
    // A slot becomes free when the server notices the disconnect.
    let slot_freed = async {
        while HttpConnection::connect(server.handle.address).await.request("GET /healthz", "", "").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_timeout(slot_freed).await;
    assert_eq!(open[0].request("GET /healthz", "", "").await.0, 200, "other connections are not affected");
    server.handle.stop().await;
}

/// Reads one HTTP/2 frame: type, stream id and payload.
async fn read_frame(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    with_timeout(stream.read_exact(&mut head)).await.expect("a frame arrives");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    with_timeout(stream.read_exact(&mut payload)).await.expect("the payload arrives");
    (head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_above_the_limit_is_refused_and_the_connection_stays_open() {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let server = start_server().await;
    let mut stream = TcpStream::connect(server.handle.address).await.expect("the server listens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the preface is sent");
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.expect("empty settings are sent");
    let (kind, _, settings) = read_frame(&mut stream).await;
    assert_eq!(kind, SETTINGS);
    let limit = settings.chunks(6).find(|pair| pair[..2] == [0, 3]).expect("the server announces its limit");
    assert_eq!(u32::from_be_bytes([limit[2], limit[3], limit[4], limit[5]]), MAX_STREAMS);
    // POST http://localhost/v1/leases with a body that never ends, so that each stream stays open.
    let mut block = vec![0x83, 0x86, 0x04, 10];
    block.extend(b"/v1/leases");
    block.extend([0x41, 9]);
    block.extend(b"localhost");
    for id in (0..=MAX_STREAMS).map(|i| 2 * i + 1) {
        let head = [0, 0, block.len() as u8, HEADERS, 4];
        stream.write_all(&head).await.expect("the frame head is sent");
        stream.write_all(&id.to_be_bytes()).await.expect("the stream id is sent");
        stream.write_all(&block).await.expect("the header block is sent");
    }
    let excess = 2 * MAX_STREAMS + 1;
    loop {
        let (kind, id, payload) = read_frame(&mut stream).await;
        if kind == RESET && id == excess {
            assert_eq!(payload, [0, 0, 0, 7], "REFUSED_STREAM: no effect, safe to retry");
            break;
        }
        assert_ne!(kind, GOAWAY, "the connection is not closed: {payload:?}");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_closed() {
    let limits = TransportLimits { write_timeout: Duration::from_secs(1), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    let mut watcher = HttpConnection::connect(server.handle.address).await;
    watcher.send(b"GET /v1/events HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("the request is sent");
    let mut byte = [0; 1];
    watcher.read(&mut byte).await.expect("the watch starts");
    assert!(server.handle.api().watchers.any());
    // Other clients produce more events than the buffers hold.
    let mut client = server.client.clone();
    let long = "n".repeat(500);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while server.handle.api().watchers.any() {
        let mut calls = Vec::new();
        for _ in 0..64 {
            let mut client = client.clone();
            let request = v1::Acquire { access: v1::Access::Shared.into(), ..acquire(&long, "w") };
            calls.push(tokio::spawn(async move { client.acquire(request).await.map(|_| ()) }));
        }
        for call in calls {
            call.await.expect("no panic").expect("other clients are served");
        }
        assert!(std::time::Instant::now() < deadline, "the slow reader is never closed");
    }
    client.status(v1::StatusRequest {}).await.expect("the server is running");
    // The server closes it for missed events or for unread bytes, whichever comes first. On a busy machine the header timeout
    // may have closed the server's own idle connection, so this uses a new one.
    let (_, metrics) = HttpConnection::connect(server.handle.address).await.request("GET /metrics", "", "").await;
    let missed = !metrics.contains("\nleasehold_watch_events_missed_total 0\n");
    let unread = metrics.contains(r#"leasehold_invalid_requests_total{code="TIMEOUT",field="unread"} 1"#);
    assert!(missed || unread, "{metrics}");
    drop(watcher);
    server.handle.stop().await;
}
