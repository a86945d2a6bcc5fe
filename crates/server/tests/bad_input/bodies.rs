//! HTTP and JSON: paths, methods, queries and bodies that are not what they should be.

use crate::transports::{Refused, open, refused};

const ACQUIRE: &str = "POST /v1/leases/jobs/a:acquire";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_read_strictly() {
    let nested = format!(r#"{{"holder":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let nested_deeper = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let body = |field, says| refused("INVALID_ARGUMENT", field, says);
    let table: Vec<(&str, &str, Refused)> = vec![
        ("not JSON", "holder=w", body("body", "not an object")),
        ("a list", "[]", body("body", "not an object")),
        ("cut short", r#"{"holder":"w""#, body("body", "EOF")),
        ("two bodies", r#"{"holder":"w"}{}"#, body("body", "trailing")),
        ("one key twice", r#"{"holder":"w","holder":"v","ttl":"60s"}"#, body("holder", "duplicate field")),
        ("an unknown key", r#"{"holder":"w","ttl":"60s","owner":"v"}"#, body("owner", "unknown field")),
        ("ten thousand lists", &nested, body("holder", "")),
        ("ten thousand objects", &nested_deeper, body("a", "")),
        ("a number that is too large", r#"{"holder":"w","units":1e400}"#, body("units", "")),
        ("minus nothing", r#"{"holder":"w","units":-0}"#, body("units", "")),
        ("more than 2^53", r#"{"holder":"w","units":9007199254740993}"#, body("units", "")),
        ("half a unit", r#"{"holder":"w","units":1.5}"#, body("units", "")),
        ("a text for a number", r#"{"holder":"w","units":"1"}"#, body("units", "")),
        ("no number", r#"{"holder":"w","units":NaN}"#, body("units", "")),
        ("half a pair", r#"{"holder":"\ud800"}"#, body("holder", "")),
    ];
    let mut doors = open().await;
    for (what, text, mut expected) in table {
        expected.made_up = ["owner", "a"].contains(&expected.field);
        if what == "minus nothing" {
            // serde reads it as a float, which is no count of units.
            expected.says = "units";
        }
        doors.http(what, ACQUIRE, "", text, expected).await;
    }
    let token = doors.take("jobs/p", 60_000).await.token;
    let exact = format!(r#"{{"token":"{token}","progress":9007199254740993}}"#);
    let renew = "POST /v1/leases/jobs/p:renew";
    doors.http("a bare large number", renew, "", &exact, body("progress", "string")).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_a_caller_makes_up_gets_no_counter_of_its_own() {
    let mut doors = open().await;
    for made_up in 0..50 {
        let body = format!(r#"{{"holder":"w","made_up_{made_up}":1}}"#);
        let (status, _) = doors.http.ask(ACQUIRE, "", &body).await;
        assert_eq!(status, 400);
    }
    let (_, text) = doors.http.ask("GET /metrics", "", "").await;
    assert!(!text.contains("made_up"), "{text}");
    let line = r#"leasehold_invalid_requests_total{code="INVALID_ARGUMENT",field="other"} 50"#;
    assert!(text.contains(line), "{text}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_and_a_method_that_nobody_serves_are_problems_too() {
    let mut doors = open().await;
    let path = refused("NOT_FOUND", "", "unknown path");
    doors.http("no such path", "GET /v2/leases", "", "", path).await;
    let method = refused("INVALID_ARGUMENT", "method", "POST");
    doors.http("no such method", "DELETE /v1/leases", "", "", method).await;
    let verb = refused("NOT_FOUND", "", "acquire, renew, release");
    doors.http("no such verb", "POST /v1/leases/jobs/a:steal", "", "{}", verb).await;
    doors.http("no verb", "POST /v1/leases/jobs/a", "", "{}", verb).await;
    let large = format!(r#"{{"holder":"{}"}}"#, "x".repeat(leasehold_wire::MAX_TRANSPORT_BYTES));
    let (status, answer) = doors.http.ask(ACQUIRE, "", &large).await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("RESOURCE_EXHAUSTED") && answer.contains("1048576"), "{answer}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_read_strictly() {
    let invalid = |field, says| refused("INVALID_ARGUMENT", field, says);
    let table = [
        ("less than nothing", "GET /v1/leases?limit=-1", invalid("limit", "invalid digit")),
        ("more than can be counted", "GET /v1/leases?cursor=4294967296", invalid("cursor", "too large")),
        ("a word for a number", "GET /v1/history?before=yesterday", invalid("before", "invalid digit")),
        ("a number for a word", "GET /v1/history?oldest_first=1", invalid("oldest_first", "`true` or `false`")),
        ("one key twice", "GET /v1/leases?prefix=a&prefix=b", invalid("prefix", "duplicate field")),
        ("half an escape", "GET /v1/leases?prefix=%f", invalid("query", "%25")),
        ("no escape", "GET /v1/leases?prefix=100%", invalid("query", "%25")),
        ("not UTF-8", "GET /v1/leases?prefix=%ff", invalid("query", "UTF-8")),
        ("not UTF-8 in a key", "GET /v1/leases?%c3%28=1", invalid("query", "UTF-8")),
        ("no number of a token", "GET /v1/holders/w1?after=x", invalid("after", "token number")),
    ];
    let mut doors = open().await;
    for (what, request, expected) in table {
        doors.http(what, request, "", "", expected).await;
    }
    // What a caller makes up is named to the caller, and counted together.
    for (request, body) in [
        ("GET /v1/leases?prefx=a", ""),
        ("GET /v1/backup?prefx=a", ""),
        ("POST /v1/leases/jobs/a:acquire?prefx=a", r#"{"holder":"w","ttl":"60s"}"#),
        ("POST /v1/sessions?prefx", r#"{"holder":"w","ttl":"60s"}"#),
        ("DELETE /v1/charters/jobs?prefx=a", ""),
    ] {
        let expected = Refused { made_up: true, ..invalid("prefx", "unknown field") };
        doors.http(request, request, "", body, expected).await;
    }
    let (status, _) = doors.http.ask("GET /v1/leases?prefix=w%C3%B6rter%2Fa&limit=1&", "", "").await;
    assert_eq!(status, 200, "what is written well is taken");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_another_type_than_json_is_refused() {
    let body = r#"{"holder":"w","ttl":"60s"}"#;
    let kind = |says| refused("INVALID_ARGUMENT", "content-type", says);
    let table = [
        ("XML", "content-type: text/xml\r\n", kind("application/json")),
        ("text", "content-type: text/plain\r\n", kind("application/json")),
        ("a form with files", "content-type: multipart/form-data; boundary=x\r\n", kind("application/json")),
        ("nothing", "content-type: \r\n", kind("application/json")),
        ("another charset", "content-type: application/json; charset=latin1\r\n", kind("UTF-8")),
        ("gRPC", "content-type: application/grpc\r\n", kind("application/json")),
        ("two types", "content-type: application/json\r\ncontent-type: text/xml\r\n", kind("repeated")),
    ];
    let mut doors = open().await;
    for (what, headers, expected) in table {
        doors.http(what, ACQUIRE, headers, body, expected).await;
    }
    let kinds = ["application/json", "Application/JSON; charset=\"UTF-8\"", "application/x-www-form-urlencoded"];
    for (at, kind) in kinds.into_iter().enumerate() {
        let request = format!("POST /v1/leases/{at}:acquire");
        let (status, answer) = doors.http.ask(&request, &format!("content-type: {kind}\r\n"), body).await;
        assert_eq!(status, 200, "{kind}: {answer}");
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_comes_twice_is_refused() {
    let mut doors = open().await;
    let token = doors.take("jobs/a", 60_000).await.token;
    let other = doors.take("jobs/b", 60_000).await.token;
    let twice = |name: &str, one: &str, two: &str| format!("{name}: {one}\r\n{name}: {two}\r\n");
    let renew = "POST /v1/leases/jobs/a:renew";
    let tokens = refused("INVALID_ARGUMENT", "lease-token", "repeated");
    doors.http("two tokens", renew, &twice("Lease-Token", &token, &other), "", tokens).await;
    let keys = refused("INVALID_ARGUMENT", "idempotency-key", "repeated");
    let headers = format!("Lease-Token: {token}\r\n{}", twice("Idempotency-Key", "0.0:1", "0.0:2"));
    doors.http("two keys", renew, &headers, "", keys).await;
    doors.running.stop().await;
}
