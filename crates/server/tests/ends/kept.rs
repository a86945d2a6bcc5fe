//! Requests whose end never comes: a body that trickles, a stream without a hello.

use std::time::Duration;

use futures::channel::mpsc::unbounded;
use leasehold_server::door::Bounds;
use leasehold_wire::{from_status, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Request;

use crate::doors::{Http, open_with, within};

fn impatient() -> Bounds {
    Bounds { body_timeout: Duration::from_millis(300), ..Bounds::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_trickles_in_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let before = doors.state().await;
    for request in ["POST /v1/leases/a:acquire", "GET /v1/leases", "PUT /v1/charters/a", "POST /nowhere"] {
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
    }
    assert_eq!(doors.state().await, before, "nothing happened");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_say_hello_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let (send, batches) = unbounded::<v1::ClientBatch>();
    let status = within(doors.calls.clone().session(Request::new(batches))).await.expect_err("it says nothing");
    assert_eq!(from_status(&status).code, "TIMEOUT", "{status:?}");
    drop(send);
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_message_trickles_in_is_not_waited_for() {
    let doors = open_with(impatient()).await;
    let mut stream = TcpStream::connect(doors.running.address).await.expect("the server listens");
    // HTTP/1 carries the same bytes, one at a time.
    let head = "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: test\r\ncontent-type: application/grpc\r\n\
                te: trailers\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\0\r\n";
    stream.write_all(head.as_bytes()).await.expect("a beginning");
    let mut answer = [0; 512];
    let read = within(stream.read(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.contains("leasehold-code: TIMEOUT") || answer.contains("TIMEOUT"), "{answer}");
    let mut http = Http::connect(doors.running.address).await;
    assert_eq!(http.ask("GET /healthz", "", "").await.0, 200, "the others are served");
    doors.running.stop().await;
}
