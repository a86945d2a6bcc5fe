//! gRPC messages that are of another version, too large, or none at all; streams that begin or go on wrongly.

use leasehold_wire::v1;
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{ASK_BYTES, MESSAGE_BYTES, METADATA_CODE, from_status};
use prost::bytes::{Buf, BufMut};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::doors::{Calls, Doors, Stream, acquire, connect, open};

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

/// Sends bytes to a method.
async fn raw(doors: &Doors, method: &'static str, bytes: Vec<u8>) -> v1::Problem {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", doors.running.address));
    let channel = channel.expect("an address").connect().await.expect("the server listens");
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("connected");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(method);
    let told = grpc.unary(Request::new(bytes), path, Raw).await;
    let status = told.expect_err("no such message");
    assert!(status.metadata().contains_key(METADATA_CODE), "a typed refusal: {status:?}");
    from_status(&status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_refused_before_they_are_unfolded() {
    let doors = open().await;
    let acquire = "/leasehold.v1.Leasehold/Acquire";
    let not_text = vec![0x0a, 0x01, 0xff];
    let cut = vec![0x0a, 0x7f, b'a'];
    let length_lies = vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f];
    for (what, bytes) in [("no text", not_text), ("cut short", cut), ("a length that lies", length_lies)] {
        assert_eq!(raw(&doors, acquire, bytes).await.code, "FRAME_ERROR", "{what}");
    }
    for (what, bytes) in [("a little too large", ASK_BYTES + 1), ("far too large", MESSAGE_BYTES + 1)] {
        let problem = raw(&doors, acquire, vec![0x0a; bytes]).await;
        assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "message_bytes"), "{what}");
        assert_eq!(problem.max, Some(ASK_BYTES as u64), "{what}");
    }
    for method in ["/leasehold.v1.Leasehold/Steal", "/leasehold.v9.Leasehold/Acquire"] {
        let problem = raw(&doors, method, Vec::new()).await;
        assert_eq!((problem.code.as_str(), problem.field.as_str()), ("UNSUPPORTED_VERSION", "method"), "{method}");
    }
    doors.running.stop().await;
}

fn hello(hello: v1::Hello) -> v1::ClientBatch {
    v1::ClientBatch { hello: Some(hello), ..Default::default() }
}

async fn not_welcome(calls: &Calls, first: v1::ClientBatch) -> v1::Problem {
    match Stream::begin(calls.clone(), first).await {
        Ok(_) => panic!("welcome"),
        Err(status) => from_status(&status),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_begins_with_a_hello_that_is_understood() {
    let doors = open().await;
    let calls = &doors.calls;
    let fine = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
    let how = |open| Some(v1::hello::How::Open(open));
    let version = |protocol| v1::Hello { protocol, how: how(fine.clone()), ..Default::default() };
    for protocol in [0, 2, u32::MAX] {
        let problem = not_welcome(calls, hello(version(protocol))).await;
        assert_eq!(problem.code, "UNSUPPORTED_VERSION");
        assert_eq!((problem.have, problem.want), (Some(protocol), Some(1)));
    }
    let critical = v1::Hello { must_understand: vec!["sealed".into()], ..version(1) };
    let problem = not_welcome(calls, hello(critical)).await;
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("UNSUPPORTED_VERSION", "must_understand"));
    let none = not_welcome(calls, v1::ClientBatch::default()).await;
    assert_eq!((none.code.as_str(), none.field.as_str()), ("INVALID_ARGUMENT", "hello"));
    let neither = not_welcome(calls, hello(v1::Hello { protocol: 1, ..Default::default() })).await;
    assert_eq!((neither.code.as_str(), neither.field.as_str()), ("INVALID_ARGUMENT", "how"));
    let short = v1::OpenSession { ttl_ms: 0, ..fine.clone() };
    let problem = not_welcome(calls, hello(v1::Hello { how: how(short), ..version(1) })).await;
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("INVALID_ARGUMENT", "ttl"));
    let resume = v1::ResumeSession { session: 7 << 32, secret: vec![0; 32] };
    let back = v1::Hello { how: Some(v1::hello::How::Resume(resume)), ..version(1) };
    assert_eq!(not_welcome(calls, hello(back)).await.code, "NOT_FOUND");
    let stranger = doors.stream_session().await;
    let resume = v1::ResumeSession { session: stranger, secret: vec![0; 32] };
    let back = v1::Hello { how: Some(v1::hello::How::Resume(resume)), ..version(1) };
    assert_eq!(not_welcome(calls, hello(back)).await.code, "PERMISSION_DENIED", "the name is not the secret");
    doors.running.stop().await;
}

