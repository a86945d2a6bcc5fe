//! Smoke test of a server on the memory journal, over HTTP.

mod http_client;

use http_client::{field, free_port_config, http};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerHandle, start};

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
