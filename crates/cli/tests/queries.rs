//! `ls`, `show`, `held-by`, `waiters`, `usage`, `status` and `watch` against a real server.

mod support;

use std::io::{BufRead, BufReader};

use leasehold_testkit::process::TestProcess;
use leasehold_testkit::tcp_proxy::TcpProxy;
use serde_json::Value;
use support::{Server, keys, spawn_piped, wait_for_line, wait_for_output};

#[test]
fn resources_are_listed_by_prefix_of_whole_segments_with_their_holders() {
    let server = Server::start();
    for name in ["team/a", "team/a/b", "team/ab", "other"] {
        server.acquire(name, "w1");
    }
    let listed = server.json(&["ls", "team/a"]);
    let names: Vec<_> = listed["resources"].as_array().expect("an array").iter().map(|one| &one["resource"]).collect();
    assert_eq!(names, ["team/a", "team/a/b"]);
    assert_eq!((keys(&listed), &listed["next_cursor"]), (vec!["next_cursor", "position", "resources"], &Value::Null));
    let result = server.run(&["ls"]).ok();
    let mut lines = result.out.lines();
    let header = lines.next().expect("a header");
    assert_eq!(header.split_whitespace().collect::<Vec<_>>()[..3], ["RESOURCE", "HOLDER", "NUMBER"]);
    assert_eq!(lines.count(), 4);
    assert_eq!(server.run(&["ls", "nothing/here"]).ok().out, "", "an empty listing has no header");
}

#[test]
fn a_listing_stops_at_its_limit_and_continues_at_the_cursor() {
    let server = Server::start();
    for n in 0..5 {
        server.acquire(&format!("r/{n}"), "w1");
    }
    let mut names = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let result = server.run(&["ls", "r", "--limit", "2", "--cursor", &cursor, "--json"]).ok();
        let page = result.json();
        let resources = page["resources"].as_array().expect("an array");
        assert!(resources.len() <= 2);
        names.extend(resources.iter().map(|one| one["resource"].to_string()));
        match page["next_cursor"].as_u64() {
            Some(next) => cursor = next.to_string(),
            None => break,
        }
        assert!(result.err.contains(&format!("--cursor {cursor}")), "{result:?}");
    }
    assert_eq!(names.len(), 5, "{names:?}");
}

