//! `revoke`, `free`, `handoff` and `quarantine` against a real server.

mod support;

use support::{Server, begin, end, text};

#[test]
fn a_revoked_lease_is_over_with_the_operators_reason() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    assert_eq!(server.json(&["revoke", "a", "--reason", "wrong version"]), serde_json::json!({ "done": true }));
    server.run(&["check", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST{revoked, operator}: ");
    let last = &server.json(&["history", "a"])["entries"][0];
    assert_eq!((&last["reason"], &last["why"]), (&"operator".into(), &"wrong version".into()));
    server.run(&["revoke", "a"]).fails(2, "error: ");
    for reason in ["", "  "] {
        assert!(server.run(&["revoke", "a", "--reason", reason]).fails(2, "error: ").err.contains("say why"));
    }
}

#[test]
fn a_grace_gives_notice_first() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let told = server.run(&["revoke", "a", "--reason", "a deploy", "--grace", "50s"]).ok();
    assert_eq!(told.out, "a ends within 50s\n");
    let held = server.json(&["check", "a", "--token", &token]);
    assert!(held["drain_ms"].as_u64().is_some_and(|ms| ms <= 50_000), "{held}");
    assert_eq!(server.json(&["show", "a"])["leases"][0]["draining"], "operator");
    assert!(server.run(&["show", "a"]).ok().out.contains("operator, "));
}

#[test]
fn what_is_held_for_an_operator_is_freed_with_a_reason() {
    let server = Server::start();
    let file = server.data.path().join("charter.toml");
    let charter = "prefix = \"jobs\"\n[charter]\nafter_revocation = \"hold_for_operator\"\n";
    std::fs::write(&file, charter).expect("the directory is there");
    server.run(&["charter", "apply", file.to_str().expect("a text"), "--reason", "books"]).ok();
    server.acquire("jobs/a", "w1");
    server.run(&["free", "jobs/a", "--reason", "too early"]).fails(1, "leasehold: NOT_FOUND{");
    server.run(&["revoke", "jobs/a", "--reason", "zombie"]).ok();
    let held = server.run(&["acquire", "jobs/a", "--holder", "w2", "--ttl", "1s"]);
    held.fails(4, "leasehold: HELD_FOR_OPERATOR: ");
    assert!(server.run(&["ls"]).ok().out.contains("(for an operator)"));
    assert!(server.run(&["show", "jobs/a"]).ok().out.contains("free it with a reason"));
    assert_eq!(server.json(&["free", "jobs/a", "--reason", "compared by hand"]), serde_json::json!({ "done": true }));
    server.acquire("jobs/a", "w2");
}

#[test]
fn a_gap_handoff_goes_to_the_named_waiter_after_the_release() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str| {
        begin(&mut server.command(&["acquire", "a", "--holder", holder, "--ttl", "60s", "--wait", "60s", "--json"]))
    };
    let first = wait("first");
    server.until_waited_for("a");
    let named = wait("named");
    server.until("a", |show| show["waiters"] == 2);
    let done = server.json(&["handoff", "a", "--to", "named", "--gap", "--drain", "50s"]);
    assert_eq!(done, serde_json::json!({ "done": true }));
    assert_eq!(server.json(&["show", "a"])["leases"][0]["draining"], "handed_off");
    server.run(&["release", "a", "--token", &token]).ok();
    let granted = end(named).ok().json();
    assert_eq!(granted["holder"], "named");
    server.run(&["revoke", "a", "--reason", "the end"]).ok();
    assert_eq!(end(first).ok().json()["holder"], "first");
}

#[test]
fn an_overlap_handoff_grants_at_once() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let next =
        begin(&mut server.command(&["acquire", "a", "--holder", "w2", "--ttl", "60s", "--wait", "60s", "--json"]));
    server.until_waited_for("a");
    let told = server.run(&["handoff", "a", "--overlap", "--drain", "50s", "--token", &token]).ok();
    assert_eq!(told.out, "a is being handed over\n");
    let granted = end(next).ok().json();
    assert!(granted["overlaps_ms"].as_u64().is_some_and(|ms| ms > 0), "{granted}");
    server.run(&["check", "a", "--token", &token]).ok();
    server.run(&["check", "a", "--token", &text(&granted["token"])]).ok();
    assert_eq!(server.run(&["handoff", "a", "--gap", "--overlap"]).exit, 2, "one price only");
    server.run(&["handoff", "nothing"]).fails(1, "leasehold: NOT_FOUND{lease}: ");
}

#[test]
fn a_quarantine_that_is_not_there_is_not_waived() {
    let server = Server::start();
    let told = server.run(&["quarantine", "waive", "--reason", "all old holders are off"]);
    told.fails(1, "leasehold: NOT_FOUND{quarantine}: ");
    let told = server.run(&["quarantine", "waive", "--reason", "x", "--json"]);
    assert_eq!(told.problem()["about"], "quarantine");
    assert_eq!(server.run(&["quarantine", "waive"]).exit, 2, "in writing");
}
