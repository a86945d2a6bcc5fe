//! `revoke`, `free`, `handoff` and `quarantine` against a real server.

mod support;

use support::{Server, spawn_piped, text, wait_for_output};

#[test]
fn a_revoked_lease_ends_with_the_operators_comment() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    assert_eq!(server.json(&["revoke", "a", "--comment", "wrong version"]), serde_json::json!({ "done": true }));
    server.run(&["check", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST{revoked, operator}: ");
    let last = &server.json(&["history", "a"])["entries"][0];
    assert_eq!((&last["reason"], &last["comment"]), (&"operator".into(), &"wrong version".into()));
    server.run(&["revoke", "a"]).fails(2, "error: ");
    for comment in ["", "  "] {
        assert!(
            server.run(&["revoke", "a", "--comment", comment]).fails(2, "error: ").err.contains("must not be blank")
        );
    }
}

#[test]
fn a_grace_period_gives_notice_before_the_revocation() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let result = server.run(&["revoke", "a", "--comment", "a deploy", "--grace", "50s"]).ok();
    assert_eq!(result.out, "a will be revoked within 50s\n");
    let held = server.json(&["check", "a", "--token", &token]);
    assert!(held["drain_ms"].as_u64().is_some_and(|ms| ms <= 50_000), "{held}");
    assert_eq!(server.json(&["show", "a"])["leases"][0]["draining"], "operator");
    assert!(server.run(&["show", "a"]).ok().out.contains("operator, "));
}

#[test]
fn a_resource_held_for_an_operator_is_freed_with_a_comment() {
    let server = Server::start();
    let file = server.data.path().join("charter.toml");
    let charter = "prefix = \"jobs\"\n[charter]\nafter_revocation = \"hold_for_operator\"\n";
    std::fs::write(&file, charter).expect("the directory exists");
    server.run(&["charter", "apply", file.to_str().expect("a UTF-8 path"), "--comment", "books"]).ok();
    server.acquire("jobs/a", "w1");
    let early = server.run(&["free", "jobs/a", "--comment", "too early"]).fails(1, "leasehold: NOT_FOUND{hold}: ");
    assert!(early.err.contains("is not held for an operator"), "{early:?}");
    server.run(&["revoke", "jobs/a", "--comment", "zombie"]).ok();
    let held = server.run(&["acquire", "jobs/a", "--holder", "w2", "--ttl", "1s"]);
    held.fails(4, "leasehold: HELD_FOR_OPERATOR: ");
    assert!(server.run(&["ls"]).ok().out.contains("(operator)"));
    assert!(server.run(&["show", "jobs/a"]).ok().out.contains("run leasehold free"));
    assert_eq!(server.json(&["free", "jobs/a", "--comment", "compared by hand"]), serde_json::json!({ "done": true }));
    server.acquire("jobs/a", "w2");
}

#[test]
fn a_gap_handoff_goes_to_the_named_waiter_after_the_release() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str| {
        spawn_piped(
            &mut server.command(&["acquire", "a", "--holder", holder, "--ttl", "60s", "--wait", "60s", "--json"]),
        )
    };
    let first = wait("first");
    server.wait_for_waiter("a");
    let named = wait("named");
    server.wait_until_resource("a", |show| show["waiters"] == 2);
    let done = server.json(&["handoff", "a", "--to", "named", "--gap", "--drain", "50s"]);
    assert_eq!(done, serde_json::json!({ "done": true }));
    assert_eq!(server.json(&["show", "a"])["leases"][0]["draining"], "handed_off");
    server.run(&["release", "a", "--token", &token]).ok();
    let granted = wait_for_output(named).ok().json();
    assert_eq!(granted["holder"], "named");
    server.run(&["revoke", "a", "--comment", "the end"]).ok();
    assert_eq!(wait_for_output(first).ok().json()["holder"], "first");
}