/// The resources of a listing of held leases, in its order.
fn listed(server: &Server, args: &[&str]) -> Vec<String> {
    let listing = server.json(&[&["ls"], args].concat());
    let leases = listing["leases"].as_array().unwrap_or_else(|| panic!("{args:?}: {listing}"));
    leases.iter().map(|one| one["lease"]["resource"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn held_leases_are_listed_by_holder_age_and_state_and_sorted() {
    let server = Server::start();
    for (name, holder) in [("team/c", "w1"), ("team/a", "w2"), ("team/b", "w1"), ("other", "w1")] {
        server.acquire(name, holder);
    }
    assert_eq!(listed(&server, &["team", "--holder", "w1", "--sort", "name"]), ["team/b", "team/c"]);
    assert_eq!(listed(&server, &["--prefix", "team", "--sort", "name"]), ["team/a", "team/b", "team/c"]);
    assert_eq!(listed(&server, &["--sort", "name", "--desc"]), ["team/c", "team/b", "team/a", "other"]);
    assert_eq!(listed(&server, &["--older-than", "1h"]), [""; 0]);
    assert_eq!(listed(&server, &["--younger-than", "1h", "--holder", "w2"]), ["team/a"]);
    assert_eq!(listed(&server, &["--stuck"]), [""; 0], "all were renewed a moment ago");
    server.run(&["handoff", "team/a", "--to", "w3", "--gap"]).ok();
    assert_eq!(listed(&server, &["--state", "draining"]), ["team/a"]);
    assert_eq!(listed(&server, &["--state", "active", "--sort", "name"]), ["other", "team/b", "team/c"]);
    let shown = server.run(&["ls", "--sort", "name"]).ok().out;
    let header: Vec<_> = shown.lines().next().expect("a header").split_whitespace().collect();
    let columns = ["RESOURCE", "HOLDER", "NUMBER", "SLOT", "AGE", "REMAINING", "SILENT", "IDLE", "WAITERS", "STATE"];
    assert_eq!(header, columns);
    assert!(shown.contains("draining: handed_off") && !shown.contains("lh1-"), "{shown}");
    let mut pages = (Vec::new(), String::new());
    loop {
        let result = server.run(&["ls", "--sort", "name", "--limit", "3", "--cursor", &pages.1, "--json"]).ok();
        let page = result.json();
        pages.0.extend(page["leases"].as_array().expect("an array").iter().map(|one| one["lease"]["resource"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        assert!(result.err.contains(&format!("--cursor {next}")), "{result:?}");
        pages.1 = next.to_owned();
    }
    assert_eq!(pages.0, ["other", "team/a", "team/b", "team/c"]);
    server.run(&["ls", "--sort", "size"]).fails(2, "");
    server.run(&["ls", "--desc"]).fails(2, "");
    server.run(&["ls", "--cursor", "x"]).fails(2, "leasehold: INVALID_ARGUMENT");
    server.run(&["ls", "--stuck", "--cursor", "x"]).fails(2, "leasehold: INVALID_ARGUMENT{cursor}: ");
    let never = server.run(&["ls", "--older-than", "2m", "--younger-than", "1m"]);
    never.fails(2, "leasehold: INVALID_ARGUMENT{younger_than}: ");
}

#[test]
fn queries_show_token_numbers_and_never_tokens() {
    let server = Server::start();
    server.acquire("a", "w1");
    server.acquire("b", "w1");
    server.acquire("c", "w2");
    let shown = server.json(&["show", "a"]);
    assert_eq!((&shown["held"], &shown["waiters"], &shown["capacity"]), (&1.into(), &0.into(), &1.into()));
    let lease = &shown["leases"][0];
    assert_eq!((&lease["holder"], &lease["access"]), (&"w1".into(), &"exclusive".into()));
    assert!(lease["token_number"].is_string() && lease.get("token").is_none());
    let held = server.json(&["held-by", "w1"]);
    assert_eq!(held.as_array().map(Vec::len), Some(2));
    assert_eq!(server.json(&["held-by", "nobody"]), serde_json::json!([]));
    server.run(&["show", "nothing"]).fails(1, "leasehold: NOT_FOUND{resource}: ");
    for args in [&["ls"][..], &["show", "a"], &["held-by", "w1"], &["ls", "--json"], &["held-by", "w1", "--json"]] {
        let result = server.run(args).ok();
        assert!(result.out.contains("w1") && !result.out.contains("lh1-"), "{result:?}");
    }
}

#[test]
fn waiters_are_listed_in_the_order_in_which_they_are_served() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str| {
        spawn_piped(&mut server.command(&["acquire", "a", "--holder", holder, "--ttl", "100ms", "--wait", "60s"]))
    };
    let second = wait("w2");
    server.wait_for_waiter("a");
    let third = wait("w3");
    server.wait_until_resource("a", |show| show["waiters"] == 2);
    let waiting = server.json(&["waiters", "a"]);
    assert_eq!((&waiting[0]["holder"], &waiting[1]["holder"]), (&"w2".into(), &"w3".into()));
    let rows = server.run(&["waiters", "a"]).ok().out;
    assert!(rows.lines().nth(1).is_some_and(|row| row.starts_with("1") && row.contains("w2")), "{rows}");
    server.run(&["release", "a", "--token", &token]).ok();
    wait_for_output(second).ok();
    wait_for_output(third).ok();
    assert_eq!(server.json(&["waiters", "a"]), serde_json::json!([]));
}

#[test]
fn usage_is_grouped_by_end_reason() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    server.run(&["release", "a", "--token", &token]).ok();
    server.acquire("a", "w2");
    server.run(&["revoke", "a", "--comment", "x"]).ok();
    let used = server.json(&["usage"]);
    let holders: Vec<_> = used.as_array().expect("an array").iter().map(|one| &one["holder"]).collect();
    assert_eq!(holders, ["w1", "w2"]);
    let one = server.json(&["usage", "w1"]);
    assert_eq!((&one[0]["holder"], &one[0]["rows"][0]["reason"]), (&"w1".into(), &"released".into()));
    assert!(server.run(&["usage"]).ok().out.contains("w2"));
}

#[test]
fn status_shows_the_state_of_the_grantor() {
    let server = Server::start();
    server.acquire("a", "w1");
    let status = server.json(&["status"]);
    assert_eq!((&status["held"], &status["validity"], &status["tenure"]), (&1.into(), &"session".into(), &1.into()));
    assert!(status["counter"].is_string() && status["quarantine_ms"].is_null());
    let result = server.run(&["status"]).ok();
    assert!(result.out.contains("max ttl         10m"), "{result:?}");
}

#[test]
fn watch_prints_events_and_reconnects_after_a_restart() {
    let server = Server::start();
    let proxy = TcpProxy::start(&server.address);
    let address = proxy.address().to_string();
    let watching = spawn_piped(server.command(&["watch", "jobs", "--json"]).env("LEASEHOLD_ADDR", address));
    let watching = TestProcess::from(watching);
    watching.stderr().wait_for("watching");
    let token = server.acquire("jobs/a", "w1");
    server.acquire("other", "w1");
    server.run(&["release", "jobs/a", "--token", &token]).ok();
    let next = || -> Value {
        let line = watching.stdout().next_line().expect("an event");
        serde_json::from_str(&line).expect("one JSON document on each line")
    };
    let granted = next();
    assert_eq!((&granted["event"], &granted["resource"]), (&"granted".into(), &"jobs/a".into()));
    assert!(granted["token_number"].is_string() && granted.get("token").is_none());
    let ended = next();
    assert_eq!((&ended["event"], &ended["reason"]), (&"ended".into(), &"released".into()));

    let server = server.crash_and_restart();
    proxy.set_upstream(&server.address);
    watching.stderr().wait_for("reconnected");
    server.acquire("jobs/b", "w1");
    assert_eq!(next()["resource"], "jobs/b");
}

#[test]
fn a_watch_with_a_closed_reader_ends_quietly() {
    let server = Server::start();
    let mut watching = spawn_piped(&mut server.command(&["watch"]));
    let mut stderr = BufReader::new(watching.stderr.take().expect("the stream is piped"));
    wait_for_line(&mut stderr, "watching");
    drop(watching.stdout.take());
    server.acquire("a", "w1");
    assert_eq!(watching.wait().expect("the process ends").code(), Some(0));
    assert_eq!(stderr.lines().count(), 0, "nothing is printed on standard error");
}
