//! Queues over HTTP: send, receive with a wait, acknowledge, return, extend, and dead letters.

use serde_json::{Value, json};

use crate::api_client::ApiClient;
use crate::transport_clients::{HttpConnection, with_timeout};

const RECEIVE: &str = "POST /v1/queues/mail/out:receive";

fn deliveries(reply: &Value) -> &[Value] {
    reply["deliveries"].as_array().expect("a list")
}

fn receipt(delivery: &Value) -> Value {
    json!({ "item": delivery["item"], "receipt": delivery["receipt"] })
}

async fn send(client: &mut ApiClient, body: Value) -> String {
    let sent = client.ok("POST /v1/queues/mail/out:send", "", body).await;
    sent["item"].as_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_received_once_and_done_when_it_is_acknowledged() {
    let mut client = ApiClient::start().await;
    let text = send(&mut client, json!({ "body": "grüße" })).await;
    let bytes = send(&mut client, json!({ "body_base64": "/wA=" })).await;
    let all = json!({ "holder": "w1", "visibility": "30s", "limit": 10 });
    let received = client.ok(RECEIVE, "", all.clone()).await;
    let [first, second] = deliveries(&received) else { panic!("{received}") };
    assert_eq!((&first["item"], &first["body"]), (&json!(text), &json!("grüße")), "{received}");
    assert_eq!((&second["item"], &second["body_base64"]), (&json!(bytes), &json!("/wA=")), "{received}");
    assert!(second.get("body").is_none(), "not text: {received}");
    assert_eq!(first["attempt"], 1);
    assert!(first["token"].as_str().is_some_and(|token| token.starts_with("lh1-")), "{received}");
    assert!(first["receipt"].as_str() < second["receipt"].as_str() && first["remaining_ms"].as_u64() > Some(20_000));
    assert_eq!(deliveries(&client.ok(RECEIVE, "", all.clone()).await).len(), 0, "both are in flight");
    client.ok("POST /v1/queues/mail/out:ack", "", receipt(first)).await;
    let (code, _) = client.refused("POST /v1/queues/mail/out:ack", "", receipt(first)).await;
    assert_eq!(code, "NOT_FOUND", "it is done");
    let mut longer = receipt(second);
    longer["visibility"] = json!("90s");
    let extended = client.ok("POST /v1/queues/mail/out:extend", "", longer).await;
    assert!(extended["remaining_ms"].as_u64() > Some(60_000), "{extended}");
    assert_eq!(client.ok("POST /v1/queues/mail/out:nack", "", receipt(second)).await, json!({ "dead": false }));
    let again = client.ok(RECEIVE, "", all).await;
    let [again] = deliveries(&again) else { panic!("{again}") };
    assert_eq!((&again["item"], &again["attempt"]), (&json!(bytes), &json!(2)));
    assert_ne!(again["receipt"], second["receipt"]);
    let (code, _) = client.refused("POST /v1/queues/mail/out:ack", "", receipt(second)).await;
    assert_eq!(code, "STALE_TOKEN", "the earlier receipt is over");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_attempts_left_is_a_dead_letter_until_it_is_redriven_or_dropped() {
    let mut client = ApiClient::start().await;
    for body in ["a", "b"] {
        send(&mut client, json!({ "body": body, "max_attempts": 1 })).await;
    }
    let received = client.ok(RECEIVE, "", json!({ "holder": "w", "visibility": "30s", "limit": 2 })).await;
    for delivery in deliveries(&received) {
        assert_eq!(client.ok("POST /v1/queues/mail/out:nack", "", receipt(delivery)).await, json!({ "dead": true }));
    }
    let view = client.ok("GET /v1/queues/mail/out", "", Value::Null).await;
    assert_eq!((&view["dead"], &view["ready"], &view["in_flight"]), (&json!(2), &json!(0), &json!(0)), "{view}");
    let letters = view["dead_letters"].as_array().expect("a list").clone();
    assert_eq!((&letters[0]["body"], &letters[0]["attempts"]), (&json!("a"), &json!(1)), "{view}");
    let next = format!("GET /v1/queues/mail/out?limit=1&after={}", letters[0]["item"].as_str().expect("a text"));
    let page = client.ok(&next, "", Value::Null).await;
    assert_eq!(page["dead_letters"][0]["body"], "b", "{page}");
    client.ok("POST /v1/queues/mail/out:redrive", "", json!({ "item": letters[0]["item"] })).await;
    client.ok("POST /v1/queues/mail/out:drop", "", json!({ "item": letters[1]["item"] })).await;
    let view = client.ok("GET /v1/queues/mail/out", "", Value::Null).await;
    assert_eq!((&view["dead"], &view["ready"]), (&json!(0), &json!(1)), "{view}");
    client.server.stop().await;
}

/// Starts a receive that waits, on a connection of its own, and returns once the server has found the queue empty for it.
async fn long_poll(client: &mut ApiClient, body: Value, headers: String) -> tokio::task::JoinHandle<(u16, String)> {
    let address = client.server.address;
    let before = receives(client).await;
    let poll = tokio::spawn(async move {
        HttpConnection::connect(address).await.request(RECEIVE, &headers, &body.to_string()).await
    });
    with_timeout(async {
        while receives(client).await == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    poll
}

/// The number of commands to queues that were answered.
async fn receives(client: &mut ApiClient) -> u64 {
    let mut http = HttpConnection::connect(client.server.address).await;
    let (_, text) = http.request("GET /metrics", "", "").await;
    let lines = text.lines().filter(|line| line.starts_with("leasehold_request_seconds_count{operation=\"delivery\""));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_waits_for_a_message_with_and_without_a_session() {
    let mut client = ApiClient::start().await;
    let session = client.open_session("w1").await;
    let alone = json!({ "holder": "w1", "visibility": "30s", "wait": "60s" });
    let mut inside = alone.clone();
    inside["session"] = json!(session.id);
    for (body, headers) in [(alone, String::new()), (inside, session.secret.clone())] {
        let in_session = body["session"].is_string();
        let poll = long_poll(&mut client, body, headers).await;
        let item = send(&mut client, json!({ "body": "late" })).await;
        let (status, reply) = poll.await.expect("the receive ends");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        assert_eq!(status, 200, "{reply}");
        let [delivery] = deliveries(&reply) else { panic!("{reply}") };
        assert_eq!(delivery["item"], item.as_str(), "{reply}");
        // The delivery outlives the call, and lives with the session if one was named.
        let view = client.ok("GET /v1/queues/mail/out", "", Value::Null).await;
        assert_eq!((&view["in_flight"], &view["ready"]), (&json!(1), &json!(0)), "{view}");
        if in_session {
            client.ok(&format!("POST /v1/sessions/{}:close", session.id), &session.secret, json!({})).await;
            let view = client.ok("GET /v1/queues/mail/out", "", Value::Null).await;
            assert_eq!(
                (&view["in_flight"], &view["ready"]),
                (&json!(0), &json!(1)),
                "it ended with its session: {view}"
            );
        } else {
            client.ok("POST /v1/queues/mail/out:ack", "", receipt(delivery)).await;
        }
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_message_ends_a_wait_when_it_becomes_receivable() {
    let mut client = ApiClient::start().await;
    send(&mut client, json!({ "body": "later", "delay": "300ms" })).await;
    let body = json!({ "holder": "w1", "visibility": "30s", "wait": "60s" });
    let received = client.ok(RECEIVE, "", body).await;
    assert_eq!(deliveries(&received)[0]["body"], "later", "{received}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_long_poll_of_a_session_gets_a_message() {
    let mut client = ApiClient::start().await;
    let session = client.open_session("w1").await;
    let body = json!({ "holder": "w1", "session": session.id, "visibility": "30s", "wait": "60s" });
    let one = long_poll(&mut client, body.clone(), session.secret.clone()).await;
    let two = long_poll(&mut client, body, session.secret.clone()).await;
    send(&mut client, json!({ "body": "a" })).await;
    send(&mut client, json!({ "body": "b" })).await;
    for poll in [one, two] {
        let (status, reply) = with_timeout(poll).await.expect("the receive ends");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        assert_eq!((status, deliveries(&reply).len()), (200, 1), "{reply}");
    }
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_empty_after_its_time_and_with_the_server() {
    let mut client = ApiClient::start().await;
    let short = json!({ "holder": "w1", "visibility": "30s", "wait": "10ms" });
    assert_eq!(deliveries(&client.ok(RECEIVE, "", short).await).len(), 0);
    let long = json!({ "holder": "w1", "visibility": "30s", "wait": "60s" });
    let session = client.open_session("w1").await;
    let keyed = format!("{}Idempotency-Key: {}:1\r\n", session.secret, session.id);
    let (code, refused) = client.refused(RECEIVE, &keyed, long.clone()).await;
    assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"idempotency-key".into()), "{refused}");
    let poll = long_poll(&mut client, long, String::new()).await;
    client.server.stop().await;
    let (status, reply) = with_timeout(poll).await.expect("the receive ends");
    assert!(status == 503 && reply.contains("UNAVAILABLE"), "{status} {reply}");
}
