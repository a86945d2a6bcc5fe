//! Names: refused as they are, never corrected.

use leasehold_wire::v1::request::Operation;
use leasehold_wire::{problem_from_status, v1};

use crate::transports::{Refused, acquire, open, refused};

/// Percent-encodes what a path may not carry.
fn path(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_name_that_is_not_one_is_refused() {
    let long = "n".repeat(513);
    let deep = vec!["s"; 17].join("/");
    let table: [(&str, &str, Refused); 15] = [
        ("an empty name", "", refused("INVALID_ARGUMENT", "resource", "at least one character")),
        ("513 bytes", &long, refused("INVALID_ARGUMENT", "resource", "too long (513 bytes)")),
        ("a NUL inside", "a\0b", refused("INVALID_ARGUMENT", "resource", "control character U+0000")),
        ("a newline", "a\nb", refused("INVALID_ARGUMENT", "resource", "printable text only")),
        ("two slashes", "a//b", refused("INVALID_ARGUMENT", "resource", "two slashes")),
        ("a leading slash", "/a", refused("INVALID_ARGUMENT", "resource", "only between segments")),
        ("a trailing slash", "a/", refused("INVALID_ARGUMENT", "resource", "only between segments")),
        ("a dot segment", "a/./b", refused("INVALID_ARGUMENT", "resource", "a segment is . or ..")),
        ("two dots", "a/../b", refused("INVALID_ARGUMENT", "resource", "a segment is . or ..")),
        ("not in normal form", "cafe\u{301}", refused("INVALID_ARGUMENT", "resource", "NFC")),
        ("turned writing", "a\u{202e}b", refused("INVALID_ARGUMENT", "resource", "U+202E")),
        ("17 segments", &deep, refused("INVALID_ARGUMENT", "resource", "at most 16")),
        ("a star", "jobs/*", refused("INVALID_ARGUMENT", "resource", "wildcard")),
        ("a question mark", "jobs/a?", refused("INVALID_ARGUMENT", "resource", "wildcard")),
        ("the service's own", "_sys/a", refused("PERMISSION_DENIED", "resource", "reserved for the service")),
    ];
    let mut doors = open().await;
    for (what, name, expected) in table {
        let request = format!("POST /v1/leases/{}:acquire", path(name));
        let body = r#"{"holder":"w","ttl":"60s"}"#;
        doors.all(what, &Operation::Acquire(acquire(name, "w")), (&request, body), expected).await;
    }
    let not_text = refused("INVALID_ARGUMENT", "path", "UTF-8");
    doors.http("bytes that are no text", "POST /v1/leases/a%ff:acquire", "", r#"{"holder":"w"}"#, not_text).await;
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_for_a_name_that_cannot_be_is_told_so() {
    let mut doors = open().await;
    let resource = refused("INVALID_ARGUMENT", "resource", "two slashes");
    let prefix = refused("INVALID_ARGUMENT", "prefix", "two slashes");
    let holder = refused("INVALID_ARGUMENT", "holder", "control character");
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
        doors.http(request, request, "", "", expected).await;
    }
    let name = String::from("a//b");
    let watch = v1::WatchRequest { prefix: name.clone() };
    let show = v1::ShowRequest { resource: name.clone(), min_position: 0 };
    let list = v1::ListRequest { prefix: name, ..Default::default() };
    let mut calls = doors.calls.clone();
    for (what, expected) in [("show", resource), ("list", prefix), ("watch", prefix)] {
        let before = doors.state().await;
        let told = match what {
            "show" => calls.show(show.clone()).await.map(|_| ()),
            "list" => calls.list(list.clone()).await.map(|_| ()),
            _ => calls.watch(watch.clone()).await.map(|_| ()),
        };
        doors.check(what, &problem_from_status(&told.expect_err("no such name")), expected, &before).await;
    }
    doors.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_cannot_be_read_is_refused() {
    let long = "h".repeat(129);
    let table: [(&str, &str, Refused); 3] = [
        ("129 bytes", &long, refused("INVALID_ARGUMENT", "holder", "too long (129 bytes)")),
        ("a control character", "a\u{7}", refused("INVALID_ARGUMENT", "holder", "control character")),
        ("an invisible one", "a\u{200b}", refused("INVALID_ARGUMENT", "holder", "invisible")),
    ];
    let mut doors = open().await;
    for (what, holder, expected) in table {
        let body = serde_json::json!({ "holder": holder, "ttl": "60s" }).to_string();
        let request = ("POST /v1/leases/jobs/a:acquire", body.as_str());
        doors.all(what, &Operation::Acquire(acquire("jobs/a", holder)), request, expected).await;
    }
    // In a session an empty name is the session's own.
    let empty = refused("INVALID_ARGUMENT", "holder", "at least one character");
    doors.http("nobody", "POST /v1/leases/jobs/a:acquire", "", r#"{"ttl":"60s"}"#, empty).await;
    doors.http("nobody's session", "POST /v1/sessions", "", r#"{"holder":"","ttl":"60s"}"#, empty).await;
    doors.running.stop().await;
}
