//! Invalid gRPC frames and messages: too large, truncated, malformed, or of another version.

use leasehold_wire::v1;
use leasehold_wire::{MAX_REQUEST_BYTES, MAX_TRANSPORT_BYTES, METADATA_CODE, problem_from_status};
use prost::bytes::{Buf, BufMut};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::test_server::{TestServer, refusal, start_server};
use crate::transport_clients::{HttpConnection, acquire};

/// A codec that passes bytes through.
#[derive(Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

async fn channel(server: &TestServer) -> tonic::transport::Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.handle.address));
    endpoint.expect("the address is valid").connect().await.expect("the server listens")
}

/// Sends bytes to a method, which must refuse them.
async fn send_raw(server: &TestServer, method: &'static str, bytes: Vec<u8>) -> v1::Problem {
    let mut grpc = tonic::client::Grpc::new(channel(server).await);
    grpc.ready().await.expect("the connection is ready");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(method);
    let status = grpc.unary(Request::new(bytes), path, RawCodec).await.expect_err("the bytes are invalid");
    assert!(status.metadata().contains_key(METADATA_CODE), "the refusal has a code: {status:?}");
    problem_from_status(&status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_a_message_are_refused() {
    let server = start_server().await;
    let acquire = "/leasehold.v1.Leasehold/Acquire";
    let not_text = vec![0x0a, 0x01, 0xff];
    let truncated = vec![0x0a, 0x7f, b'a'];
    let false_length = vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let trailing = [encoded_acquire("jobs/a"), vec![0x0a]].concat();
    let frame = refusal("FRAME_ERROR", "", "not a valid message");
    for (case, bytes, expected) in [
        ("invalid UTF-8", not_text, frame),
        ("truncated", truncated, frame),
        ("a false length", false_length, frame),
        ("a trailing byte", trailing, frame),
        ("an empty message", Vec::new(), refusal("INVALID_ARGUMENT", "resource", "at least one character")),
    ] {
        let before = server.state().await;
        server.assert_refused(case, &send_raw(&server, acquire, bytes).await, expected, &before).await;
    }
    for (case, bytes) in [
        ("one byte above the message limit", MAX_REQUEST_BYTES + 1),
        ("one byte above the transport limit", MAX_TRANSPORT_BYTES + 1),
    ] {
        let before = server.state().await;
        let problem = send_raw(&server, acquire, vec![0x0a; bytes]).await;
        server.assert_refused(case, &problem, refusal("RESOURCE_EXHAUSTED", "", "send "), &before).await;
        assert_eq!((problem.limit.as_str(), problem.max), ("message_bytes", Some(MAX_REQUEST_BYTES as u64)), "{case}");
    }
    for method in ["/leasehold.v1.Leasehold/Steal", "/leasehold.v9.Leasehold/Acquire"] {
        let before = server.state().await;
        let problem = send_raw(&server, method, Vec::new()).await;
        server.assert_refused(method, &problem, refusal("UNSUPPORTED_VERSION", "method", "versions"), &before).await;
    }
    server.handle.stop().await;
}

/// An encoded acquire.
fn encoded_acquire(resource: &str) -> Vec<u8> {
    prost::Message::encode_to_vec(&acquire(resource, "w"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_field_of_a_later_version_is_ignored() {
    let server = start_server().await;
    // Field 1000 with a varint.
    let bytes = [encoded_acquire("jobs/a"), vec![0xc0, 0x3e, 0x07]].concat();
    let mut client = tonic::client::Grpc::new(channel(&server).await);
    client.ready().await.expect("the connection is ready");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/leasehold.v1.Leasehold/Acquire");
    client.unary(Request::new(bytes), path, RawCodec).await.expect("the unknown field is ignored");
    let view = server.client.clone().show(v1::ShowRequest { resource: "jobs/a".into(), min_position: 0 }).await;
    assert_eq!(view.expect("the resource is held").into_inner().held, 1);
    server.handle.stop().await;
}

/// Frames that no gRPC client produces, sent as an HTTP/1 body, which carries the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_frame_is_refused_without_allocating_its_length() {
    let server = start_server().await;
    let message = encoded_acquire("jobs/a");
    let framed = |flag: u8, length: u32| [&[flag][..], &length.to_be_bytes(), &message].concat();
    let length = message.len() as u32;
    let too_large = ("RESOURCE_EXHAUSTED", "");
    let frame = ("FRAME_ERROR", "");
    for (case, body, (code, field)) in [
        ("a claimed length of 4 GiB", framed(0, u32::MAX), too_large),
        ("a truncated head", framed(0, length)[..3].to_vec(), frame),
        ("a truncated message", framed(0, length + 1), frame),
        ("an undeclared compression", framed(1, length), frame),
        ("an unknown flag", framed(7, length), frame),
        ("two messages in a unary call", framed(0, length).repeat(2), frame),
    ] {
        let before = server.state().await;
        let mut http = HttpConnection::connect(server.handle.address).await;
        let head = format!(
            "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/grpc\r\nte: trailers\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        http.send(&[head.as_bytes(), &body].concat()).await.expect("the request is sent");
        let rest = String::from_utf8_lossy(&http.read_to_end().await).into_owned();
        assert!(rest.contains(&format!("leasehold-code: {code}")), "{case}: {rest}");
        server.assert_counted_once(case, (code, field), &before).await;
    }
    server.handle.stop().await;
}
