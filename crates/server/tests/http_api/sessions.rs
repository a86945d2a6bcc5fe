//! Sessions of a client without a stream: the digest of its leases, reconciling, withdrawn waits, and events.

use serde_json::{Value, json};

use crate::api_client::{ApiClient, digest, token};
use crate::event_stream_reader::EventStreamReader;
use crate::transport_clients::{HttpConnection, with_timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_says_whether_the_server_holds_the_same_leases() {
    let mut client = ApiClient::start().await;
    let session = client.open_session("w1").await;
    let renew = format!("POST /v1/sessions/{}:renew", session.id);
    let plain = client.ok(&renew, &session.secret, json!({})).await;
    assert_eq!(plain["mismatch"], false, "{plain}");
    let (a, b) = (client.acquire_in(&session, "a").await, client.acquire_in(&session, "b").await);
    for (count, digest, mismatch) in [
        (2, digest(&[&a, &b]), false),
        (2, digest(&[&b, &a]), false),
        (1, digest(&[&a]), true),
        (2, digest(&[&a]), true),
        (1, digest(&[&a, &b]), true),
        (0, "0".to_owned(), true),
    ] {
        let held = json!({ "held": { "count": count, "digest": digest } });
        let renewed = client.ok(&renew, &session.secret, held.clone()).await;
        assert_eq!(
            (&renewed["mismatch"], &renewed["session"]),
            (&mismatch.into(), &session.id.clone().into()),
            "{held}"
        );
    }
    client.ok("POST /v1/leases/a:release", &token(&a), json!({})).await;
    let held = json!({ "held": { "count": 2, "digest": digest(&[&a, &b]) } });
    assert_eq!(client.ok(&renew, &session.secret, held).await["mismatch"], true, "a lease was released");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leases_of_a_session_are_listed_in_pages() {
    let mut client = ApiClient::start().await;
    let (session, other) = (client.open_session("w1").await, client.open_session("w2").await);
    let mut numbers = Vec::new();
    for at in 0..5 {
        numbers.push(client.acquire_in(&session, &format!("jobs/{at}")).await["token_number"].clone());
        client.acquire_in(&other, &format!("other/{at}")).await;
    }
    let (mut cursor, mut listed) = (String::new(), Vec::new());
    for page in 0..3 {
        let path = format!("GET /v1/sessions/{}/leases?limit=2&cursor={cursor}", session.id);
        let reply = client.ok(&path, &session.secret, Value::Null).await;
        let leases = reply["leases"].as_array().expect("a list");
        assert_eq!(leases.len(), if page < 2 { 2 } else { 1 }, "{reply}");
        listed.extend(leases.iter().map(|lease| lease["token_number"].clone()));
        assert!(leases.iter().all(|lease| lease["resource"].as_str().is_some_and(|name| name.starts_with("jobs/"))));
        assert!(leases.iter().all(|lease| lease["remaining_ms"].as_u64().is_some_and(|ms| ms > 0)), "{reply}");
        assert!(leases.iter().all(|lease| lease.get("token").is_none()), "no token text is listed: {reply}");
        match reply["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => assert_eq!(page, 2, "{reply}"),
        }
    }
    assert_eq!(listed, numbers, "every lease once");
    let (code, _) = client.refused("GET /v1/sessions/4000.7/leases", "", Value::Null).await;
    assert_eq!(code, "NOT_FOUND");
    client.ok(&format!("POST /v1/sessions/{}:close", session.id), &session.secret, json!({})).await;
    let gone = format!("GET /v1/sessions/{}/leases", session.id);
    assert_eq!(client.refused(&gone, &session.secret, Value::Null).await.0, "LEASE_LOST");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconciling_ends_what_the_client_does_not_know_within_the_range() {
    let mut client = ApiClient::start().await;
    let session = client.open_session("w1").await;
    let mut leases = Vec::new();
    for name in ["a", "b", "c"] {
        leases.push(client.acquire_in(&session, name).await["lease"].as_str().expect("a text").to_owned());
    }
    let reconcile = format!("POST /v1/sessions/{}:reconcile", session.id);
    // The list need not be sorted.
    let known = json!({ "leases": [leases[2], leases[0]], "from": leases[0], "until": leases[1] });
    let (code, refused) = client.refused(&reconcile, &session.secret, known).await;
    assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"leases".into()), "outside of the range");
    client.ok(&reconcile, &session.secret, json!({ "leases": [leases[0]], "until": leases[1] })).await;
    let list = format!("GET /v1/sessions/{}/leases", session.id);
    assert_eq!(client.ok(&list, &session.secret, Value::Null).await["leases"].as_array().map(Vec::len), Some(3));
    client.ok(&reconcile, &session.secret, json!({ "leases": [leases[2], leases[0]] })).await;
    let left = client.ok(&list, &session.secret, Value::Null).await;
    let names: Vec<_> = left["leases"].as_array().expect("a list").iter().map(|one| one["resource"].clone()).collect();
    assert_eq!(names, ["a", "c"], "{left}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawn_wait_is_answered_and_never_granted() {
    let mut client = ApiClient::start().await;
    let (holder, waiter) = (client.open_session("w1").await, client.open_session("w2").await);
    let held = client.acquire_in(&holder, "a").await;
    let address = client.server.address;
    let headers = format!("{}Idempotency-Key: {}:7\r\n", waiter.secret, waiter.id);
    let body = json!({ "session": waiter.id, "wait": "60s" }).to_string();
    let waiting = tokio::spawn(async move {
        HttpConnection::connect(address).await.request("POST /v1/leases/a:acquire", &headers, &body).await
    });
    let waits = async {
        while client.ok("GET /v1/leases/a", "", Value::Null).await["waiters"] != 1 {
            tokio::task::yield_now().await;
        }
    };
    with_timeout(waits).await;
    let cancel = format!("POST /v1/sessions/{}:cancel", waiter.id);
    assert_eq!(client.refused(&cancel, &waiter.secret, json!({ "sequence": "8" })).await.0, "NOT_FOUND");
    client.ok(&cancel, &waiter.secret, json!({ "sequence": "7" })).await;
    let (status, reply) = waiting.await.expect("the wait ends");
    assert!(status == 409 && reply.contains("CANCELLED"), "{reply}");
    client.ok("POST /v1/leases/a:release", &token(&held), json!({})).await;
    let (code, _) = client.refused("GET /v1/leases/a", "", Value::Null).await;
    assert_eq!(code, "NOT_FOUND", "the withdrawn wait is not granted");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_receives_its_own_events_with_their_positions() {
    let mut client = ApiClient::start().await;
    let (session, other) = (client.open_session("w1").await, client.open_session("w2").await);
    let lease = client.acquire_in(&session, "a").await;
    client.acquire_in(&other, "b").await;
    let path = format!("/v1/sessions/{}/events", session.id);
    let mut events = EventStreamReader::connect(client.server.address, &path, &session.secret).await.expect("accepted");
    client.ok("POST /v1/leases/b:revoke", "", json!({ "comment": "of another session" })).await;
    client.ok("POST /v1/leases/a:handoff", &token(&lease), json!({ "to": "w3", "mode": "gap", "drain": "30s" })).await;
    let draining = events.next().await.expect("the stream is open");
    assert_eq!((draining.name.as_str(), &draining.data["lease"]), ("draining", &lease["lease"]), "{draining:?}");
    assert_eq!(draining.id, draining.data["position"].as_u64(), "the id is the position");
    client.ok("POST /v1/leases/a:revoke", "", json!({ "comment": "of this session" })).await;
    let ended = events.next().await.expect("the stream is open");
    assert_eq!((ended.name.as_str(), &ended.data["reason"]), ("ended", &"operator".into()), "{ended:?}");
    assert!(ended.id > draining.id);
    client.server.stop().await;
    let close = events.next().await.expect("the reason for the end");
    assert_eq!((close.name.as_str(), &close.data["code"]), ("close", &"UNAVAILABLE".into()), "{close:?}");
    assert!(events.next().await.is_none(), "the stream has ended");
}

/// The streams of a session and of a watch are quiet, so that the first that arrives on each is a heartbeat, after ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_of_events_carries_heartbeats() {
    let mut client = ApiClient::start().await;
    let (session, address) = (client.open_session("w1").await, client.server.address);
    let lease = client.acquire_in(&session, "a").await;
    let path = format!("/v1/sessions/{}/events", session.id);
    let mut of_session = EventStreamReader::connect(address, &path, &session.secret).await.expect("accepted");
    let mut of_watch = EventStreamReader::connect(address, "/v1/events?prefix=a", "").await.expect("accepted");
    let (first, second) = tokio::join!(of_session.block(), of_watch.block());
    assert_eq!((first.as_deref(), second.as_deref()), (Some(": heartbeat"), Some(": heartbeat")));
    client.ok("POST /v1/leases/a:revoke", "", json!({ "comment": "to cause an event" })).await;
    for events in [&mut of_session, &mut of_watch] {
        let ended = events.next().await.expect("the stream is open");
        assert_eq!((ended.name.as_str(), &ended.data["lease"]), ("ended", &lease["lease"]), "{ended:?}");
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_listener_replaces_the_earlier_one_and_needs_the_secret() {
    let mut client = ApiClient::start().await;
    let (session, other) = (client.open_session("w1").await, client.open_session("w2").await);
    let lease = client.acquire_in(&session, "a").await;
    let (address, path) = (client.server.address, format!("/v1/sessions/{}/events", session.id));
    for headers in ["", &other.secret] {
        let Err((status, body)) = EventStreamReader::connect(address, &path, headers).await else { panic!("accepted") };
        assert!(status == 403 && body.contains("the session's secret is missing or wrong"), "{status} {body}");
    }
    let mut first = EventStreamReader::connect(address, &path, &session.secret).await.expect("accepted");
    let mut second = EventStreamReader::connect(address, &path, &session.secret).await.expect("accepted");
    let close = first.next().await.expect("the reason for the end");
    assert_eq!((close.name.as_str(), &close.data["code"]), ("close", &"CONFLICT".into()), "{close:?}");
    assert!(first.next().await.is_none());
    client.ok("POST /v1/leases/a:revoke", "", json!({ "comment": "to cause an event" })).await;
    let ended = second.next().await.expect("the stream is open");
    assert_eq!((ended.name.as_str(), &ended.data["lease"]), ("ended", &lease["lease"]));
    client.ok(&format!("POST /v1/sessions/{}:close", session.id), &session.secret, json!({})).await;
    let Err((status, body)) = EventStreamReader::connect(address, &path, &session.secret).await else {
        panic!("accepted")
    };
    assert!(status == 410 && body.contains("LEASE_LOST"), "{status} {body}");
    client.server.stop().await;
}
