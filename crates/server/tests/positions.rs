//! Every answer names the journal position it depends on, pages go on where they ended, and a check says why (E1).

mod http_client;

use std::net::SocketAddr;

use http_client::{field, http, on_a_free_port, raw};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerHandle, start};
use serde_json::Value;

async fn server() -> ServerHandle {
    start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts")
}

/// The status, the position in the headers, and the body.
async fn asked(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, u64, Value) {
    let (status, head, body) = raw(at, method, path, body).await;
    let position = head.lines().find_map(|line| line.strip_prefix("leasehold-position: "));
    let position = position.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (status, position, serde_json::from_slice(&body).expect("a JSON body"))
}

async fn acquire(at: SocketAddr, name: &str, holder: &str) -> (u64, Value) {
    let body = format!(r#"{{"holder":"{holder}","ttl":"60s"}}"#);
    let (status, position, grant) = asked(at, "POST", &format!("/v1/leases/{name}:acquire"), &body).await;
    assert_eq!(status, 200, "{grant}");
    (position, grant)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_rise_with_what_is_told_and_refusals_have_one_too() {
    let running = server().await;
    let at = running.address;
    let (first, _) = acquire(at, "a", "w").await;
    assert!(first > 0, "the opening is on record before it");
    let (second, _) = acquire(at, "b", "w").await;
    assert!(second > first);
    let (status, refused, _) = asked(at, "POST", "/v1/leases/a:acquire", r#"{"holder":"x","ttl":"60s"}"#).await;
    assert_eq!(status, 423);
    assert!(refused >= second, "a refusal depends on what it saw");
    for path in ["/v1/leases", "/v1/leases/a", "/v1/status", "/v1/holders/w", "/v1/waiters/a", "/v1/usage"] {
        let (status, position, body) = asked(at, "GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(position >= second, "{path}: {position}");
        if let Some(told) = body.get("position") {
            assert_eq!(told.as_u64(), Some(position), "{path}");
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_below_the_readers_minimum_is_refused() {
    let running = server().await;
    let at = running.address;
    let (position, _) = acquire(at, "a", "w").await;
    for path in ["/v1/leases", "/v1/leases/a", "/v1/status"] {
        let (status, _, body) = asked(at, "GET", &format!("{path}?min_position={position}"), "").await;
        assert_eq!(status, 200, "{path}: {body}");
        let (status, _, body) = asked(at, "GET", &format!("{path}?min_position={}", u64::MAX), "").await;
        assert_eq!((status, body["code"].as_str()), (503, Some("UNAVAILABLE")), "{path}: {body}");
        assert_eq!(body["field"], "min_position", "{path}: {body}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_go_on_after_the_last_entry_until_none_is_told() {
    let running = server().await;
    let at = running.address;
    for name in 0..7 {
        acquire(at, &format!("held/{name}"), "w").await;
    }
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let (_, _, page) = asked(at, "GET", &format!("/v1/holders/w?limit=3&after={after}"), "").await;
        let page = page.as_array().expect("a list").clone();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last["token_number"].as_str().expect("a number in quotes").to_owned();
        seen.extend(page.iter().map(|lease| lease["resource"].as_str().expect("a name").to_owned()));
    }
    assert_eq!(seen, (0..7).map(|name| format!("held/{name}")).collect::<Vec<_>>());
    let (status, _, _) = asked(at, "GET", "/v1/holders/w?after=x", "").await;
    assert_eq!(status, 400);

    for prefix in ["a", "b", "c"] {
        let body = r#"{"charter":{"price_of_failure":"none"},"comment":"a test"}"#;
        let (status, _, told) = asked(at, "PUT", &format!("/v1/charters/{prefix}"), body).await;
        assert_eq!(status, 200, "{told}");
    }
    let prefixes = |page: Value| {
        let page = page.as_array().expect("a list").clone();
        page.iter().map(|entry| entry["prefix"].as_str().expect("a prefix").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(prefixes(asked(at, "GET", "/v1/charters?limit=2", "").await.2), ["a", "b"]);
    assert_eq!(prefixes(asked(at, "GET", "/v1/charters?after=b", "").await.2), ["c"]);
    assert_eq!(prefixes(asked(at, "GET", "/v1/charters?resource=b/x", "").await.2), ["b"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_page_by_page_in_their_order() {
    let running = server().await;
    let at = running.address;
    acquire(at, "a", "w").await;
    let mut waits = Vec::new();
    for holder in 0..4 {
        let body = format!(r#"{{"holder":"waits-{holder}","ttl":"60s","wait":"60s"}}"#);
        waits.push(tokio::spawn(async move { http(at, "POST", "/v1/leases/a:acquire", &body).await }));
        while asked(at, "GET", "/v1/waiters/a", "").await.2.as_array().map_or(0, Vec::len) <= holder {
            tokio::task::yield_now().await;
        }
    }
    let (_, _, page) = asked(at, "GET", "/v1/waiters/a?offset=1&limit=2", "").await;
    let holders: Vec<_> = page.as_array().expect("a list").iter().map(|waiter| waiter["holder"].clone()).collect();
    assert_eq!(holders, ["waits-1", "waits-2"]);
    for wait in waits {
        wait.abort();
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_says_yes_or_why_not() {
    let running = server().await;
    let at = running.address;
    let check = async |name: &str, token: &str| {
        let shown = format!(r#"{{"token":"{token}"}}"#);
        let (status, _, body) = asked(at, "POST", &format!("/v1/leases/{name}:check"), &shown).await;
        let word = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (status, word("code"), word("state"), word("reason"))
    };
    let no = |status: u16, code: &str, state: &str, reason: &str| {
        (status, code.to_owned(), state.to_owned(), reason.to_owned())
    };
    let (_, grant) = acquire(at, "a", "w").await;
    let token = grant["token"].as_str().expect("a token").to_owned();
    assert_eq!(check("a", &token).await, no(200, "", "held", ""));
    assert_eq!(check("b", &token).await, no(400, "TOKEN_INVALID", "", "resource"), "another resource's token");
    let shown = format!(r#"{{"token":"{token}"}}"#);
    assert_eq!(http(at, "POST", "/v1/leases/a:release", &shown).await.0, 200);
    assert_eq!(check("a", &token).await, no(410, "LEASE_LOST", "released", "released"));
    let (_, taken) = acquire(at, "c", "w").await;
    let taken = taken["token"].as_str().expect("a token").to_owned();
    let (status, told) = http(at, "POST", "/v1/leases/c:revoke", r#"{"comment":"a test"}"#).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(check("c", &taken).await, no(410, "LEASE_LOST", "revoked", "operator"));

    // A token that was never given out, below the counter: nobody holds the resource, or somebody else does.
    let issued = leasehold_core::token::Token::parse(&token).expect("a token");
    let never = leasehold_core::token::Token {
        number: leasehold_core::token::Number::new(issued.number.get() - 1).expect("not the first"),
        ..issued
    };
    assert_eq!(check("a", &never.to_string()).await, no(412, "NOT_CURRENT", "", "unknown"));
    acquire(at, "a", "other").await;
    assert_eq!(check("a", &never.to_string()).await, no(412, "NOT_CURRENT", "", "superseded"));
    let foreign = leasehold_core::token::Token { cluster: leasehold_core::token::Cluster(*b"somewher"), ..issued };
    assert_eq!(check("a", &foreign.to_string()).await.1, "WRONG_CLUSTER");
    assert_eq!(check("a", "").await, no(400, "TOKEN_INVALID", "", "absent"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_carry_the_position_of_the_batch_that_made_them() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let running = server().await;
    let at = running.address;
    let mut stream = tokio::net::TcpStream::connect(at).await.expect("the server listens");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("the server reads");
    let mut told = String::new();
    let mut some = [0; 4_096];
    while !told.contains("\r\n\r\n") {
        let got = stream.read(&mut some).await.expect("the headers come");
        told.push_str(&String::from_utf8_lossy(&some[..got]));
    }
    let (position, _) = acquire(at, "a", "w").await;
    while !told.contains("\"event\":\"granted\"") {
        let got = stream.read(&mut some).await.expect("the event comes");
        told.push_str(&String::from_utf8_lossy(&some[..got]));
    }
    assert!(told.contains(&format!("id: {position}\n")), "{told}");
    assert!(told.contains(&format!("\"position\":{position}")), "{told}");
    assert_eq!(field(&told, "resource"), "a");
    drop(stream);
    running.stop().await;
}
