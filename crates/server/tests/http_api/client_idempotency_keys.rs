//! Idempotency keys that a client makes: a lost reply is resolved by the same body under the same key.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_client::{ApiClient, token};
use crate::transport_clients::{HttpConnection, with_timeout};

const KEY: &str = "Idempotency-Key: 0c7f2c7e-8f9b-4b52-9f2e-6d1a5f0c9c11\r\n";
const OTHER: &str = "Idempotency-Key: 1c7f2c7e-8f9b-4b52-9f2e-6d1a5f0c9c11\r\n";
const ACQUIRE: &str = "POST /v1/leases/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_body_under_the_same_key_gets_the_same_reply() {
    let mut client = ApiClient::start().await;
    let body = json!({ "holder": "w1", "ttl": "60s" });
    let first = client.ok(ACQUIRE, KEY, body.clone()).await;
    let again = client.ok(ACQUIRE, KEY, body.clone()).await;
    for field in ["lease", "token", "token_number", "secret", "holder"] {
        assert_eq!(first[field], again[field], "{field}");
    }
    assert_eq!(client.refused(ACQUIRE, OTHER, body.clone()).await.0, "BUSY", "another key is another request");
    let refused = client.refused(ACQUIRE, OTHER, body.clone()).await.0;
    assert_eq!(refused, "BUSY", "a refusal is repeated too");
    let (code, conflict) = client.refused(ACQUIRE, KEY, json!({ "holder": "w2", "ttl": "60s" })).await;
    assert_eq!((code.as_str(), &conflict["subject"]), ("CONFLICT", &"request".into()), "{conflict}");
    client.ok("POST /v1/leases/a:release", &token(&first), json!({})).await;
    let (code, lost) = client.refused(ACQUIRE, KEY, body.clone()).await;
    assert_eq!((code.as_str(), &lost["state"]), ("LEASE_LOST", &"released".into()), "no second lease: {lost}");
    assert_eq!(client.refused(ACQUIRE, OTHER, body).await.0, "BUSY", "the stored reply, although the lease is free");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_sent_once_under_a_key() {
    let mut client = ApiClient::start().await;
    let body = json!({ "body": "once" });
    let first = client.ok("POST /v1/queues/mail:send", KEY, body.clone()).await;
    assert_eq!(client.ok("POST /v1/queues/mail:send", KEY, body).await, first);
    assert_eq!(client.ok("GET /v1/queues/mail", "", Value::Null).await["ready"], 1);
    let receive = json!({ "holder": "w", "visibility": "30s" });
    let (code, refused) = client.refused("POST /v1/queues/mail:receive", KEY, receive).await;
    assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"idempotency-key".into()), "{refused}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_continues_the_wait_of_a_lost_request() {
    let mut client = ApiClient::start().await;
    let held = client.ok(ACQUIRE, "", json!({ "holder": "w1", "ttl": "60s" })).await;
    let address = client.server.address;
    let body = json!({ "holder": "w2", "ttl": "60s", "wait": "60s" }).to_string();
    let wait = |body: String| async move { HttpConnection::connect(address).await.request(ACQUIRE, KEY, &body).await };
    let lost = tokio::spawn(wait(body.clone()));
    with_timeout(async {
        while client.ok("GET /v1/leases/a", "", Value::Null).await["waiters"] != 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    lost.abort();
    let retry = tokio::spawn(wait(body));
    assert_eq!(client.ok("GET /v1/leases/a", "", Value::Null).await["waiters"], 1, "one wait");
    client.ok("POST /v1/leases/a:release", &token(&held), json!({})).await;
    let (status, granted) = with_timeout(retry).await.expect("the wait ends");
    assert!(status == 200 && granted.contains(r#""holder":"w2""#), "{granted}");
    let view = client.ok("GET /v1/leases/a", "", Value::Null).await;
    assert_eq!((&view["held"], &view["waiters"]), (&json!(1), &json!(0)), "one lease: {view}");
    let session = client.open_session("w3").await;
    let inside = json!({ "session": session.id, "wait": "1s" });
    let (code, refused) = client.refused(ACQUIRE, &format!("{KEY}{}", session.secret), inside).await;
    assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"idempotency-key".into()), "{refused}");
    client.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_too_short_or_like_a_session_key_is_refused() {
    let mut client = ApiClient::start().await;
    for key in ["short", "0123456789abcde", "17.0:99999999999999999999999", &"k".repeat(129)] {
        let header = format!("Idempotency-Key: {key}\r\n");
        let (code, refused) = client.refused(ACQUIRE, &header, json!({ "holder": "w", "ttl": "60s" })).await;
        assert_eq!((code.as_str(), &refused["field"]), ("INVALID_ARGUMENT", &"idempotency-key".into()), "{key}");
    }
    let (code, _) = client.refused("POST /v1/sessions", KEY, json!({ "holder": "w", "ttl": "60s" })).await;
    assert_eq!(code, "INVALID_ARGUMENT", "the secret of a session is only in the first reply");
    client.server.stop().await;
}