impl Doors {
    /// A session of somebody else.
    async fn stream_session(&self) -> u64 {
        let open = v1::OpenSession { holder: "other".into(), ttl_ms: 60_000, waits_only: false };
        self.calls.clone().open(open).await.expect("a session").into_inner().session
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_asks_nothing_known_is_refused_and_the_stream_goes_on() {
    let mut doors = open().await;
    let told = doors.stream.ask_as(1, None).await;
    let Answer::Refused(problem) = told else { panic!("{told:?}") };
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("INVALID_ARGUMENT", "ask"));
    let zero = doors.stream.ask_as(0, Some(Ask::Acquire(acquire("a", "")))).await;
    let Answer::Refused(problem) = zero else { panic!("{zero:?}") };
    assert_eq!((problem.code.as_str(), problem.field.as_str()), ("INVALID_ARGUMENT", "sequence"));
    assert!(matches!(doors.stream.ask_as(2, Some(Ask::Acquire(acquire("a", "")))).await, Answer::Granted(_)));
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_makes_no_sense_ends_the_stream_with_a_word() {
    let doors = open().await;
    let renewals = |leases: Vec<u64>, numbers: Vec<u64>| v1::ClientBatch {
        renewals: vec![v1::RenewBatch { sequence: 1, leases, numbers }],
        ..Default::default()
    };
    let uneven = renewals(vec![1, 2], vec![1]);
    let again = hello(v1::Hello { protocol: 1, ..Default::default() });
    let shown = v1::ClientBatch { shown: "no token".into(), ..Default::default() };
    for (what, batch, code, field) in [
        ("uneven", uneven, "INVALID_ARGUMENT", "renewals"),
        ("no token", shown, "TOKEN_INVALID", "token"),
        ("a second hello", again, "INVALID_ARGUMENT", "hello"),
    ] {
        let mut stream = Stream::open(connect(doors.running.address).await).await;
        stream.send(batch);
        let goodbye = stream.next().await.expect("a last word").goodbye.expect("a goodbye");
        assert_eq!((goodbye.code.as_str(), goodbye.field.as_str()), (code, field), "{what}");
        assert_eq!(stream.next().await, None, "{what}");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_renews_what_its_own_session_holds_and_nothing_else() {
    let mut doors = open().await;
    let others = doors.take("others", 60_000).await;
    let own = match doors.stream.ask(Ask::Acquire(acquire("own", ""))).await {
        Answer::Granted(grant) => grant,
        told => panic!("{told:?}"),
    };
    let batch = v1::RenewBatch {
        sequence: 9,
        leases: vec![own.lease, others.lease, own.lease],
        numbers: vec![own.token_number, others.token_number, 0],
    };
    doors.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    let renewed = doors.stream.next().await.expect("a stream").renewed.remove(0);
    assert!(renewed.remaining_ms[0] > 0 && renewed.remaining_ms[1..] == [0, 0], "{renewed:?}");
    let why: Vec<_> = renewed
        .others
        .iter()
        .map(|other| match &other.outcome {
            Some(v1::renewed_other::Outcome::Refused(why)) => (other.index, why.code.as_str(), why.reason.as_str()),
            outcome => panic!("{outcome:?}"),
        })
        .collect();
    assert_eq!(why, [(1, "NOT_CURRENT", "not_holder"), (2, "NOT_CURRENT", "superseded")]);
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_leases_that_never_were_are_told_one_by_one_and_change_nothing() {
    let mut doors = open().await;
    let before = doors.state().await;
    let leases: Vec<u64> = (1..=8_192_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for sequence in 1..=4 {
        let batch = v1::RenewBatch { sequence, leases: leases.clone(), numbers: vec![u64::MAX; 8_192] };
        doors.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    }
    let mut renewed = Vec::new();
    while renewed.len() < 4 {
        let batch = doors.stream.next().await.expect("the stream goes on");
        assert_eq!(batch.goodbye, None);
        renewed.extend(batch.renewed);
    }
    for one in renewed {
        assert_eq!((one.remaining_ms, one.others.len()), (vec![0; 8_192], 8_192));
        for other in one.others {
            let Some(v1::renewed_other::Outcome::Refused(why)) = other.outcome else { panic!("{other:?}") };
            assert_eq!((why.code.as_str(), why.reason.as_str()), ("NOT_CURRENT", "unknown"));
        }
    }
    assert_eq!(doors.state().await, before);
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_any_size_is_refused_by_its_bound() {
    let mut doors = open().await;
    let metadata = |bytes| {
        let terms = Some(v1::Terms { metadata: vec![7; bytes], ..Default::default() });
        Ask::Acquire(v1::Acquire { terms, ..acquire("a", "w") })
    };
    let too_much = crate::doors::refused("RESOURCE_EXHAUSTED", "", "4096");
    doors.grpc("a byte too much", &metadata(4_097), too_much).await;
    doors.grpc("as much as a message takes", &metadata(200_000), too_much).await;
    // More than a message may have: the call is refused, and the stream ends with a word.
    let status = crate::doors::call(&mut doors.calls, metadata(1 << 20)).await.expect("a single call");
    let problem = from_status(&status.expect_err("far too large"));
    assert_eq!((problem.code.as_str(), problem.limit.as_str()), ("RESOURCE_EXHAUSTED", "message_bytes"));
    let mut stream = Stream::open(connect(doors.running.address).await).await;
    let request = v1::Request { sequence: 1, ask: Some(metadata(1 << 20)) };
    stream.send(v1::ClientBatch { requests: vec![request], lowest: 1, ..Default::default() });
    let goodbye = stream.next().await.expect("a last word").goodbye.expect("a goodbye");
    assert_eq!((goodbye.code.as_str(), goodbye.limit.as_str()), ("RESOURCE_EXHAUSTED", "message_bytes"));
    assert_eq!(stream.next().await, None);
    doors.running.stop().await;
}
