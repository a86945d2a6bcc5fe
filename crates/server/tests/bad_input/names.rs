//! Invalid names of resources and holders are refused, never corrected.

use leasehold_wire::v1::request::Operation;
use leasehold_wire::{problem_from_status, v1};

use crate::test_server::{ExpectedRefusal, refusal, start_server};
use crate::transports::acquire;

/// Percent-encodes a name for a path.
fn encode_path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_resource_name_is_refused() {
    let long = "n".repeat(513);
    let deep = vec!["s"; 17].join("/");
    let table: [(&str, &str, ExpectedRefusal); 15] = [
        ("an empty name", "", refusal("INVALID_ARGUMENT", "resource", "at least one character")),
        ("513 bytes", &long, refusal("INVALID_ARGUMENT", "resource", "too long (513 bytes)")),
        ("a NUL inside", "a\0b", refusal("INVALID_ARGUMENT", "resource", "control character U+0000")),
        ("a newline", "a\nb", refusal("INVALID_ARGUMENT", "resource", "printable text only")),
        ("two slashes", "a//b", refusal("INVALID_ARGUMENT", "resource", "two slashes")),
        ("a leading slash", "/a", refusal("INVALID_ARGUMENT", "resource", "only between segments")),
        ("a trailing slash", "a/", refusal("INVALID_ARGUMENT", "resource", "only between segments")),
        ("a dot segment", "a/./b", refusal("INVALID_ARGUMENT", "resource", "a segment is . or ..")),
        ("two dots", "a/../b", refusal("INVALID_ARGUMENT", "resource", "a segment is . or ..")),
        ("not in NFC", "cafe\u{301}", refusal("INVALID_ARGUMENT", "resource", "NFC")),
        ("a right-to-left override", "a\u{202e}b", refusal("INVALID_ARGUMENT", "resource", "U+202E")),
        ("17 segments", &deep, refusal("INVALID_ARGUMENT", "resource", "at most 16")),
        ("a star", "jobs/*", refusal("INVALID_ARGUMENT", "resource", "wildcard")),
        ("a question mark", "jobs/a?", refusal("INVALID_ARGUMENT", "resource", "wildcard")),
        ("a reserved prefix", "_sys/a", refusal("PERMISSION_DENIED", "resource", "reserved for the service")),
    ];
    let mut server = start_server().await;
    for (case, name, expected) in table {
        let request = format!("POST /v1/leases/{}:acquire", encode_path(name));
        let body = r#"{"holder":"w","ttl":"60s"}"#;
        server.refuses(case, &Operation::Acquire(acquire(name, "w")), (&request, body), expected).await;
    }
    let not_text = refusal("INVALID_ARGUMENT", "path", "UTF-8");
    server
        .http_refuses("bytes that are not UTF-8", "POST /v1/leases/a%ff:acquire", "", r#"{"holder":"w"}"#, not_text)
        .await;
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_for_an_invalid_name_is_refused() {
    let mut server = start_server().await;
    let resource = refusal("INVALID_ARGUMENT", "resource", "two slashes");
    let prefix = refusal("INVALID_ARGUMENT", "prefix", "two slashes");
    let holder = refusal("INVALID_ARGUMENT", "holder", "control character");
    for (request, expected) in [
        ("GET /v1/leases/a%2F%2Fb", resource),
        ("GET /v1/waiters/a%2F%2Fb", resource),
        ("GET /v1/history/a%2F%2Fb", resource),
        ("GET /v1/charters?resource=a%2F%2Fb", resource),
        ("GET /v1/leases?prefix=a%2F%2Fb", prefix),
        ("GET /v1/events?prefix=a%2F%2Fb", prefix),
        ("GET /v1/holders/a%07", holder),
        ("GET /v1/usage?holder=a%07", holder),
    ] {
        server.http_refuses(request, request, "", "", expected).await;
    }
    let name = String::from("a//b");
    let watch = v1::WatchRequest { prefix: name.clone() };
    let show = v1::ShowRequest { resource: name.clone(), min_position: 0 };
    let list = v1::ListRequest { prefix: name, ..Default::default() };
    let mut client = server.client.clone();
    for (case, expected) in [("show", resource), ("list", prefix), ("watch", prefix)] {
        let before = server.state().await;
        let result = match case {
            "show" => client.show(show.clone()).await.map(|_| ()),
            "list" => client.list(list.clone()).await.map(|_| ()),
            _ => client.watch(watch.clone()).await.map(|_| ()),
        };
        server
            .assert_refused(case, &problem_from_status(&result.expect_err("the name is invalid")), expected, &before)
            .await;
    }
    server.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_holder_name_is_refused() {
    let long = "h".repeat(129);
    let table: [(&str, &str, ExpectedRefusal); 3] = [
        ("129 bytes", &long, refusal("INVALID_ARGUMENT", "holder", "too long (129 bytes)")),
        ("a control character", "a\u{7}", refusal("INVALID_ARGUMENT", "holder", "control character")),
        ("an invisible character", "a\u{200b}", refusal("INVALID_ARGUMENT", "holder", "invisible")),
    ];
    let mut server = start_server().await;
    for (case, holder, expected) in table {
        let body = serde_json::json!({ "holder": holder, "ttl": "60s" }).to_string();
        let request = ("POST /v1/leases/jobs/a:acquire", body.as_str());
        server.refuses(case, &Operation::Acquire(acquire("jobs/a", holder)), request, expected).await;
    }
    // Without a session, the holder name is required.
    let empty = refusal("INVALID_ARGUMENT", "holder", "at least one character");
    server.http_refuses("no holder", "POST /v1/leases/jobs/a:acquire", "", r#"{"ttl":"60s"}"#, empty).await;
    server
        .http_refuses("a session without holder", "POST /v1/sessions", "", r#"{"holder":"","ttl":"60s"}"#, empty)
        .await;
    server.handle.stop().await;
}
