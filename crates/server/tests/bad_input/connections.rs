//! Slow, silent, excess and unread connections: each is closed.

use std::time::Duration;

use leasehold_server::transport::{BODY_BYTES, TransportLimits};
use leasehold_wire::{MAX_TRANSPORT_BYTES, problem_from_status, v1};

use crate::test_server::{TestServer, refusal, start_server, start_server_with};
use crate::transport_clients::{HttpConnection, acquire, connect, with_timeout};

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
        ("GET /healthz HTTP/1.1\r\nhost: lo", "c"),
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
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    // The server may close the connection before the write ends.
    let _ = http.send(head.as_bytes()).await;
    let rest = http.read_to_end().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 431"), "{:?}", String::from_utf8_lossy(&rest));
    server.wait_until_counted("a head above the limit", ("FRAME_ERROR", ""), &before).await;
    server.handle.stop().await;
}

/// Starts a watch, whose request does not end.
async fn watch(http: &mut HttpConnection) {
    http.send(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the request is sent");
    let mut byte = [0; 1];
    assert_eq!(with_timeout(http.read(&mut byte)).await.expect("the watch starts"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_above_the_limit_is_refused_if_all_others_serve_requests() {
    let server = &mut start_server_with(TransportLimits { connections: 4, ..TransportLimits::default() }).await;
    // The test server itself has two connections: one with a session stream, and this one.
    watch(&mut server.http).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut http = HttpConnection::connect(server.handle.address).await;
        watch(&mut http).await;
        open.push(http);
    }
    let before = server.state().await;
    let mut http = HttpConnection::connect(server.handle.address).await;
    let (status, body) = http.request("GET /v1/status", "", "").await;
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
    for path in ["GET /healthz", "GET /readyz"] {
        let mut http = HttpConnection::connect(server.handle.address).await;
        assert_eq!(http.request(path, "", "").await.0, 200, "{path} is answered above the limit");
        assert_eq!(http.read_to_end().await, b"", "the connection is closed");
    }
    drop(open.pop());
    // A slot becomes free when the server notices the disconnect.
    let slot_freed = async {
        while HttpConnection::connect(server.handle.address).await.request("GET /v1/status", "", "").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_timeout(slot_freed).await;
    server.client.status(v1::StatusRequest {}).await.expect("other connections are not affected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_the_longest_idle_connection_is_closed() {
    let mut server = start_server_with(TransportLimits { connections: 4, ..TransportLimits::default() }).await;
    let connect_and_use = async || {
        let mut http = HttpConnection::connect(server.handle.address).await;
        assert_eq!(http.request("GET /healthz", "", "").await.0, 200);
        http
    };
    assert_eq!(server.http.request("GET /healthz", "", "").await.0, 200);
    let mut used = connect_and_use().await;
    let mut unused = connect_and_use().await;
    for http in [&mut server.http, &mut used] {
        assert_eq!(http.request("GET /healthz", "", "").await.0, 200);
    }
    let mut new = connect_and_use().await;
    assert_eq!(unused.read_to_end().await, b"", "the longest idle connection is closed");
    for http in [&mut server.http, &mut used, &mut new] {
        assert_eq!(http.request("GET /healthz", "", "").await.0, 200, "the others are served");
    }
    server.client.status(v1::StatusRequest {}).await.expect("the connection with a session stream is served");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_kept_longer_than_a_silent_one() {
    let limits = TransportLimits { header_timeout: Duration::from_millis(500), ..TransportLimits::default() };
    let mut server = start_server_with(limits).await;
    let mut idle = HttpConnection::connect(server.handle.address).await;
    assert_eq!(idle.request("GET /healthz", "", "").await.0, 200);
    let mut silent = HttpConnection::connect(server.handle.address).await;
    assert_eq!(silent.read_to_end().await, b"", "a connection without a request is closed");
    assert_eq!(idle.request("GET /healthz", "", "").await.0, 200, "a holder renews on the connection that it has");
    // Part of a head has the shorter time again.
    idle.send(b"GET /healthz HTT").await.expect("the bytes are sent");
    assert_eq!(idle.read_to_end().await, b"");
    server.client.status(v1::StatusRequest {}).await.expect("an HTTP/2 connection has no such deadline");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_after_its_time_and_that_is_no_error_of_the_peer() {
    let limits = TransportLimits { idle_timeout: Some(Duration::from_millis(300)), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    let before = server.state().await;
    let mut idle = HttpConnection::connect(server.handle.address).await;
    assert_eq!(idle.request("GET /healthz", "", "").await.0, 200);
    assert_eq!(idle.read_to_end().await, b"");
    assert_eq!(server.state().await, before);
    let ttl = |max_ttl_ms| TransportLimits::default().idle_timeout(max_ttl_ms).as_secs();
    assert_eq!(
        (ttl(600_000), ttl(7 * 24 * 3_600_000), ttl(100)),
        (300, 302_400, 60),
        "longer than a third of each ttl"
    );
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_share_one_budget_and_small_requests_do_not_depend_on_it() {
    let limits = TransportLimits { body_timeout: Duration::from_secs(600), ..TransportLimits::default() };
    let mut server = start_server_with(limits).await;
    let half = MAX_TRANSPORT_BYTES / 2;
    let send_half = async || {
        let mut http = HttpConnection::connect(server.handle.address).await;
        let head = "POST /v1/leases/a:acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let head = format!("{head}content-length: {}\r\n\r\n", half + 1);
        http.send(head.as_bytes()).await.expect("the head is sent");
        // The server may refuse it before all has arrived.
        let _ = http.send(&vec![b' '; half]).await;
        http
    };
    let mut unfinished = Vec::new();
    loop {
        unfinished.push(send_half().await);
        assert!(unfinished.len() <= 2 * BODY_BYTES / half, "the budget is never used up");
        if exhausted(&server).await {
            break;
        }
    }
    // A server that is slower than the loop may have refused an earlier one than the last.
    let responses = unfinished.iter_mut().map(|http| {
        Box::pin(async move {
            let mut response = vec![0; 4_096];
            let length = http.read(&mut response).await.expect("a response arrives");
            String::from_utf8_lossy(&response[..length]).into_owned()
        })
    });
    let (response, ..) = with_timeout(futures::future::select_all(responses)).await;
    assert!(response.starts_with("HTTP/1.1 503") && response.contains(r#""limit":"body_bytes""#), "{response}");
    server.acquire_lease("small", 60_000).await;
    let (status, reply) = server.http.request("POST /v1/leases/b:acquire", "", r#"{"holder":"w","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{reply}");
    drop(unfinished);
    // The budget is free again when the server notices the disconnects.
    let freed = async {
        loop {
            let padded = format!(r#"{{"holder":"w","ttl":"60s"{}}}"#, " ".repeat(200_000));
            let mut http = HttpConnection::connect(server.handle.address).await;
            let (status, reply) = http.request("POST /v1/leases/c:acquire", "", &padded).await;
            if status != 503 {
                return (status, reply);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (status, reply) = with_timeout(freed).await;
    assert_eq!(status, 200, "{reply}");
    server.handle.stop().await;
}

/// Whether a body was refused because of the budget.
async fn exhausted(server: &TestServer) -> bool {
    let (status, text) = HttpConnection::connect(server.handle.address).await.request("GET /metrics", "", "").await;
    assert_eq!(status, 200);
    !text.contains("leasehold_limits_reached_total{limit=\"body_bytes\"} 0")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_closed() {
    let limits = TransportLimits { write_timeout: Duration::from_secs(1), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    let mut watcher = HttpConnection::connect(server.handle.address).await;
    watcher.send(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the request is sent");
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
    // The server closes it for missed events or for unread bytes, whichever comes first.
    let (_, metrics) = HttpConnection::connect(server.handle.address).await.request("GET /metrics", "", "").await;
    let missed = !metrics.contains("\nleasehold_watch_events_missed_total 0\n");
    let unread = metrics.contains(r#"leasehold_invalid_requests_total{code="TIMEOUT",field="unread"} 1"#);
    assert!(missed || unread, "{metrics}");
    drop(watcher);
    server.handle.stop().await;
}
