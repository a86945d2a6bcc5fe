//! gRPC messages that are too large, of another version, cut, or none at all.

use leasehold_wire::v1;
use leasehold_wire::{MAX_REQUEST_BYTES, MAX_TRANSPORT_BYTES, METADATA_CODE, problem_from_status};
use prost::bytes::{Buf, BufMut};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::transports::{Doors, Http, acquire, open, refused};

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
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

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

async fn channel(doors: &Doors) -> tonic::transport::Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", doors.running.address));
    endpoint.expect("an address").connect().await.expect("the server listens")
}

/// Sends bytes to a method.
async fn raw(doors: &Doors, method: &'static str, bytes: Vec<u8>) -> v1::Problem {
    let mut grpc = tonic::client::Grpc::new(channel(doors).await);
    grpc.ready().await.expect("connected");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(method);
    let told = grpc.unary(Request::new(bytes), path, Raw).await;
    let status = told.expect_err("no such message");
    assert!(status.metadata().contains_key(METADATA_CODE), "a typed refusal: {status:?}");
    problem_from_status(&status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_refused_before_they_are_unfolded() {
    let doors = open().await;
    let acquire = "/leasehold.v1.Leasehold/Acquire";
    let not_text = vec![0x0a, 0x01, 0xff];
    let cut = vec![0x0a, 0x7f, b'a'];
    let length_lies = vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let trailing = [bytes_of("jobs/a"), vec![0x0a]].concat();
    let frame = refused("FRAME_ERROR", "", "not a valid message");
    for (what, bytes, expected) in [
        ("no text", not_text, frame),
        ("cut short", cut, frame),
        ("a length that lies", length_lies, frame),
        ("a byte behind the end", trailing, frame),
        ("nothing at all", Vec::new(), refused("INVALID_ARGUMENT", "resource", "at least one character")),
    ] {
        let before = doors.state().await;
        doors.check(what, &raw(&doors, acquire, bytes).await, expected, &before).await;
    }
    for (what, bytes) in [("a little too large", MAX_REQUEST_BYTES + 1), ("far too large", MAX_TRANSPORT_BYTES + 1)] {
        let before = doors.state().await;
        let problem = raw(&doors, acquire, vec![0x0a; bytes]).await;
        doors.check(what, &problem, refused("RESOURCE_EXHAUSTED", "", "send "), &before).await;
        assert_eq!((problem.limit.as_str(), problem.max), ("message_bytes", Some(MAX_REQUEST_BYTES as u64)), "{what}");
    }
    for method in ["/leasehold.v1.Leasehold/Steal", "/leasehold.v9.Leasehold/Acquire"] {
        let before = doors.state().await;
        let problem = raw(&doors, method, Vec::new()).await;
        doors.check(method, &problem, refused("UNSUPPORTED_VERSION", "method", "versions"), &before).await;
    }
    doors.running.stop().await;
}

/// An acquire as bytes.
fn bytes_of(resource: &str) -> Vec<u8> {
    prost::Message::encode_to_vec(&acquire(resource, "w"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_of_a_later_version_is_passed_over() {
    let doors = open().await;
    // Field 1000, a number.
    let bytes = [bytes_of("jobs/a"), vec![0xc0, 0x3e, 0x07]].concat();
    let mut calls = tonic::client::Grpc::new(channel(&doors).await);
    calls.ready().await.expect("connected");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/leasehold.v1.Leasehold/Acquire");
    calls.unary(Request::new(bytes), path, Raw).await.expect("it is understood without it");
    let view = doors.calls.clone().show(v1::ShowRequest { resource: "jobs/a".into(), min_position: 0 }).await;
    assert_eq!(view.expect("it is held").into_inner().held, 1);
    doors.running.stop().await;
}

/// Frames that no client makes, as a body of HTTP/1, which carries the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_not_one_is_refused_before_anything_is_made_for_it() {
    let doors = open().await;
    let message = bytes_of("jobs/a");
    let framed = |flag: u8, length: u32| [&[flag][..], &length.to_be_bytes(), &message].concat();
    let length = message.len() as u32;
    let large = ("RESOURCE_EXHAUSTED", "");
    let frame = ("FRAME_ERROR", "");
    for (what, body, (code, field)) in [
        ("four gigabytes, it says", framed(0, u32::MAX), large),
        ("a head that is cut", framed(0, length)[..3].to_vec(), frame),
        ("a message that is cut", framed(0, length + 1), frame),
        ("squeezed, in no way that was agreed on", framed(1, length), frame),
        ("no flag that there is", framed(7, length), frame),
        ("two messages for one call", framed(0, length).repeat(2), frame),
    ] {
        let before = doors.state().await;
        let mut http = Http::connect(doors.running.address).await;
        let head = format!(
            "POST /leasehold.v1.Leasehold/Acquire HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             content-type: application/grpc\r\nte: trailers\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        http.send(&[head.as_bytes(), &body].concat()).await.expect("it is sent");
        let rest = String::from_utf8_lossy(&http.rest().await).into_owned();
        assert!(rest.contains(&format!("leasehold-code: {code}")), "{what}: {rest}");
        doors.check_counted(what, (code, field), &before).await;
    }
    doors.running.stop().await;
}
