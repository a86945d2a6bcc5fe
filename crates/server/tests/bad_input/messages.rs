//! gRPC streams that begin or go on wrongly: another version, no hello, nothing asked, too much of it.

use leasehold_wire::problem_from_status;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::transports::{Doors, Refused, Stream, acquire, connect, open, refused};

fn hello(hello: v1::Hello) -> v1::ClientBatch {
    v1::ClientBatch { hello: Some(hello), ..Default::default() }
}

async fn not_welcome(doors: &Doors, what: &str, first: v1::ClientBatch, expected: Refused) -> v1::Problem {
    let before = doors.state().await;
    let problem = match Stream::begin(doors.calls.clone(), first).await {
        Ok(_) => panic!("{what} is welcome"),
        Err(status) => problem_from_status(&status),
    };
    doors.check(what, &problem, expected, &before).await;
    problem
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_begins_with_a_hello_that_is_understood() {
    let doors = open().await;
    let fine = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
    let how = |open| Some(v1::hello::Session::Open(open));
    let version = |protocol| v1::Hello { protocol, session: how(fine.clone()), ..Default::default() };
    for protocol in [0, 2, u32::MAX] {
        let expected = refused("UNSUPPORTED_VERSION", "", "");
        let problem = not_welcome(&doors, "another version", hello(version(protocol)), expected).await;
        assert_eq!((problem.have, problem.want), (Some(protocol), Some(1)));
    }
    let critical = v1::Hello { required_features: vec!["sealed".into()], ..version(1) };
    let short = v1::OpenSession { ttl_ms: 0, ..fine.clone() };
    let resume = |session| {
        let resume = v1::ResumeSession { session, secret: vec![0; 32] };
        hello(v1::Hello { session: Some(v1::hello::Session::Resume(resume)), ..version(1) })
    };
    let stranger = doors.stream_session().await;
    let invalid = |field, says| refused("INVALID_ARGUMENT", field, says);
    for (what, first, expected) in [
        ("sealed", hello(critical), refused("UNSUPPORTED_VERSION", "required_features", "")),
        ("no hello", v1::ClientBatch::default(), invalid("hello", "first message")),
        ("no session", hello(v1::Hello { protocol: 1, ..Default::default() }), invalid("session", "")),
        ("no time", hello(v1::Hello { session: how(short), ..version(1) }), invalid("ttl", "at least 100 ms")),
        ("a session that never was", resume(7 << 32), refused("NOT_FOUND", "", "session not found")),
        ("a guess", resume(stranger), refused("PERMISSION_DENIED", "", "")),
    ] {
        not_welcome(&doors, what, first, expected).await;
    }
    doors.running.stop().await;
}

impl Doors {
    /// A session of somebody else.
    async fn stream_session(&self) -> u64 {
        let open = v1::OpenSession { holder: "other".into(), ttl_ms: 60_000, waits_only: false };
        self.calls.clone().open_session(open).await.expect("a session").into_inner().session
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_asks_nothing_known_is_refused_and_the_stream_goes_on() {
    let mut doors = open().await;
    for (number, ask, field) in [(1, None, "operation"), (0, Some(Operation::Acquire(acquire("a", ""))), "sequence")] {
        let before = doors.state().await;
        let told = doors.stream.ask_as(number, ask).await;
        let Answer::Refused(problem) = told else { panic!("{told:?}") };
        doors.check(field, &problem, refused("INVALID_ARGUMENT", field, ""), &before).await;
    }
    assert!(matches!(doors.stream.ask_as(2, Some(Operation::Acquire(acquire("a", "")))).await, Answer::Granted(_)));
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_makes_no_sense_ends_the_stream_with_a_word() {
    let doors = open().await;
    let renewals = |leases: Vec<u64>, numbers: Vec<u64>| v1::ClientBatch {
        renewals: vec![v1::RenewBatch { sequence: 1, leases, token_numbers: numbers }],
        ..Default::default()
    };
    let uneven = renewals(vec![1, 2], vec![1]);
    let again = hello(v1::Hello { protocol: 1, ..Default::default() });
    let shown = v1::ClientBatch { highest_token: "no token".into(), ..Default::default() };
    for (what, batch, code, field) in [
        ("uneven", uneven, "INVALID_ARGUMENT", "renewals"),
        ("no token", shown, "TOKEN_INVALID", "token"),
        ("a second hello", again, "INVALID_ARGUMENT", "hello"),
    ] {
        let mut stream = Stream::open(connect(doors.running.address).await).await;
        let before = doors.state().await;
        stream.send(batch);
        let goodbye = stream.next().await.expect("a last word").close.expect("a goodbye");
        doors.check(what, &goodbye, refused(code, field, ""), &before).await;
        assert_eq!(stream.next().await, None, "{what}");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_renews_what_its_own_session_holds_and_nothing_else() {
    let mut doors = open().await;
    let others = doors.take("others", 60_000).await;
    let own = match doors.stream.ask(Operation::Acquire(acquire("own", ""))).await {
        Answer::Granted(grant) => grant,
        told => panic!("{told:?}"),
    };
    let batch = v1::RenewBatch {
        sequence: 9,
        leases: vec![own.lease, others.lease, own.lease],
        token_numbers: vec![own.token_number, others.token_number, 0],
    };
    doors.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    let renewed = doors.stream.next().await.expect("a stream").renewals.remove(0);
    assert!(renewed.remaining_ms[0] > 0 && renewed.remaining_ms[1..] == [0, 0], "{renewed:?}");
    let reason: Vec<_> = renewed
        .details
        .iter()
        .map(|other| match &other.outcome {
            Some(v1::renew_detail::Outcome::Refused(reason)) => {
                (other.index, reason.code.as_str(), reason.reason.as_str())
            }
            outcome => panic!("{outcome:?}"),
        })
        .collect();
    assert_eq!(reason, [(1, "NOT_CURRENT", "not_holder"), (2, "NOT_CURRENT", "superseded")]);
    let (_, figures) = doors.http.ask("GET /metrics", "", "").await;
    for reason in ["not_holder", "superseded"] {
        let line = format!("leasehold_renewals_refused_total{{reason=\"{reason}\"}} 1");
        assert!(figures.contains(&line), "{line}: {figures}");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_leases_that_never_were_are_told_one_by_one_and_change_nothing() {
    let mut doors = open().await;
    let before = doors.state().await;
    let leases: Vec<u64> = (1..=8_192_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for sequence in 1..=4 {
        let batch = v1::RenewBatch { sequence, leases: leases.clone(), token_numbers: vec![u64::MAX; 8_192] };
        doors.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    }
    let mut renewed = Vec::new();
    while renewed.len() < 4 {
        let batch = doors.stream.next().await.expect("the stream goes on");
        assert_eq!(batch.close, None);
        renewed.extend(batch.renewals);
    }
    for one in renewed {
        assert_eq!((one.remaining_ms, one.details.len()), (vec![0; 8_192], 8_192));
        for other in one.details {
            let Some(v1::renew_detail::Outcome::Refused(reason)) = other.outcome else { panic!("{other:?}") };
            assert_eq!((reason.code.as_str(), reason.reason.as_str()), ("NOT_CURRENT", "unknown"));
        }
    }
    assert_eq!(doors.state().await, before);
    let (_, figures) = doors.http.ask("GET /metrics", "", "").await;
    let line = format!("leasehold_renewals_refused_total{{reason=\"unknown\"}} {}", 4 * 8_192);
    assert!(figures.contains(&line), "{line}: {figures}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_any_size_is_refused_by_its_bound() {
    let mut doors = open().await;
    let metadata = |bytes| {
        let terms = Some(v1::AcquireOptions { metadata: vec![7; bytes], ..Default::default() });
        Operation::Acquire(v1::Acquire { options: terms, ..acquire("a", "w") })
    };
    let too_much = refused("RESOURCE_EXHAUSTED", "", "4096");
    doors.grpc("a byte too much", &metadata(4_097), too_much).await;
    doors.grpc("as much as a message takes", &metadata(200_000), too_much).await;
    // More than a message may have: the call is refused, and the stream ends with a word.
    let far_too_much = refused("RESOURCE_EXHAUSTED", "", "send less");
    let before = doors.state().await;
    let status = crate::transports::call(&mut doors.calls, metadata(1 << 20)).await.expect("a single call");
    let problem = problem_from_status(&status.expect_err("far too large"));
    doors.check("a call of a mebibyte", &problem, far_too_much, &before).await;
    assert_eq!(problem.limit, "message_bytes");
    let mut stream = Stream::open(connect(doors.running.address).await).await;
    let before = doors.state().await;
    let request = v1::Request { sequence: 1, operation: Some(metadata(1 << 20)) };
    stream.send(v1::ClientBatch { requests: vec![request], lowest_pending: 1, ..Default::default() });
    let goodbye = stream.next().await.expect("a last word").close.expect("a goodbye");
    doors.check("a mebibyte on a stream", &goodbye, far_too_much, &before).await;
    assert_eq!(goodbye.limit, "message_bytes");
    assert_eq!(stream.next().await, None);
    doors.running.stop().await;
}
