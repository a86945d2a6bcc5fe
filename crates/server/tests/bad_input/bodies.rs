//! HTTP and JSON: paths, methods, queries and bodies that are not what they should be.

use crate::doors::{Refused, open, refused};

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
        // What a caller makes up is counted as "other"; that is checked below.
        if ["owner", "a"].contains(&expected.field) {
            let (status, answer) = doors.http.ask(ACQUIRE, "", text).await;
            assert_eq!(status, 400, "{what}: {answer}");
            assert!(answer.contains(&format!(r#""field":"{}""#, expected.field)), "{what}: {answer}");
            continue;
        }
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
    let line = r#"leasehold_bad_input_total{code="INVALID_ARGUMENT",field="other"} 50"#;
    assert!(text.contains(line), "{text}");
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_a_method_and_a_query_that_nobody_serves_are_problems_too() {
    let mut doors = open().await;
    let path = refused("NOT_FOUND", "", "nothing is served under this path");
    doors.http("no such path", "GET /v2/leases", "", "", path).await;
    let method = refused("INVALID_ARGUMENT", "method", "POST");
    doors.http("no such method", "DELETE /v1/leases", "", "", method).await;
    let verb = refused("NOT_FOUND", "", "acquire, renew, release");
    doors.http("no such verb", "POST /v1/leases/jobs/a:steal", "", "{}", verb).await;
    doors.http("no verb", "POST /v1/leases/jobs/a", "", "{}", verb).await;
    let query = refused("INVALID_ARGUMENT", "query", "");
    doors.http("no such question", "GET /v1/leases?prefx=a", "", "", query).await;
    doors.http("less than nothing", "GET /v1/leases?most=-1", "", "", query).await;
    let large = format!(r#"{{"holder":"{}"}}"#, "x".repeat(leasehold_wire::MESSAGE_BYTES));
    let (status, answer) = doors.http.ask(ACQUIRE, "", &large).await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("RESOURCE_EXHAUSTED") && answer.contains("1048576"), "{answer}");
    doors.running.stop().await;
}
