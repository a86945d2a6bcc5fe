//! A server on the memory journal, asked over its own port: gRPC and HTTP tell the same story.

use std::net::SocketAddr;

use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, ServerHandle, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn server() -> ServerHandle {
    let settings = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
    start(Memory::default(), settings).await.expect("a server on a free port starts")
}

/// One request over a connection of its own: the status and the body.
async fn http(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).await.expect("the server listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the server answers");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn field(body: &str, name: &str) -> String {
    let start = body.find(&format!("\"{name}\":\"")).expect("the field is there") + name.len() + 4;
    body[start..].split('"').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_taken_renewed_refused_to_another_and_given_back_by_curl() {
    let running = server().await;
    let at = running.address;
    let (status, grant) = http(at, "POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w1","ttl":"30s"}"#).await;
    assert_eq!(status, 200, "{grant}");
    let token = field(&grant, "token");
    assert!(token.starts_with("lh1-"), "{grant}");
    let (status, busy) = http(at, "POST", "/v1/leases/jobs/settle:acquire", r#"{"holder":"w2","ttl":"30s"}"#).await;
    assert_eq!((status, field(&busy, "code")), (423, "BUSY".to_owned()), "{busy}");
    let shown = format!(r#"{{"token":"{token}"}}"#);
    let (status, renewed) = http(at, "POST", "/v1/leases/jobs/settle:renew", &shown).await;
    assert_eq!(status, 200, "{renewed}");
    let (status, view) = http(at, "GET", "/v1/leases/jobs/settle", "").await;
    assert_eq!(status, 200);
    assert!(!view.contains(&token), "a look gives the number only: {view}");
    let (status, _) = http(at, "POST", "/v1/leases/jobs/settle:release", &shown).await;
    assert_eq!(status, 200);
    let (status, again) = http(at, "POST", "/v1/leases/jobs/settle:release", &shown).await;
    assert_eq!((status, field(&again, "code")), (410, "LEASE_LOST".to_owned()), "{again}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_session_is_granted_when_the_holder_goes() {
    let running = server().await;
    let at = running.address;
    let (_, grant) = http(at, "POST", "/v1/leases/a:acquire", r#"{"holder":"w1","ttl":"30s"}"#).await;
    let waits = tokio::spawn(async move {
        http(at, "POST", "/v1/leases/a:acquire", r#"{"holder":"w2","ttl":"30s","wait":"20s"}"#).await
    });
    // The waiter is seen in the queue before the lease is given back.
    while http(at, "GET", "/v1/waiters/a", "").await.1 == "[]" {
        tokio::task::yield_now().await;
    }
    let shown = format!(r#"{{"token":"{}"}}"#, field(&grant, "token"));
    http(at, "POST", "/v1/leases/a:release", &shown).await;
    let (status, granted) = waits.await.expect("the waiting call ends");
    assert_eq!(status, 200, "{granted}");
    assert!(field(&granted, "token_number") > field(&grant, "token_number"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_figures_are_told() {
    let running = server().await;
    let at = running.address;
    assert_eq!(http(at, "GET", "/healthz", "").await.0, 200);
    assert_eq!(http(at, "GET", "/readyz", "").await.0, 200);
    let (status, figures) = http(at, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(figures.contains("leasehold_leases_held"), "{figures}");
    let (status, problem) = http(at, "POST", "/v1/leases/a:acquire", r#"{"holder":"w","ttl":"10"}"#).await;
    assert_eq!((status, field(&problem, "code")), (400, "INVALID_ARGUMENT".to_owned()), "{problem}");
    running.stop().await;
}
