//! Invalid HTTP requests: paths, methods, queries, headers and JSON bodies.

use crate::test_server::{ExpectedRefusal, refusal, start_server};

const ACQUIRE: &str = "POST /v1/leases/jobs/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_body_is_refused() {
    let nested = format!(r#"{{"holder":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let nested_deeper = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let body = |field, message| refusal("INVALID_ARGUMENT", field, message);
    let table: Vec<(&str, &str, ExpectedRefusal)> = vec![
        ("not JSON", "holder=w", body("body", "not an object")),
        ("an array", "[]", body("body", "not an object")),
        ("truncated", r#"{"holder":"w""#, body("body", "EOF")),
        ("two bodies", r#"{"holder":"w"}{}"#, body("body", "trailing")),
        ("one key twice", r#"{"holder":"w","holder":"v","ttl":"60s"}"#, body("holder", "duplicate field")),
        ("an unknown key", r#"{"holder":"w","ttl":"60s","owner":"v"}"#, body("owner", "unknown field")),
        ("ten thousand nested arrays", &nested, body("holder", "")),
        ("ten thousand nested objects", &nested_deeper, body("a", "")),
        ("a number above the range of floats", r#"{"holder":"w","units":1e400}"#, body("units", "")),
        ("minus zero", r#"{"holder":"w","units":-0}"#, body("units", "")),
        ("more than 2^53", r#"{"holder":"w","units":9007199254740993}"#, body("units", "")),
        ("a fraction", r#"{"holder":"w","units":1.5}"#, body("units", "")),
        ("a string for a number", r#"{"holder":"w","units":"1"}"#, body("units", "")),
        ("NaN", r#"{"holder":"w","units":NaN}"#, body("units", "")),
        ("half a surrogate pair", r#"{"holder":"\ud800"}"#, body("holder", "")),
    ];
    let mut server = start_server().await;
    for (case, text, mut expected) in table {
        expected.unknown_field = ["owner", "a"].contains(&expected.field);
        if case == "minus zero" {
            // serde reads it as a float, which is not a number of units.
            expected.message = "units";
        }
        server.http_refuses(case, ACQUIRE, "", text, expected).await;
    }
    let token = server.acquire_lease("jobs/p", 60_000).await.token;
    let exact = format!(r#"{{"token":"{token}","progress":9007199254740993}}"#);
    let renew = "POST /v1/leases/jobs/p:renew";
    server.http_refuses("a large number without quotes", renew, "", &exact, body("progress", "string")).await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_fields_share_one_counter() {
    let mut server = start_server().await;
    for made_up in 0..50 {
        let body = format!(r#"{{"holder":"w","made_up_{made_up}":1}}"#);
        let (status, _) = server.http.request(ACQUIRE, "", &body).await;
        assert_eq!(status, 400);
    }
    let (_, text) = server.http.request("GET /metrics", "", "").await;
    assert!(!text.contains("made_up"), "{text}");
    let line = r#"leasehold_invalid_requests_total{code="INVALID_ARGUMENT",field="other"} 50"#;
    assert!(text.contains(line), "{text}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_path_method_or_verb_is_refused() {
    let mut server = start_server().await;
    let path = refusal("NOT_FOUND", "", "unknown path");
    server.http_refuses("an unknown path", "GET /v2/leases", "", "", path).await;
    let method = refusal("INVALID_ARGUMENT", "method", "POST");
    server.http_refuses("an unsupported method", "DELETE /v1/leases", "", "", method).await;
    let verb = refusal("NOT_FOUND", "", "acquire, renew, release");
    server.http_refuses("an unknown verb", "POST /v1/leases/jobs/a:steal", "", "{}", verb).await;
    server.http_refuses("a missing verb", "POST /v1/leases/jobs/a", "", "{}", verb).await;
    let large = format!(r#"{{"holder":"{}"}}"#, "x".repeat(leasehold_wire::MAX_TRANSPORT_BYTES));
    let (status, body) = server.http.request(ACQUIRE, "", &large).await;
    assert_eq!(status, 429, "{body}");
    assert!(body.contains("RESOURCE_EXHAUSTED") && body.contains("1048576"), "{body}");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_query_is_refused() {
    let invalid = |field, message| refusal("INVALID_ARGUMENT", field, message);
    let table = [
        ("a negative number", "GET /v1/leases?limit=-1", invalid("limit", "invalid digit")),
        ("an overflowing number", "GET /v1/leases?cursor=4294967296", invalid("cursor", "too large")),
        ("text for a number", "GET /v1/history?before=yesterday", invalid("before", "invalid digit")),
        ("a number for a boolean", "GET /v1/history?oldest_first=1", invalid("oldest_first", "`true` or `false`")),
        ("one key twice", "GET /v1/leases?prefix=a&prefix=b", invalid("prefix", "duplicate field")),
        ("a truncated escape", "GET /v1/leases?prefix=%f", invalid("query", "%25")),
        ("a bare percent sign", "GET /v1/leases?prefix=100%", invalid("query", "%25")),
        ("not UTF-8", "GET /v1/leases?prefix=%ff", invalid("query", "UTF-8")),
        ("not UTF-8 in a key", "GET /v1/leases?%c3%28=1", invalid("query", "UTF-8")),
        ("an invalid token number", "GET /v1/holders/w1?after=x", invalid("after", "token number")),
    ];
    let mut server = start_server().await;
    for (case, request, expected) in table {
        server.http_refuses(case, request, "", "", expected).await;
    }
    // Unknown keys are named in the refusal, and share one counter.
    for (request, body) in [
        ("GET /v1/leases?prefx=a", ""),
        ("GET /v1/backup?prefx=a", ""),
        ("POST /v1/leases/jobs/a:acquire?prefx=a", r#"{"holder":"w","ttl":"60s"}"#),
        ("POST /v1/sessions?prefx", r#"{"holder":"w","ttl":"60s"}"#),
        ("DELETE /v1/charters/jobs?prefx=a", ""),
    ] {
        let expected = ExpectedRefusal { unknown_field: true, ..invalid("prefx", "unknown field") };
        server.http_refuses(request, request, "", body, expected).await;
    }
    let (status, _) = server.http.request("GET /v1/leases?prefix=w%C3%B6rter%2Fa&limit=1&", "", "").await;
    assert_eq!(status, 200, "a valid query is accepted");
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_json_is_refused() {
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let kind = |message| refusal("INVALID_ARGUMENT", "content-type", message);
    let table = [
        ("XML", "content-type: text/xml\r\n", kind("application/json")),
        ("text", "content-type: text/plain\r\n", kind("application/json")),
        ("multipart", "content-type: multipart/form-data; boundary=x\r\n", kind("application/json")),
        ("an empty type", "content-type: \r\n", kind("application/json")),
        ("another charset", "content-type: application/json; charset=latin1\r\n", kind("UTF-8")),
        ("gRPC", "content-type: application/grpc\r\n", kind("application/json")),
        ("two types", "content-type: application/json\r\ncontent-type: text/xml\r\n", kind("repeated")),
    ];
    let mut server = start_server().await;
    for (case, headers, expected) in table {
        server.http_refuses(case, ACQUIRE, headers, body, expected).await;
    }
    let kinds = ["application/json", "Application/JSON; charset=\"UTF-8\"", "application/x-www-form-urlencoded"];
    for (index, kind) in kinds.into_iter().enumerate() {
        let request = format!("POST /v1/leases/{index}:acquire");
        let (status, response) = server.http.request(&request, &format!("content-type: {kind}\r\n"), body).await;
        assert_eq!(status, 200, "{kind}: {response}");
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_header_is_refused() {
    let mut server = start_server().await;
    let token = server.acquire_lease("jobs/a", 60_000).await.token;
    let other = server.acquire_lease("jobs/b", 60_000).await.token;
    let twice = |name: &str, one: &str, two: &str| format!("{name}: {one}\r\n{name}: {two}\r\n");
    let renew = "POST /v1/leases/jobs/a:renew";
    let tokens = refusal("INVALID_ARGUMENT", "lease-token", "repeated");
    server.http_refuses("two tokens", renew, &twice("Lease-Token", &token, &other), "", tokens).await;
    let keys = refusal("INVALID_ARGUMENT", "idempotency-key", "repeated");
    let headers = format!("Lease-Token: {token}\r\n{}", twice("Idempotency-Key", "0.0:1", "0.0:2"));
    server.http_refuses("two keys", renew, &headers, "", keys).await;
    server.handle.stop().await;
}
