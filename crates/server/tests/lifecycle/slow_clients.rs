//! Requests that never end: a slow body, a stream without a hello. Each gets a timeout.

use std::time::Duration;

use futures::channel::mpsc::unbounded;
use leasehold_server::transport::TransportLimits;
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Request;

use crate::test_server::{refusal, start_server_with};
use crate::transport_clients::{HttpConnection, with_timeout};

/// Short enough for a test, and long enough for all other requests.
fn short_body_timeout() -> TransportLimits {
    TransportLimits { body_timeout: Duration::from_secs(3), ..TransportLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_body_times_out() {
    let server = start_server_with(short_body_timeout()).await;
    let before = server.state().await;
    let requests = ["POST /v1/leases/a:acquire", "GET /v1/leases", "PUT /v1/charters/a", "POST /nowhere"];
    let slow_requests = requests.map(async |request| {
        let stream = TcpStream::connect(server.handle.address).await.expect("the server listens");
        let (mut read, mut write) = stream.into_split();
        let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n{{");
        write.write_all(head.as_bytes()).await.expect("the head is sent");
        let slow_writer = tokio::spawn(async move {
            while write.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        let mut response = Vec::new();
        // A reset connection is closed too.
        let _ = with_timeout(read.read_to_end(&mut response)).await;
        let response = String::from_utf8_lossy(&response);
        assert!(response.starts_with("HTTP/1.1 408"), "{request}: {response}");
        let problem = [r#""code":"TIMEOUT""#, r#""field":"body""#];
        assert!(problem.iter().all(|field| response.contains(field)), "{request}: {response}");
        with_timeout(slow_writer).await.expect("no panic");
    });
    futures::future::join_all(slow_requests).await;
    server.wait_until_counted_times("a slow body", ("TIMEOUT", "body"), requests.len() as u64, &before).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_hello_times_out() {
    let server = start_server_with(short_body_timeout()).await;
    let before = server.state().await;
    let (send, batches) = unbounded::<v1::ClientBatch>();
    let status =
        with_timeout(server.client.clone().session(Request::new(batches))).await.expect_err("no hello was sent");
    server
        .assert_refused(
            "no hello",
            &problem_from_status(&status),
            refusal("TIMEOUT", "hello", "send it first"),
            &before,
        )
        .await;
    drop(send);
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_call_with_a_slow_message_times_out() {
    let server = start_server_with(short_body_timeout()).await;
    let before = server.state().await;
    let mut stream = TcpStream::connect(server.handle.address).await.expect("the server listens");
    // HTTP/1 carries the same bytes as HTTP/2 would, here one at a time.
    let head = "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/grpc\r\n\
                te: trailers\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\0\r\n";
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    let mut response = Vec::new();
    while !response.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut buffer = [0; 512];
        let read = with_timeout(stream.read(&mut buffer)).await.expect("a response arrives");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&buffer[..read]);
    }
    let response = String::from_utf8_lossy(&response);
    assert!(response.contains("leasehold-code: TIMEOUT"), "{response}");
    server.wait_until_counted("a slow message", ("TIMEOUT", "body"), &before).await;
    let mut http = HttpConnection::connect(server.handle.address).await;
    assert_eq!(http.request("GET /healthz", "", "").await.0, 200, "other connections are served");
    server.handle.stop().await;
}
