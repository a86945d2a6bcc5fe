//! Invalid messages on session streams: another version, no hello, no operation, too large.

use leasehold_wire::problem_from_status;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;

use crate::test_server::{ExpectedRefusal, TestServer, refusal, start_server};
use crate::transport_clients::{SessionStream, acquire, connect, unary_call};

fn hello_batch(hello: v1::Hello) -> v1::ClientBatch {
    v1::ClientBatch { hello: Some(hello), ..Default::default() }
}

/// Starts a stream, which must be refused.
async fn assert_not_welcome(
    server: &TestServer,
    case: &str,
    first: v1::ClientBatch,
    expected: ExpectedRefusal,
) -> v1::Problem {
    let before = server.state().await;
    let problem = match SessionStream::start(server.client.clone(), first).await {
        Ok(_) => panic!("{case} is accepted"),
        Err(status) => problem_from_status(&status),
    };
    server.assert_refused(case, &problem, expected, &before).await;
    problem
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_valid_hello_is_refused() {
    let server = start_server().await;
    let open_session = v1::OpenSession { holder: "w".into(), ttl_ms: 60_000, waits_only: false };
    let session = |open| Some(v1::hello::Session::Open(open));
    let version = |protocol| v1::Hello { protocol, session: session(open_session.clone()), ..Default::default() };
    for protocol in [0, 2, u32::MAX] {
        let expected = refusal("UNSUPPORTED_VERSION", "", "");
        let problem = assert_not_welcome(&server, "another version", hello_batch(version(protocol)), expected).await;
        assert_eq!((problem.have, problem.want), (Some(protocol), Some(1)));
    }
    let requires_feature = v1::Hello { required_features: vec!["sealed".into()], ..version(1) };
    let zero_ttl = v1::OpenSession { ttl_ms: 0, ..open_session.clone() };
    let resume = |session| {
        let resume = v1::ResumeSession { session, secret: vec![0; 32] };
        hello_batch(v1::Hello { session: Some(v1::hello::Session::Resume(resume)), ..version(1) })
    };
    let foreign_session = server.open_foreign_session().await;
    let invalid = |field, message| refusal("INVALID_ARGUMENT", field, message);
    for (case, first, expected) in [
        (
            "an unknown required feature",
            hello_batch(requires_feature),
            refusal("UNSUPPORTED_VERSION", "required_features", ""),
        ),
        ("no hello", v1::ClientBatch::default(), invalid("hello", "first message")),
        ("no session", hello_batch(v1::Hello { protocol: 1, ..Default::default() }), invalid("session", "")),
        (
            "a zero ttl",
            hello_batch(v1::Hello { session: session(zero_ttl), ..version(1) }),
            invalid("ttl", "the cluster allows 100ms to"),
        ),
        ("an unknown session", resume(7 << 32), refusal("NOT_FOUND", "", "open a new session")),
        ("a wrong secret", resume(foreign_session), refusal("PERMISSION_DENIED", "", "")),
    ] {
        assert_not_welcome(&server, case, first, expected).await;
    }
    server.handle.stop().await;
}

impl TestServer {
    /// Opens a session of another holder.
    async fn open_foreign_session(&self) -> u64 {
        let open = v1::OpenSession { holder: "other".into(), ttl_ms: 60_000, waits_only: false };
        self.client.clone().open_session(open).await.expect("the session opens").into_inner().session
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_operation_or_sequence_is_refused_and_the_stream_stays_open() {
    let mut server = start_server().await;
    for (sequence, operation, field) in
        [(1, None, "operation"), (0, Some(Operation::Acquire(acquire("a", ""))), "sequence")]
    {
        let before = server.state().await;
        let answer = server.stream.request_with_sequence(sequence, operation).await;
        let Answer::Refused(problem) = answer else { panic!("{answer:?}") };
        server.assert_refused(field, &problem, refusal("INVALID_ARGUMENT", field, ""), &before).await;
    }
    assert!(matches!(
        server.stream.request_with_sequence(2, Some(Operation::Acquire(acquire("a", "")))).await,
        Answer::Granted(_)
    ));
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_batch_closes_the_stream_with_a_reason() {
    let server = start_server().await;
    let renewals = |leases: Vec<u64>, numbers: Vec<u64>| v1::ClientBatch {
        renewals: vec![v1::RenewBatch { sequence: 1, leases, token_numbers: numbers }],
        ..Default::default()
    };
    let uneven = renewals(vec![1, 2], vec![1]);
    let second_hello = hello_batch(v1::Hello { protocol: 1, ..Default::default() });
    let invalid_token = v1::ClientBatch { highest_token: "no token".into(), ..Default::default() };
    for (case, batch, code, field) in [
        ("renewals of uneven length", uneven, "INVALID_ARGUMENT", "renewals"),
        ("an invalid token", invalid_token, "TOKEN_INVALID", "token"),
        ("a second hello", second_hello, "INVALID_ARGUMENT", "hello"),
    ] {
        let mut stream = SessionStream::open(connect(server.handle.address).await).await;
        let before = server.state().await;
        stream.send(batch);
        let close = stream.next().await.expect("a last message").close.expect("a reason");
        server.assert_refused(case, &close, refusal(code, field, ""), &before).await;
        assert_eq!(stream.next().await, None, "{case}");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_renews_only_leases_of_its_own_session() {
    let mut server = start_server().await;
    let others = server.acquire_lease("others", 60_000).await;
    let own = match server.stream.request(Operation::Acquire(acquire("own", ""))).await {
        Answer::Granted(grant) => grant,
        answer => panic!("{answer:?}"),
    };
    let batch = v1::RenewBatch {
        sequence: 9,
        leases: vec![own.lease, others.lease, own.lease],
        token_numbers: vec![own.token_number, others.token_number, 0],
    };
    server.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    let renewed = server.stream.next().await.expect("the stream is open").renewals.remove(0);
    assert!(renewed.remaining_ms[0] > 0 && renewed.remaining_ms[1..] == [0, 0], "{renewed:?}");
    let reasons: Vec<_> = renewed
        .details
        .iter()
        .map(|detail| match &detail.outcome {
            Some(v1::renew_detail::Outcome::Refused(reason)) => {
                (detail.index, reason.code.as_str(), reason.reason.as_str())
            }
            outcome => panic!("{outcome:?}"),
        })
        .collect();
    assert_eq!(reasons, [(1, "NOT_CURRENT", "not_holder"), (2, "NOT_CURRENT", "superseded")]);
    let (_, metrics) = server.http.request("GET /metrics", "", "").await;
    for reason in ["not_holder", "superseded"] {
        let line = format!("leasehold_renewals_refused_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let (_, metrics) = server.http.request("GET /metrics", "", "").await;
    let counted = r#"leasehold_request_seconds_count{operation="renew_batch",code="OK"} 1"#;
    assert!(metrics.contains(counted), "a batch counts as one request: {metrics}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_unknown_leases_are_refused_one_by_one_and_change_nothing() {
    let mut server = start_server().await;
    let before = server.state().await;
    let leases: Vec<u64> = (1..=8_192_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for sequence in 1..=4 {
        let batch = v1::RenewBatch { sequence, leases: leases.clone(), token_numbers: vec![u64::MAX; 8_192] };
        server.stream.send(v1::ClientBatch { renewals: vec![batch], ..Default::default() });
    }
    let mut renewed = Vec::new();
    while renewed.len() < 4 {
        let batch = server.stream.next().await.expect("the stream is open");
        assert_eq!(batch.close, None);
        renewed.extend(batch.renewals);
    }
    for batch in renewed {
        assert_eq!((batch.remaining_ms, batch.details.len()), (vec![0; 8_192], 8_192));
        for detail in batch.details {
            let Some(v1::renew_detail::Outcome::Refused(reason)) = detail.outcome else { panic!("{detail:?}") };
            assert_eq!((reason.code.as_str(), reason.reason.as_str()), ("NOT_CURRENT", "unknown"));
        }
    }
    assert_eq!(server.state().await, before);
    let (_, metrics) = server.http.request("GET /metrics", "", "").await;
    let line = format!("leasehold_renewals_refused_total{{reason=\"unknown\"}} {}", 4 * 8_192);
    assert!(metrics.contains(&line), "{line}: {metrics}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_above_its_limit_is_refused_at_any_size() {
    let mut server = start_server().await;
    let metadata = |bytes| {
        let options = Some(v1::AcquireOptions { metadata: vec![7; bytes], ..Default::default() });
        Operation::Acquire(v1::Acquire { options, ..acquire("a", "w") })
    };
    let above_metadata_limit = refusal("RESOURCE_EXHAUSTED", "", "4096");
    server.grpc_refuses("one byte above the limit", &metadata(4_097), above_metadata_limit).await;
    server.grpc_refuses("just below the message limit", &metadata(200_000), above_metadata_limit).await;
    // Above the message limit: the unary call is refused, and the stream is closed with a reason.
    let above_message_limit = refusal("RESOURCE_EXHAUSTED", "", "send less");
    let before = server.state().await;
    let result = unary_call(&mut server.client, metadata(1 << 20)).await.expect("acquire is a unary call");
    let problem = problem_from_status(&result.expect_err("the message is too large"));
    server.assert_refused("a unary call of 1 MiB", &problem, above_message_limit, &before).await;
    assert_eq!(problem.limit, "message_bytes");
    let mut stream = SessionStream::open(connect(server.handle.address).await).await;
    let before = server.state().await;
    let request = v1::Request { sequence: 1, operation: Some(metadata(1 << 20)), alone: None, traceparent: None };
    stream.send(v1::ClientBatch { requests: vec![request], lowest_pending: 1, ..Default::default() });
    let close = stream.next().await.expect("a last message").close.expect("a reason");
    server.assert_refused("1 MiB on a stream", &close, above_message_limit, &before).await;
    assert_eq!(close.limit, "message_bytes");
    assert_eq!(stream.next().await, None);
    server.handle.stop().await;
}