#[test]
fn an_overlap_handoff_grants_immediately() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let next = spawn_piped(
        &mut server.command(&["acquire", "a", "--holder", "w2", "--ttl", "60s", "--wait", "60s", "--json"]),
    );
    server.wait_for_waiter("a");
    let result = server.run(&["handoff", "a", "--overlap", "--drain", "50s", "--token", &token]).ok();
    assert_eq!(result.out, "handoff of a started\n");
    let granted = wait_for_output(next).ok().json();
    assert!(granted["overlaps_ms"].as_u64().is_some_and(|ms| ms > 0), "{granted}");
    server.run(&["check", "a", "--token", &token]).ok();
    server.run(&["check", "a", "--token", &text(&granted["token"])]).ok();
    assert_eq!(server.run(&["handoff", "a", "--gap", "--overlap"]).exit, 2, "the modes exclude each other");
    server.run(&["handoff", "nothing"]).fails(1, "leasehold: NOT_FOUND{lease}: ");
}

#[test]
fn waiving_without_a_quarantine_fails() {
    let server = Server::start();
    let result = server.run(&["quarantine", "waive", "--comment", "all old holders are off"]);
    result.fails(1, "leasehold: NOT_FOUND{quarantine}: ");
    let result = server.run(&["quarantine", "waive", "--comment", "x", "--json"]);
    assert_eq!(result.problem()["subject"], "quarantine");
    assert_eq!(server.run(&["quarantine", "waive"]).exit, 2, "a comment is required");
}

#[test]
fn what_is_not_found_is_named_with_a_fitting_next_step() {
    let server = Server::start();
    let table: [(&[&str], &str); 4] = [
        (&["step-down"], "only a server over etcd can step down"),
        (&["quarantine", "waive", "--comment", "c"], "there is no quarantine; nothing is left to waive"),
        (&["revoke", "a", "--comment", "c"], "no lease on this resource exists"),
        (&["charter", "remove", "a", "--comment", "c"], "has no charter of its own"),
    ];
    for (command, text) in table {
        let refused = server.run(command).fails(1, "leasehold: NOT_FOUND{");
        assert!(refused.err.contains(text) && !refused.err.contains("check its name or id"), "{refused:?}");
    }
}

#[test]
fn the_longest_ttl_is_changed_recorded_and_logged() {
    let server = Server::start();
    let acquire = |ttl: &str| server.run(&["acquire", "a", "--holder", "w1", "--ttl", ttl, "--json"]);
    acquire("20m").problem();
    let set = |ttl: &str| server.run(&["cluster", "set-max-ttl", ttl, "--comment", "slow\nbatches"]);
    assert_eq!(set("1h").ok().out, "the maximum ttl is 1h\n");
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 3_600_000);
    let token = text(&acquire("20m").ok().json()["token"]);
    set("10m").fails(1, "leasehold: CONFLICT{max_ttl}: a lease, session, ");
    server.run(&["release", "a", "--token", &token]).ok();
    set("10m").ok();
    acquire("20m").problem();
    set("8d").fails(2, "leasehold: INVALID_ARGUMENT{max_ttl}: ");
    let entries = server.json(&["history"])["entries"].clone();
    let changes = entries.as_array().into_iter().flatten().filter(|entry| entry["kind"] == "max_ttl_set");
    let ttls: Vec<_> = changes.map(|entry| (entry["ttl_ms"].clone(), entry["comment"].clone())).collect();
    assert_eq!(ttls, [(600_000.into(), "slow\nbatches".into()), (3_600_000.into(), "slow\nbatches".into())]);
    let line = server.wait_for_log("operator command executed");
    assert!(line.contains("INFO") && line.contains("act=\"set_max_ttl\"") && line.contains("slow\\nbatches"), "{line}");
    let server = server.crash_and_restart();
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 600_000);
    let http = server.http("POST", "/v1/cluster:set_max_ttl", "", r#"{"max_ttl":"2h","comment":"over http"}"#);
    assert!(http.starts_with("HTTP/1.1 200"), "{http}");
    assert_eq!(server.json(&["status"])["max_ttl_ms"], 7_200_000);
}

#[test]
fn acts_of_operators_are_logged() {
    let server = Server::start();
    server.acquire("jobs/a", "w1");
    server.run(&["revoke", "jobs/a", "--comment", "wrong version"]).ok();
    let line = server.wait_for_log("act=\"revoke\"");
    assert!(line.contains("jobs/a") && line.contains("wrong version"), "{line}");
}
