//! Responses name the journal position they depend on; lists are paged; a check returns the reason of a refusal (E1).

mod http_client;

use std::net::SocketAddr;

use http_client::{field, free_port_config, http, raw};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerHandle, start};
use serde_json::Value;

async fn start_server() -> ServerHandle {
    start(Memory::default(), free_port_config()).await.expect("a server starts on a free port")
}

/// Sends a request and returns the response's status, position header and JSON body.
async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, u64, Value) {
    let (status, head, body) = raw(address, method, path, body).await;
    let position = head.lines().find_map(|line| line.strip_prefix("leasehold-position: "));
    let position = position.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (status, position, serde_json::from_slice(&body).expect("the body is JSON"))
}

async fn acquire(address: SocketAddr, name: &str, holder: &str) -> (u64, Value) {
    let body = format!(r#"{{"holder":"{holder}","ttl":"60s"}}"#);
    let (status, position, grant) = request(address, "POST", &format!("/v1/leases/{name}:acquire"), &body).await;
    assert_eq!(status, 200, "{grant}");
    (position, grant)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_increase_with_each_change_and_refusals_have_one_too() {
    let server = start_server().await;
    let address = server.address;
    let (first, _) = acquire(address, "a", "w").await;
    assert!(first > 0, "the tenure was recorded before");
    let (second, _) = acquire(address, "b", "w").await;
    assert!(second > first);
    let (status, refused, _) = request(address, "POST", "/v1/leases/a:acquire", r#"{"holder":"x","ttl":"60s"}"#).await;
    assert_eq!(status, 423);
    assert!(refused >= second, "a refusal depends on the state it was decided on");
    for path in ["/v1/leases", "/v1/leases/a", "/v1/status", "/v1/holders/w", "/v1/waiters/a", "/v1/usage"] {
        let (status, position, body) = request(address, "GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(position >= second, "{path}: {position}");
        if let Some(in_body) = body.get("position") {
            assert_eq!(in_body.as_u64(), Some(position), "{path}");
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_below_the_requested_position_is_refused() {
    let server = start_server().await;
    let address = server.address;
    let (position, _) = acquire(address, "a", "w").await;
    for path in ["/v1/leases", "/v1/leases/a", "/v1/status"] {
        let (status, _, body) = request(address, "GET", &format!("{path}?min_position={position}"), "").await;
        assert_eq!(status, 200, "{path}: {body}");
        let (status, _, body) = request(address, "GET", &format!("{path}?min_position={}", u64::MAX), "").await;
        assert_eq!((status, body["code"].as_str()), (503, Some("UNAVAILABLE")), "{path}: {body}");
        assert_eq!(body["field"], "min_position", "{path}: {body}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_continues_after_the_last_entry_until_an_empty_page() {
    let server = start_server().await;
    let address = server.address;
    for name in 0..7 {
        acquire(address, &format!("held/{name}"), "w").await;
    }
    let (mut after, mut listed) = (String::new(), Vec::new());
    loop {
        let (_, _, page) = request(address, "GET", &format!("/v1/holders/w?limit=3&after={after}"), "").await;
        let page = page.as_array().expect("the body is an array").clone();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last["token_number"].as_str().expect("the number is a string").to_owned();
        listed.extend(page.iter().map(|lease| lease["resource"].as_str().expect("the lease has a name").to_owned()));
    }
    assert_eq!(listed, (0..7).map(|name| format!("held/{name}")).collect::<Vec<_>>());
    let (status, _, _) = request(address, "GET", "/v1/holders/w?after=x", "").await;
    assert_eq!(status, 400);

    for prefix in ["a", "b", "c"] {
        let body = r#"{"charter":{"price_of_failure":"none"},"comment":"a test"}"#;
        let (status, _, reply) = request(address, "PUT", &format!("/v1/charters/{prefix}"), body).await;
        assert_eq!(status, 200, "{reply}");
    }
    let prefixes = |page: Value| {
        let page = page.as_array().expect("the body is an array").clone();
        page.iter()
            .map(|entry| entry["prefix"].as_str().expect("the charter has a prefix").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(prefixes(request(address, "GET", "/v1/charters?limit=2", "").await.2), ["a", "b"]);
    assert_eq!(prefixes(request(address, "GET", "/v1/charters?after=b", "").await.2), ["c"]);
    assert_eq!(prefixes(request(address, "GET", "/v1/charters?resource=b/x", "").await.2), ["b"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_paged_in_queue_order() {
    let server = start_server().await;
    let address = server.address;
    acquire(address, "a", "w").await;
    let mut waits = Vec::new();
    for holder in 0..4 {
        let body = format!(r#"{{"holder":"waits-{holder}","ttl":"60s","wait":"60s"}}"#);
        waits.push(tokio::spawn(async move { http(address, "POST", "/v1/leases/a:acquire", &body).await }));
        while request(address, "GET", "/v1/waiters/a", "").await.2.as_array().map_or(0, Vec::len) <= holder {
            tokio::task::yield_now().await;
        }
    }
    let (_, _, page) = request(address, "GET", "/v1/waiters/a?offset=1&limit=2", "").await;
    let holders: Vec<_> =
        page.as_array().expect("the body is an array").iter().map(|waiter| waiter["holder"].clone()).collect();
    assert_eq!(holders, ["waits-1", "waits-2"]);
    for wait in waits {
        wait.abort();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_returns_held_or_the_reason_of_the_refusal() {
    let server = start_server().await;
    let address = server.address;
    let check = async |name: &str, token: &str| {
        let body = format!(r#"{{"token":"{token}"}}"#);
        let (status, _, body) = request(address, "POST", &format!("/v1/leases/{name}:check"), &body).await;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (status, text("code"), text("state"), text("reason"))
    };
    let outcome = |status: u16, code: &str, state: &str, reason: &str| {
        (status, code.to_owned(), state.to_owned(), reason.to_owned())
    };
    let (_, grant) = acquire(address, "a", "w").await;
    let token = grant["token"].as_str().expect("the grant has a token").to_owned();
    assert_eq!(check("a", &token).await, outcome(200, "", "held", ""));
    assert_eq!(check("b", &token).await, outcome(400, "TOKEN_INVALID", "", "resource"), "a token of another resource");
    let body = format!(r#"{{"token":"{token}"}}"#);
    assert_eq!(http(address, "POST", "/v1/leases/a:release", &body).await.0, 200);
    assert_eq!(check("a", &token).await, outcome(410, "LEASE_LOST", "released", "released"));
    let (_, revoked) = acquire(address, "c", "w").await;
    let revoked = revoked["token"].as_str().expect("the grant has a token").to_owned();
    let (status, reply) = http(address, "POST", "/v1/leases/c:revoke", r#"{"comment":"a test"}"#).await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(check("c", &revoked).await, outcome(410, "LEASE_LOST", "revoked", "operator"));

    // A token below the counter that was never issued, while the resource is free, and while another holder has it.
    let issued = leasehold_core::token::Token::parse(&token).expect("the token is valid");
    let never_issued = leasehold_core::token::Token {
        number: leasehold_core::token::Number::new(issued.number.get() - 1).expect("not the first token"),
        ..issued
    };
    assert_eq!(check("a", &never_issued.to_string()).await, outcome(412, "NOT_CURRENT", "", "unknown"));
    acquire(address, "a", "other").await;
    assert_eq!(check("a", &never_issued.to_string()).await, outcome(412, "NOT_CURRENT", "", "superseded"));
    let foreign = leasehold_core::token::Token { cluster: leasehold_core::token::Cluster(*b"somewher"), ..issued };
    assert_eq!(check("a", &foreign.to_string()).await.1, "WRONG_CLUSTER");
    assert_eq!(check("a", "").await, outcome(400, "TOKEN_INVALID", "", "absent"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_have_the_position_of_their_batch() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = start_server().await;
    let address = server.address;
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the server reads");
    let mut received = String::new();
    let mut buffer = [0; 4_096];
    while !received.contains("\r\n\r\n") {
        let length = stream.read(&mut buffer).await.expect("the headers arrive");
        received.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    let (position, _) = acquire(address, "a", "w").await;
    while !received.contains("\"event\":\"granted\"") {
        let length = stream.read(&mut buffer).await.expect("the event arrives");
        received.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    assert!(received.contains(&format!("id: {position}\n")), "{received}");
    assert!(received.contains(&format!("\"position\":{position}")), "{received}");
    assert_eq!(field(&received, "resource"), "a");
    drop(stream);
    server.stop().await;
}
