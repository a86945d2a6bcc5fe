//! Requests whose end never comes: a body that trickles, a stream without a hello.

use std::time::Duration;

use futures::channel::mpsc::unbounded;
use leasehold_server::transport::TransportLimits;
use leasehold_wire::{problem_from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Request;

use crate::transports::{Http, open_with, refused, within};

/// Soon enough for a test to wait for it, and late enough for everybody who is not meant.
fn impatient() -> TransportLimits {
    TransportLimits { body_timeout: Duration::from_secs(3), ..TransportLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_trickles_in_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let before = doors.state().await;
    let requests = ["POST /v1/leases/a:acquire", "GET /v1/leases", "PUT /v1/charters/a", "POST /nowhere"];
    let trickles = requests.map(async |request| {
        let stream = TcpStream::connect(doors.running.address).await.expect("the server listens");
        let (mut read, mut write) = stream.into_split();
        let head = format!("{request} HTTP/1.1\r\nhost: test\r\ncontent-length: 100000\r\n\r\n{{");
        write.write_all(head.as_bytes()).await.expect("a beginning");
        let trickle = tokio::spawn(async move {
            while write.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        });
        let mut answer = Vec::new();
        // A connection that was reset is closed too.
        let _ = within(read.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408"), "{request}: {answer}");
        assert!(answer.contains(r#""code":"TIMEOUT""#) && answer.contains(r#""field":"body""#), "{request}: {answer}");
        within(trickle).await.expect("no panic");
    });
    futures::future::join_all(trickles).await;
    doors.until_all_counted("a body that trickles in", ("TIMEOUT", "body"), requests.len() as u64, &before).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_say_hello_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let before = doors.state().await;
    let (send, batches) = unbounded::<v1::ClientBatch>();
    let status = within(doors.calls.clone().session(Request::new(batches))).await.expect_err("it says nothing");
    doors.check("no hello", &problem_from_status(&status), refused("TIMEOUT", "hello", "send it first"), &before).await;
    drop(send);
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_message_trickles_in_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let before = doors.state().await;
    let mut stream = TcpStream::connect(doors.running.address).await.expect("the server listens");
    // HTTP/1 carries the same bytes, one at a time.
    let head = "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc\r\n\
                te: trailers\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\0\r\n";
    stream.write_all(head.as_bytes()).await.expect("a beginning");
    let mut answer = Vec::new();
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut some = [0; 512];
        let read = within(stream.read(&mut some)).await.expect("an answer");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&some[..read]);
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("leasehold-code: TIMEOUT"), "{answer}");
    doors.until_counted("a message that trickles in", ("TIMEOUT", "body"), &before).await;
    let mut http = Http::connect(doors.running.address).await;
    assert_eq!(http.ask("GET /healthz", "", "").await.0, 200, "the others are served");
    doors.running.stop().await;
}
