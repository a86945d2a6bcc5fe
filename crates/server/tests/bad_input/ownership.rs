//! Leases that are over, somebody else's or never were; tokens that are not theirs; requests that came before.

use leasehold_core::token::{Cluster, Token};
use leasehold_wire::headers::IDEMPOTENCY_KEY;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{problem_from_status, session_id};
use tonic::Request;

use crate::transports::{Doors, Refused, acquire, held, open, refused};

fn renew(resource: &str, token: &str) -> Operation {
    Operation::Renew(v1::Renew { lease: Some(held(resource, token)), ttl_ms: None, progress: None })
}

/// Renewing, confirming and giving back are refused alike.
async fn not_yours(doors: &mut Doors, what: &str, resource: &str, token: &str, expected: Refused) {
    let shown = format!(r#"{{"token":"{token}"}}"#);
    let path = |verb| format!("POST /v1/leases/{resource}:{verb}");
    doors.all(what, &renew(resource, token), (&path("renew"), &shown), expected).await;
    doors.all(what, &Operation::Check(held(resource, token)), (&path("check"), &shown), expected).await;
    doors.all(what, &Operation::Release(held(resource, token)), (&path("release"), &shown), expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_over_stays_over_for_whoever_had_it() {
    let mut doors = open().await;
    let released = doors.take("released", 60_000).await;
    doors.calls.release(held("released", &released.token)).await.expect("given back");
    let expected = refused("LEASE_LOST", "", "released");
    not_yours(&mut doors, "given back", "released", &released.token, expected).await;
    let successor = doors.take("released", 60_000).await;
    not_yours(&mut doors, "given back, and taken by another", "released", &released.token, expected).await;
    let ask = held("released", &successor.token);
    doors.calls.check(ask).await.expect("the successor is untouched");

    let expired = doors.take("expired", 100).await;
    while doors.calls.acquire(acquire("expired", "next")).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    not_yours(&mut doors, "run out", "expired", &expired.token, refused("LEASE_LOST", "", "ttl")).await;

    let revoked = doors.take("revoked", 60_000).await;
    let revoke = v1::Revoke {
        selector: Some(v1::revoke::Selector::Resource("revoked".into())),
        reason: v1::EndReason::Operator.into(),
        comment: "for the test".into(),
        grace_ms: 0,
    };
    doors.calls.revoke(revoke).await.expect("taken away");
    let expected = refused("LEASE_LOST", "", "only with the operator's consent");
    not_yours(&mut doors, "taken away", "revoked", &revoked.token, expected).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_the_leases_opens_nothing() {
    let mut doors = open().await;
    let grant = doors.take("jobs/a", 60_000).await;
    let token = Token::parse(&grant.token).expect("a token");
    let number = |number: u64| leasehold_core::token::Number::new(number).expect("a number");
    let lower = Token { number: number(grant.token_number - 1), ..token }.to_string();
    let foreign = Token { cluster: Cluster(*b"elsewher"), ..token }.to_string();
    let other = Token { resource: leasehold_core::name::resource_hash("jobs/b"), ..token }.to_string();
    let mut broken = grant.token.clone();
    let last = broken.pop().expect("a character");
    broken.push(if last == '0' { '1' } else { '0' });
    let table: [(&str, &str, Refused); 8] = [
        ("a lower number", &lower, refused("NOT_CURRENT", "", "newer token")),
        ("another cluster's", &foreign, refused("WRONG_CLUSTER", "token", "cluster")),
        ("another resource's", &other, refused("TOKEN_INVALID", "token", "resource")),
        ("a changed character", &broken, refused("TOKEN_INVALID", "token", "")),
        ("one character less", &grant.token[..grant.token.len() - 1], refused("TOKEN_INVALID", "token", "")),
        ("a bare number", "42", refused("TOKEN_INVALID", "token", "")),
        ("less than nothing", "-1", refused("TOKEN_INVALID", "token", "")),
        ("none", "", refused("TOKEN_INVALID", "token", "")),
    ];
    for (what, token, expected) in table {
        not_yours(&mut doors, what, "jobs/a", token, expected).await;
    }
    let newer = leasehold_core::token::next_number(
        grant.token_number,
        leasehold_core::time::WallClock(1_900_000_000_000 + 86_400_000),
    );
    let never = Token { number: newer.expect("a number"), ..token }.to_string();
    let seen = format!("lease-token-seen: {never}\r\n");
    let shown = format!(r#"{{"token":"{}"}}"#, grant.token);
    let expected = refused("TOKEN_IMPLAUSIBLE", "", "more than a day ahead");
    doors.http("from the far future", "POST /v1/leases/jobs/a:renew", &seen, &shown, expected).await;
    let two = format!("lease-token: {lower}\r\n");
    let expected = refused("INVALID_ARGUMENT", "lease-token", "send only one");
    doors.http("two that differ", "POST /v1/leases/jobs/a:renew", &two, &shown, expected).await;
    let both = v1::LeaseRef { token_number: 7, ..held("jobs/a", &grant.token) };
    doors
        .grpc(
            "a text and another number",
            &Operation::Check(both),
            refused("INVALID_ARGUMENT", "token_number", "two different tokens"),
        )
        .await;
    let bare = |number| v1::LeaseRef { token_number: number, ..held("jobs/a", "") };
    let expected = refused("TOKEN_INVALID", "token", "");
    doors.grpc("a number that is too large", &Operation::Check(bare(1 << 63)), expected).await;
    let unknown = refused("NOT_CURRENT", "", "the lease is unknown");
    doors
        .grpc(
            "a lease that never was",
            &Operation::Check(v1::LeaseRef { token_number: 7, ..held("jobs/never", "") }),
            unknown,
        )
        .await;
    doors.calls.check(held("jobs/a", &grant.token)).await.expect("the holder has lost nothing");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ended_carries_nothing_more() {
    let mut doors = open().await;
    let open = v1::OpenSession { holder: "s".into(), ttl_ms: 60_000, waits_only: false };
    let session = doors.calls.open_session(open).await.expect("a session").into_inner().session;
    doors.calls.close_session(v1::CloseSession { session: Some(session) }).await.expect("closed");
    let id = session_id(session);
    let body = format!(r#"{{"holder":"w","session":"{id}"}}"#);
    let ended = refused("LEASE_LOST", "", "session");
    doors.http("an ended session", "POST /v1/leases/jobs/a:acquire", "", &body, ended).await;
    doors.http("an ended session", &format!("POST /v1/sessions/{id}:renew"), "", "", ended).await;
    let never = refused("NOT_FOUND", "", "session not found");
    doors.http("one that never was", "POST /v1/sessions/77777.0:renew", "", "", never).await;
    let form = refused("INVALID_ARGUMENT", "session", "17.0");
    doors.http("no id", "POST /v1/sessions/seventeen:renew", "", "", form).await;
    let key = format!("idempotency-key: {id}:1\r\n");
    let good = r#"{"holder":"w","ttl":"60s"}"#;
    doors.http("a key of an ended session", "POST /v1/leases/jobs/a:acquire", &key, good, ended).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_names_one_request() {
    let mut doors = open().await;
    let told = doors.stream.ask_as(900, Some(Operation::Acquire(acquire("one", "")))).await;
    assert!(matches!(told, Answer::Granted(_)), "{told:?}");
    let again = doors.stream.ask_as(900, Some(Operation::Acquire(acquire("one", "")))).await;
    assert!(matches!((&told, &again), (Answer::Granted(a), Answer::Granted(b)) if a.token == b.token), "{again:?}");
    let before = doors.state().await;
    let other = doors.stream.ask_as(900, Some(Operation::Acquire(acquire("two", "")))).await;
    let Answer::Refused(problem) = other else { panic!("{other:?}") };
    doors.check("another body", &problem, refused("CONFLICT", "", "read it before you retry"), &before).await;
    assert_eq!(problem.subject, "request");
    // Given back once, however often that is asked.
    let Answer::Granted(one) = told else { panic!("{told:?}") };
    for _ in 0..2 {
        let released = doors.stream.ask_as(901, Some(Operation::Release(held("one", &one.token)))).await;
        assert!(matches!(released, Answer::Done(_)), "{released:?}");
    }
    let before = doors.state().await;
    let again = doors.stream.ask_as(902, Some(Operation::Release(held("one", &one.token)))).await;
    let Answer::Refused(problem) = again else { panic!("{again:?}") };
    doors.check("given back again", &problem, refused("LEASE_LOST", "", "released"), &before).await;

    let open = v1::OpenSession { holder: "s".into(), ttl_ms: 60_000, waits_only: false };
    let id = session_id(doors.calls.open_session(open).await.expect("a session").into_inner().session);
    let body = format!(r#"{{"holder":"w","ttl":"60s","session":"{id}"}}"#);
    let key = |sequence: u64| format!("idempotency-key: {id}:{sequence}\r\n");
    let (status, _) = doors.http.ask("POST /v1/leases/k1:acquire", &key(1_000), &body).await;
    assert_eq!(status, 200);
    let conflict = refused("CONFLICT", "", "read it before you retry");
    doors.http("another body", "POST /v1/leases/k2:acquire", &key(1_000), &body, conflict).await;
    let old = refused("REQUEST_TOO_OLD", "", "use a new request id");
    doors.http("long forgotten", "POST /v1/leases/k2:acquire", &key(5), &body, old).await;
    let form = refused("INVALID_ARGUMENT", "idempotency-key", "17.0:42");
    for wrong in ["abc", "7", "17.0:0", "17.0:-1", "17.0:1e3"] {
        let key = format!("idempotency-key: {wrong}\r\n");
        doors.http(wrong, "POST /v1/leases/k2:acquire", &key, &body, form).await;
        let before = doors.state().await;
        let mut request = Request::new(acquire("k2", "w"));
        request.metadata_mut().insert(IDEMPOTENCY_KEY, wrong.parse().expect("plain text"));
        let problem = problem_from_status(&doors.calls.acquire(request).await.expect_err(wrong));
        doors.check(wrong, &problem, form, &before).await;
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_only_wait_for_itself_or_never_fit_is_told_at_once() {
    let mut doors = open().await;
    let own = doors.stream.ask(Operation::Acquire(acquire("own", ""))).await;
    assert!(matches!(own, Answer::Granted(_)));
    let terms = |reentrant| Some(v1::AcquireOptions { reentrant, wait_ms: 60_000, ..Default::default() });
    let again = |reentrant| Operation::Acquire(v1::Acquire { options: terms(reentrant), ..acquire("own", "") });
    let before = doors.state().await;
    let told = doors.stream.ask(again(false)).await;
    let Answer::Refused(problem) = told else { panic!("{told:?}") };
    doors.check("a wait for oneself", &problem, refused("DEADLOCK", "", "re-entrant"), &before).await;
    assert!(problem.cycle.is_some_and(|cycle| cycle.length == 1));
    for _ in 0..255 {
        assert!(matches!(doors.stream.ask(again(true)).await, Answer::Granted(_)));
    }
    let before = doors.state().await;
    let told = doors.stream.ask(again(true)).await;
    let Answer::Refused(problem) = told else { panic!("{told:?}") };
    doors.check("too deep", &problem, refused("RESOURCE_EXHAUSTED", "", "255"), &before).await;
    assert_eq!((problem.limit.as_str(), problem.max), ("depth", Some(255)));

    let all = |names: Vec<String>| {
        let wanted = names.into_iter().map(|resource| v1::ResourceAccess { resource, ..Default::default() }).collect();
        Operation::AcquireAll(v1::AcquireAll {
            resources: wanted,
            holder: "w".into(),
            ttl_ms: Some(60_000),
            ..Default::default()
        })
    };
    let many = all((0..129).map(|i| format!("m/{i}")).collect());
    doors.grpc("129 at once", &many, refused("RESOURCE_EXHAUSTED", "", "at most 128, requested 129")).await;
    let twice = all(vec!["t".into(), "t".into()]);
    doors.grpc("one name twice", &twice, refused("INVALID_ARGUMENT", "resources", "each resource once")).await;
    let one_busy = all(vec!["free/a".into(), "own".into()]);
    let told = doors.calls.acquire_all(match one_busy {
        Operation::AcquireAll(ask) => ask,
        _ => unreachable!("just made"),
    });
    assert_eq!(problem_from_status(&told.await.expect_err("own is held")).code, "BUSY");
    let (status, _) = doors.http.ask("GET /v1/leases/free/a", "", "").await;
    assert_eq!(status, 404, "all or none");
    doors.running.stop().await;
}
