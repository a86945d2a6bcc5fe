//! Floods of HTTP/2 frames, streams that are left open, and hostile gRPC metadata. Other connections are served meanwhile.

use std::time::Duration;

use leasehold_server::transport::{MAX_STREAMS, TransportLimits};
use leasehold_wire::v1;
use prost::Message;

use crate::http2_connection::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, Http2Connection, RESET, framed, grpc_block,
};
use crate::test_server::{TestServer, start_server, start_server_with};
use crate::transport_clients::{HttpConnection, acquire, with_timeout};

/// Client streams have odd ids.
const fn stream_id(index: u32) -> u32 {
    2 * index + 1
}

/// Another connection is served, and nothing is held.
async fn assert_unharmed(server: &TestServer) {
    let status = server.client.clone().status(v1::StatusRequest {}).await;
    let status = with_timeout(async { status }).await.expect("other connections are served").into_inner();
    assert_eq!((status.held, status.waiters), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_above_the_limit_is_refused_and_the_connection_stays_open() {
    let server = start_server().await;
    let mut http2 = Http2Connection::connect(server.handle.address).await;
    let limit = http2.settings.chunks(6).find(|pair| pair[..2] == [0, 3]).expect("the server announces its limit");
    assert_eq!(u32::from_be_bytes([limit[2], limit[3], limit[4], limit[5]]), MAX_STREAMS);
    // The message never ends, so that each stream stays open.
    let head = grpc_block("Acquire", &[]);
    for index in 0..=MAX_STREAMS {
        http2.send(HEADERS, END_HEADERS, stream_id(index), &head).await.expect("the head is sent");
    }
    loop {
        let frame = http2.next().await.expect("the connection is open");
        if frame.kind == RESET && frame.stream == stream_id(MAX_STREAMS) {
            assert_eq!(frame.payload, [0, 0, 0, 7], "REFUSED_STREAM: no effect, safe to retry");
            break;
        }
        assert_ne!(frame.kind, GO_AWAY, "the connection is not closed: {frame:?}");
    }
    assert_unharmed(&server).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_reset_streams_ends_its_connection_only() {
    let server = start_server().await;
    let mut http2 = Http2Connection::connect(server.handle.address).await;
    let head = grpc_block("Status", &[]);
    let mut closed = false;
    for index in 0..100_000 {
        let opened = http2.send(HEADERS, END_HEADERS, stream_id(index), &head).await;
        let reset = http2.send(RESET, 0, stream_id(index), &[0, 0, 0, 8]).await;
        if opened.is_err() || reset.is_err() {
            closed = true;
            break;
        }
    }
    // What the server sent before it closed the connection may be lost with the unread bytes.
    assert!(closed || http2.next_of(GO_AWAY).await.is_some(), "the server accepts any number of resets");
    assert_unharmed(&server).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_endless_continuations_ends_its_connection_only() {
    let server = start_server().await;
    for fragment in [Vec::new(), vec![0x40; 1], crate::http2_connection::block(&[("x", &[b'y'; 10_000])])] {
        let mut http2 = Http2Connection::connect(server.handle.address).await;
        http2.send(HEADERS, 0, 1, &grpc_block("Status", &[])).await.expect("the head begins");
        let mut sent = 0;
        while http2.send(CONTINUATION, 0, 1, &fragment).await.is_ok() {
            sent += 1;
            assert!(sent < 10_000_000, "the server reads an endless head");
            if sent % 1_000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_unharmed(&server).await;
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_above_the_limit_is_refused_and_the_connection_stays_open() {
    let server = start_server().await;
    let mut http2 = Http2Connection::connect(server.handle.address).await;
    let value = [b'y'; 15_000];
    let head = grpc_block("Status", &[("x", &value)]);
    http2.send(HEADERS, END_HEADERS | END_STREAM, 1, &head).await.expect("the head is sent");
    assert!(http2.ping().await, "below the limit");
    let head = grpc_block("Status", &[("x", &value[..8_000]), ("z", &value[..8_000])]);
    let (first, rest) = head.split_at(16_000);
    http2.send(HEADERS, END_STREAM, 3, first).await.expect("the head is sent");
    http2.send(CONTINUATION, END_HEADERS, 3, rest).await.expect("the head is sent");
    loop {
        let frame = http2.next().await.expect("the connection is open");
        assert_ne!(frame.kind, GO_AWAY, "{frame:?}");
        if frame.stream == 3 {
            break;
        }
    }
    assert!(http2.ping().await, "above the limit");
    assert_unharmed(&server).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_left_half_open_time_out_and_make_room() {
    let limits = TransportLimits { body_timeout: Duration::from_secs(1), ..TransportLimits::default() };
    let server = start_server_with(limits).await;
    let before = server.state().await;
    let mut http2 = Http2Connection::connect(server.handle.address).await;
    let message = framed(&acquire("a", "w").encode_to_vec());
    for index in 0..MAX_STREAMS {
        http2.send(HEADERS, END_HEADERS, stream_id(index), &grpc_block("Acquire", &[])).await.expect("it is open");
        // All of the message, or a part of it; the stream is not ended in either case.
        let part = if index % 2 == 0 { &message[..] } else { &message[..7] };
        http2.send(DATA, 0, stream_id(index), part).await.expect("it is open");
    }
    let mut ended = 0;
    while ended < MAX_STREAMS {
        let frame = http2.next().await.expect("the connection is open");
        ended += u32::from(frame.kind == HEADERS);
    }
    server.wait_until_counted_times("half open", ("TIMEOUT", "body"), MAX_STREAMS.into(), &before).await;
    let last = stream_id(MAX_STREAMS);
    http2.send(HEADERS, END_HEADERS, last, &grpc_block("Status", &[])).await.expect("it is open");
    http2.send(DATA, END_STREAM, last, &framed(&[])).await.expect("it is open");
    loop {
        let frame = http2.next().await.expect("the connection is open");
        if frame.stream == last && frame.kind == DATA {
            break;
        }
        assert_ne!((frame.kind, frame.stream), (RESET, last), "the streams above did not make room");
    }
    assert_unharmed(&server).await;
    server.handle.stop().await;
}

/// A unary call over HTTP/1, which carries any header as it is.
async fn call(server: &TestServer, headers: &[u8], message: &[u8]) -> String {
    let mut http = HttpConnection::connect(server.handle.address).await;
    let head = "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/grpc\r\nte: trailers\r\n";
    let length = format!("content-length: {}\r\n\r\n", message.len());
    let bytes = [head.as_bytes(), headers, length.as_bytes(), message].concat();
    http.send(&bytes).await.expect("the request is sent");
    String::from_utf8_lossy(&http.read_to_end().await).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_metadata_is_refused_by_name() {
    let server = start_server().await;
    let message = framed(&acquire("a", "w").encode_to_vec());
    let table: [(&str, &[u8], (&str, &str)); 8] = [
        ("not UTF-8", b"idempotency-key: \xff\xfe\r\n", ("INVALID_ARGUMENT", "idempotency-key")),
        ("not a key", b"idempotency-key: 1\r\n", ("INVALID_ARGUMENT", "idempotency-key")),
        ("two keys", b"idempotency-key: 0.0:1\r\nidempotency-key: 0.0:2\r\n", ("INVALID_ARGUMENT", "idempotency-key")),
        ("two tokens", b"lease-token-seen: x\r\nlease-token-seen: y\r\n", ("INVALID_ARGUMENT", "lease-token-seen")),
        ("gzip", b"grpc-encoding: gzip\r\n", ("INVALID_ARGUMENT", "grpc-encoding")),
        ("an unknown compression", b"grpc-encoding: snappy\r\n", ("INVALID_ARGUMENT", "grpc-encoding")),
        ("a compression that is not UTF-8", b"grpc-encoding: \xff\r\n", ("INVALID_ARGUMENT", "grpc-encoding")),
        ("no time left", b"grpc-timeout: 0n\r\n", ("TIMEOUT", "grpc-timeout")),
    ];
    for (case, headers, (code, field)) in table {
        let before = server.state().await;
        let response = call(&server, headers, &message).await;
        assert!(response.contains(&format!("leasehold-code: {code}")), "{case}: {response}");
        server.assert_counted_once(case, (code, field), &before).await;
    }
    for timeout in ["99999999H", "18446744073709551616H", "1x", "-1S", "H", ""] {
        let headers = format!("grpc-timeout: {timeout}\r\ngrpc-encoding: identity\r\n");
        let message = framed(&acquire(&format!("timeout/{}", timeout.len()), "w").encode_to_vec());
        let response = call(&server, headers.as_bytes(), &message).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{timeout}: {response}");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_does_not_repeat_a_large_request() {
    let mut server = start_server().await;
    let long = "x".repeat(200_000);
    let request = v1::Acquire { resource: long.clone(), holder: long.clone(), ..Default::default() };
    let response = call(&server, b"", &framed(&request.encode_to_vec())).await;
    assert!(response.contains("leasehold-code: ") && response.len() < 2_000, "{} bytes", response.len());
    let bodies =
        [format!(r#"{{"{long}":1}}"#), format!(r#"{{"holder":"{long}"}}"#), format!(r#"{{"holder":{{"{long}":1}}}}"#)];
    for body in bodies {
        let (status, response) = server.http.request("POST /v1/leases/a:acquire", "", &body).await;
        assert_eq!(status, 400);
        assert!(response.len() < 2_000, "{} bytes: {}", response.len(), &response[..500]);
    }
    for path in ["/v1/leases/", "/v1/sessions/", "/v1/leases?", "/v1/holders/"] {
        let (status, response) = server.http.request(&format!("GET {path}{}", &long[..10_000]), "", "").await;
        assert!((400..500).contains(&status) && response.len() < 2_000, "{path}: {status}, {} bytes", response.len());
    }
    server.handle.stop().await;
}
