//! Smoke test of a server on the memory journal, over HTTP.

mod http_client;

use http_client::{field, free_port_config, http, http_with};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, ServerHandle, start};

async fn start_server() -> ServerHandle {
    start(Memory::default(), free_port_config()).await.expect("a server starts on a free port")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_acquired_renewed_refused_to_another_holder_and_released() {
    let server = start_server().await;
    let address = server.address;
    let (status, grant) =
        http(address, "POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"30s"}"#).await;
    assert_eq!(status, 200, "{grant}");
    let token = field(&grant, "token");
    assert!(token.starts_with("lh1-"), "{grant}");
    let (status, busy) =
        http(address, "POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w2","ttl":"30s"}"#).await;
    assert_eq!((status, field(&busy, "code")), (423, "BUSY".to_owned()), "{busy}");
    let body = format!(r#"{{"token":"{token}"}}"#);
    let (status, renewed) = http(address, "POST", "/v1/leases/jobs/settle:renew", &body).await;
    assert_eq!(status, 200, "{renewed}");
    let (status, view) = http(address, "GET", "/v1/leases/jobs/settle", "").await;
    assert_eq!(status, 200);
    assert!(!view.contains(&token), "a query returns only the token number: {view}");
    let (status, _) = http(address, "POST", "/v1/leases/jobs/settle:release", &body).await;
    assert_eq!(status, 200);
    let (status, second_release) = http(address, "POST", "/v1/leases/jobs/settle:release", &body).await;
    assert_eq!((status, field(&second_release, "code")), (410, "LEASE_LOST".to_owned()), "{second_release}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_session_is_granted_when_the_holder_releases() {
    let server = start_server().await;
    let address = server.address;
    let (_, grant) = http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"30s"}"#).await;
    let waiter = tokio::spawn(async move {
        http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w2","ttl":"30s","wait":"20s"}"#).await
    });
    // Release only after the waiter is in the queue.
    while http(address, "GET", "/v1/waiters/a", "").await.1 == "[]" {
        tokio::task::yield_now().await;
    }
    let body = format!(r#"{{"token":"{}"}}"#, field(&grant, "token"));
    http(address, "POST", "/v1/leases/a:release", &body).await;
    let (status, granted) = waiter.await.expect("the waiting call does not panic");
    assert_eq!(status, 200, "{granted}");
    assert!(field(&granted, "token_number") > field(&grant, "token_number"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_metrics_are_served() {
    let server = start_server().await;
    let address = server.address;
    assert_eq!(http(address, "GET", "/healthz", "").await.0, 200);
    assert_eq!(http(address, "GET", "/readyz", "").await.0, 200);
    let (status, metrics) = http(address, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("leasehold_leases_held"), "{metrics}");
    let (status, problem) = http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w","ttl":"10"}"#).await;
    assert_eq!((status, field(&problem, "code")), (400, "INVALID_ARGUMENT".to_owned()), "{problem}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_in_a_session_names_its_holder() {
    let server = start_server().await;
    let address = server.address;
    let (_, opened) = http(address, "POST", "/v1/sessions", r#"{"holder":"w1","ttl":"60s"}"#).await;
    let session = field(&opened, "session");
    let (status, own) = http(address, "POST", "/v1/leases/a:acquire", &format!(r#"{{"session":"{session}"}}"#)).await;
    assert_eq!((status, field(&own, "holder")), (200, "w1".to_owned()), "{own}");
    let actor = format!(r#"{{"session":"{session}","holder":"thread-7"}}"#);
    let (status, named) = http(address, "POST", "/v1/leases/b:acquire", &actor).await;
    assert_eq!((status, field(&named, "holder")), (200, "thread-7".to_owned()), "{named}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_acquires_exclusively_gets_its_own_code() {
    let server = start_server().await;
    let address = server.address;
    let (_, opened) = http(address, "POST", "/v1/sessions", r#"{"holder":"w1","ttl":"60s"}"#).await;
    let session = field(&opened, "session");
    let shared = format!(r#"{{"session":"{session}","shared":true}}"#);
    assert_eq!(http(address, "POST", "/v1/leases/a:acquire", &shared).await.0, 200);
    let (status, refused) =
        http(address, "POST", "/v1/leases/a:acquire", &format!(r#"{{"session":"{session}"}}"#)).await;
    assert_eq!((status, field(&refused, "code")), (409, "ACCESS_CHANGE".to_owned()), "{refused}");
    assert_eq!(field(&refused, "reason"), "shared_to_exclusive", "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_alone_does_not_make_a_lease_the_sessions() {
    let server = start_server().await;
    let address = server.address;
    let open = |waits_only: bool| async move {
        let body = format!(r#"{{"holder":"w1","ttl":"60s","waits_only":{waits_only}}}"#);
        field(&http(address, "POST", "/v1/sessions", &body).await.1, "session")
    };
    let (holding, waiting) = (open(false).await, open(true).await);
    let acquire = |path: &'static str, session: &str, sequence: u32, body: &'static str| {
        let header = format!("Idempotency-Key: {session}:{sequence}\r\n");
        async move { http_with(address, "POST", path, &header, body).await }
    };
    // Without a wait, a ttl is required although the key has a session.
    assert_eq!(acquire("/v1/leases/a:acquire", &holding, 1, "{}").await.0, 400);
    let body = r#"{"holder":"w2","ttl":"30s","wait":"10s"}"#;
    let (status, free) = acquire("/v1/leases/a:acquire", &holding, 2, body).await;
    assert_eq!(status, 200, "{free}");
    let (status, refused) = acquire("/v1/leases/a:acquire", &holding, 3, body).await;
    assert_eq!((status, field(&refused, "field")), (400, "wait".to_owned()), "{refused}");
    let (_, view) = http(address, "GET", "/v1/leases/a", "").await;
    assert!(!view.contains(&holding), "the lease has no session: {view}");
    let short = r#"{"holder":"w2","ttl":"30s","wait":"1ms"}"#;
    let (status, timeout) = acquire("/v1/leases/a:acquire", &waiting, 1, short).await;
    assert_eq!((status, field(&timeout, "code")), (408, "TIMEOUT".to_owned()), "it waited: {timeout}");
    let (status, unnamed) = acquire("/v1/leases/a:acquire", &waiting, 2, r#"{"ttl":"30s","wait":"1ms"}"#).await;
    assert_eq!((status, field(&unnamed, "field")), (400, "holder".to_owned()), "{unnamed}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_wait_works_in_a_cluster_with_a_short_longest_ttl() {
    let config = ServerConfig { max_ttl_ms: Some(2_000), ..free_port_config() };
    let server = start(Memory::default(), config).await.expect("a server starts on a free port");
    let address = server.address;
    assert_eq!(http(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"2s"}"#).await.0, 200);
    let wait = r#"{"holder":"w2","ttl":"2s","wait":"60s"}"#;
    let (status, granted) = http(address, "POST", "/v1/leases/a:acquire", wait).await;
    assert_eq!((status, field(&granted, "holder")), (200, "w2".to_owned()), "{granted}");
    server.stop().await;
}
