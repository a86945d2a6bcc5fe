//! Ended, foreign and unknown leases and sessions, invalid tokens, and reused request ids.

use leasehold_core::token::{Cluster, Token};
use leasehold_wire::headers::IDEMPOTENCY_KEY;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id};
use tonic::Request;

use crate::test_server::{ExpectedRefusal, TestServer, refusal, start_server};
use crate::transport_clients::{acquire, lease_ref};

fn renew(resource: &str, token: &str) -> Operation {
    Operation::Renew(v1::Renew { lease: Some(lease_ref(resource, token)), ttl_ms: None, progress: None })
}

/// Renew, check and release are refused alike.
async fn assert_not_holder(
    server: &mut TestServer,
    case: &str,
    resource: &str,
    token: &str,
    expected: ExpectedRefusal,
) {
    let body = format!(r#"{{"token":"{token}"}}"#);
    let path = |verb| format!("POST /v1/leases/{resource}:{verb}");
    server.refuses(case, &renew(resource, token), (&path("renew"), &body), expected).await;
    server.refuses(case, &Operation::Check(lease_ref(resource, token)), (&path("check"), &body), expected).await;
    server.refuses(case, &Operation::Release(lease_ref(resource, token)), (&path("release"), &body), expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_lease_is_lost_to_its_former_holder() {
    let mut server = start_server().await;
    let released = server.acquire_lease("released", 60_000).await;
    server.client.release(lease_ref("released", &released.token)).await.expect("the holder releases");
    let expected = refusal("LEASE_LOST", "", "released");
    assert_not_holder(&mut server, "released", "released", &released.token, expected).await;
    let successor = server.acquire_lease("released", 60_000).await;
    assert_not_holder(&mut server, "released, then acquired by another holder", "released", &released.token, expected)
        .await;
    let current = lease_ref("released", &successor.token);
    server.client.check(current).await.expect("the successor still holds the lease");

    let expired = server.acquire_lease("expired", 100).await;
    while server.client.acquire(acquire("expired", "next")).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_not_holder(&mut server, "expired", "expired", &expired.token, refusal("LEASE_LOST", "", "ttl")).await;

    let revoked = server.acquire_lease("revoked", 60_000).await;
    let revoke = v1::Revoke {
        selector: Some(v1::revoke::Selector::Resource("revoked".into())),
        reason: v1::EndReason::Operator.into(),
        comment: "for the test".into(),
        grace_ms: 0,
    };
    server.client.revoke(revoke).await.expect("the lease is revoked");
    let expected = refusal("LEASE_LOST", "", "only with the operator's consent");
    assert_not_holder(&mut server, "revoked", "revoked", &revoked.token, expected).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_another_lease_is_refused() {
    let mut server = start_server().await;
    let grant = server.acquire_lease("jobs/a", 60_000).await;
    let token = Token::parse(&grant.token).expect("the token is valid");
    let number = |number: u64| leasehold_core::token::Number::new(number).expect("the number is valid");
    let lower = Token { number: number(grant.token_number - 1), ..token }.to_string();
    let foreign = Token { cluster: Cluster(*b"elsewher"), ..token }.to_string();
    let other = Token { resource: leasehold_core::name::resource_hash("jobs/b"), ..token }.to_string();
    let mut broken = grant.token.clone();
    let last = broken.pop().expect("the token is not empty");
    broken.push(if last == '0' { '1' } else { '0' });
    let table: [(&str, &str, ExpectedRefusal); 8] = [
        ("a lower number", &lower, refusal("NOT_CURRENT", "", "newer token")),
        ("of another cluster", &foreign, refusal("WRONG_CLUSTER", "token", "cluster")),
        ("of another resource", &other, refusal("TOKEN_INVALID", "token", "resource")),
        ("a changed character", &broken, refusal("TOKEN_INVALID", "token", "")),
        ("a truncated token", &grant.token[..grant.token.len() - 1], refusal("TOKEN_INVALID", "token", "")),
        ("a bare number", "42", refusal("TOKEN_INVALID", "token", "")),
        ("a negative number", "-1", refusal("TOKEN_INVALID", "token", "")),
        ("no token", "", refusal("TOKEN_INVALID", "token", "")),
    ];
    for (case, token, expected) in table {
        assert_not_holder(&mut server, case, "jobs/a", token, expected).await;
    }
    let newer = leasehold_core::token::next_number(
        grant.token_number,
        leasehold_core::time::WallClock(1_900_000_000_000 + 86_400_000),
    );
    let never_issued = Token { number: newer.expect("the number is valid"), ..token }.to_string();
    let seen_header = format!("lease-token-seen: {never_issued}\r\n");
    let body = format!(r#"{{"token":"{}"}}"#, grant.token);
    let expected = refusal("TOKEN_IMPLAUSIBLE", "", "more than a day ahead");
    server
        .http_refuses("a number from the far future", "POST /v1/leases/jobs/a:renew", &seen_header, &body, expected)
        .await;
    let other_token = format!("lease-token: {lower}\r\n");
    let expected = refusal("INVALID_ARGUMENT", "lease-token", "send only one");
    server.http_refuses("two different tokens", "POST /v1/leases/jobs/a:renew", &other_token, &body, expected).await;
    let both = v1::LeaseRef { token_number: 7, ..lease_ref("jobs/a", &grant.token) };
    server
        .grpc_refuses(
            "a token and another number",
            &Operation::Check(both),
            refusal("INVALID_ARGUMENT", "token_number", "two different tokens"),
        )
        .await;
    let by_number = |number| v1::LeaseRef { token_number: number, ..lease_ref("jobs/a", "") };
    let expected = refusal("TOKEN_INVALID", "token", "");
    server.grpc_refuses("a number above the maximum", &Operation::Check(by_number(1 << 63)), expected).await;
    let unknown = refusal("NOT_CURRENT", "", "the lease is unknown");
    server
        .grpc_refuses(
            "an unknown lease",
            &Operation::Check(v1::LeaseRef { token_number: 7, ..lease_ref("jobs/never", "") }),
            unknown,
        )
        .await;
    server.client.check(lease_ref("jobs/a", &grant.token)).await.expect("the holder still holds the lease");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_is_refused() {
    let mut server = start_server().await;
    let open = v1::OpenSession { holder: "s".into(), ttl_ms: 60_000, waits_only: false };
    let session = server.client.open_session(open).await.expect("the session opens").into_inner().session;
    server.client.close_session(v1::CloseSession { session: Some(session) }).await.expect("the session closes");
    let id = session_id(session);
    let body = format!(r#"{{"holder":"w","session":"{id}"}}"#);
    let ended = refusal("LEASE_LOST", "", "session");
    server.http_refuses("an ended session", "POST /v1/leases/jobs/a:acquire", "", &body, ended).await;
    server.http_refuses("an ended session", &format!("POST /v1/sessions/{id}:renew"), "", "", ended).await;
    let unknown = refusal("NOT_FOUND", "", "open a new session");
    server.http_refuses("an unknown session", "POST /v1/sessions/77777.0:renew", "", "", unknown).await;
    let malformed = refusal("INVALID_ARGUMENT", "session", "17.0");
    server.http_refuses("an invalid session id", "POST /v1/sessions/seventeen:renew", "", "", malformed).await;
    let key = format!("idempotency-key: {id}:1\r\n");
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    server
        .http_refuses("an idempotency key of an ended session", "POST /v1/leases/jobs/a:acquire", &key, body, ended)
        .await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_identifies_one_request() {
    let mut server = start_server().await;
    let answer = server.stream.request_with_sequence(900, Some(Operation::Acquire(acquire("one", "")))).await;
    assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    let retry = server.stream.request_with_sequence(900, Some(Operation::Acquire(acquire("one", "")))).await;
    assert!(matches!((&answer, &retry), (Answer::Granted(a), Answer::Granted(b)) if a.token == b.token), "{retry:?}");
    let before = server.state().await;
    let other = server.stream.request_with_sequence(900, Some(Operation::Acquire(acquire("two", "")))).await;
    let Answer::Refused(problem) = other else { panic!("{other:?}") };
    server.assert_refused("another body", &problem, refusal("CONFLICT", "", "use a new request id"), &before).await;
    assert_eq!(problem.subject, "request");
    // A repeated release request is executed once.
    let Answer::Granted(one) = answer else { panic!("{answer:?}") };
    for _ in 0..2 {
        let released =
            server.stream.request_with_sequence(901, Some(Operation::Release(lease_ref("one", &one.token)))).await;
        assert!(matches!(released, Answer::Done(_)), "{released:?}");
    }
    let before = server.state().await;
    let second_release =
        server.stream.request_with_sequence(902, Some(Operation::Release(lease_ref("one", &one.token)))).await;
    let Answer::Refused(problem) = second_release else { panic!("{second_release:?}") };
    server.assert_refused("released again", &problem, refusal("LEASE_LOST", "", "released"), &before).await;

    let open = v1::OpenSession { holder: "s".into(), ttl_ms: 60_000, waits_only: false };
    let id = session_id(server.client.open_session(open).await.expect("the session opens").into_inner().session);
    let body = format!(r#"{{"holder":"w","ttl":"60s","session":"{id}"}}"#);
    let key = |sequence: u64| format!("idempotency-key: {id}:{sequence}\r\n");
    let (status, _) = server.http.request("POST /v1/leases/k1:acquire", &key(1_000), &body).await;
    assert_eq!(status, 200);
    let conflict = refusal("CONFLICT", "", "use a new request id");
    server.http_refuses("another body", "POST /v1/leases/k2:acquire", &key(1_000), &body, conflict).await;
    let old = refusal("REQUEST_TOO_OLD", "", "use a new request id");
    server
        .http_refuses("a request id that is no longer stored", "POST /v1/leases/k2:acquire", &key(5), &body, old)
        .await;
    let malformed = refusal("INVALID_ARGUMENT", "idempotency-key", "17.0:42");
    for invalid in ["abc", "7", "17.0:0", "17.0:-1", "17.0:1e3"] {
        let key = format!("idempotency-key: {invalid}\r\n");
        server.http_refuses(invalid, "POST /v1/leases/k2:acquire", &key, &body, malformed).await;
        let before = server.state().await;
        let mut request = Request::new(acquire("k2", "w"));
        request.metadata_mut().insert(IDEMPOTENCY_KEY, invalid.parse().expect("the key is ASCII"));
        let problem = problem_from_status(&server.client.acquire(request).await.expect_err(invalid));
        server.assert_refused(invalid, &problem, malformed, &before).await;
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_can_never_be_granted_is_refused_at_once() {
    let mut server = start_server().await;
    let own = server.stream.request(Operation::Acquire(acquire("own", ""))).await;
    assert!(matches!(own, Answer::Granted(_)));
    let options = |reentrant| Some(v1::AcquireOptions { reentrant, wait_ms: 60_000, ..Default::default() });
    let reacquire = |reentrant| Operation::Acquire(v1::Acquire { options: options(reentrant), ..acquire("own", "") });
    let before = server.state().await;
    let answer = server.stream.request(reacquire(false)).await;
    let Answer::Refused(problem) = answer else { panic!("{answer:?}") };
    server.assert_refused("a wait for its own lease", &problem, refusal("DEADLOCK", "", "re-entrant"), &before).await;
    assert!(problem.cycle.is_some_and(|cycle| cycle.length == 1));
    for _ in 0..255 {
        assert!(matches!(server.stream.request(reacquire(true)).await, Answer::Granted(_)));
    }
    let before = server.state().await;
    let answer = server.stream.request(reacquire(true)).await;
    let Answer::Refused(problem) = answer else { panic!("{answer:?}") };
    server
        .assert_refused("a re-entry above the limit", &problem, refusal("RESOURCE_EXHAUSTED", "", "255"), &before)
        .await;
    assert_eq!((problem.limit.as_str(), problem.max), ("depth", Some(255)));

    let all = |names: Vec<String>| {
        let resources =
            names.into_iter().map(|resource| v1::ResourceAccess { resource, ..Default::default() }).collect();
        Operation::AcquireAll(v1::AcquireAll {
            resources,
            holder: "w".into(),
            ttl_ms: Some(60_000),
            ..Default::default()
        })
    };
    let many = all((0..129).map(|i| format!("m/{i}")).collect());
    server.grpc_refuses("129 resources", &many, refusal("RESOURCE_EXHAUSTED", "", "at most 128, requested 129")).await;
    let twice = all(vec!["t".into(), "t".into()]);
    server
        .grpc_refuses("a repeated resource", &twice, refusal("INVALID_ARGUMENT", "resources", "each resource once"))
        .await;
    let Operation::AcquireAll(one_busy) = all(vec!["free/a".into(), "own".into()]) else { unreachable!("just made") };
    let status = server.client.acquire_all(one_busy).await.expect_err("own is held");
    assert_eq!(problem_from_status(&status).code, "BUSY");
    let (status, _) = server.http.request("GET /v1/leases/free/a", "", "").await;
    assert_eq!(status, 404, "nothing was granted");
    server.handle.stop().await;
}
