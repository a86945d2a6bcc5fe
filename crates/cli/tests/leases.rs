//! `acquire`, `renew`, `release` and `check` against a real server.

mod support;

use support::{Server, begin, end, keys, run_with, text};

#[test]
fn a_grant_is_told_with_its_token_to_people_and_to_programs() {
    let server = Server::start();
    let told = server.run(&["acquire", "jobs/settle", "--holder", "w1", "--ttl", "30s"]).ok();
    assert!(told.out.starts_with("resource   jobs/settle\nholder     w1\n"), "{told:?}");
    assert!(told.out.contains("token      lh1-") && told.out.contains("ttl        30.0s"), "{told:?}");
    assert_eq!(told.err, "");

    let grant = server.json(&["acquire", "jobs/other", "--holder", "w1", "--ttl", "1500ms"]);
    let fields = [
        "holder",
        "lease",
        "reason",
        "remaining_ms",
        "resource",
        "rung",
        "slot",
        "state",
        "token",
        "token_number",
        "ttl_ms",
    ];
    assert_eq!(keys(&grant), fields);
    assert_eq!((&grant["resource"], &grant["holder"]), (&"jobs/other".into(), &"w1".into()));
    assert_eq!((&grant["ttl_ms"], &grant["slot"], &grant["state"]), (&1_500.into(), &0.into(), &"held".into()));
    assert!(grant["reason"].is_null() && grant["rung"] == "session" && grant["remaining_ms"].is_u64());
    let parts = server.json(&["token", &text(&grant["token"])]);
    assert_eq!(parts["number"], grant["token_number"], "the number is a text, and the token's");
}

#[test]
fn what_is_held_is_busy_and_a_wait_that_is_over_timed_out() {
    let server = Server::start();
    server.acquire("a", "w1");
    server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s"]).fails(4, "leasehold: BUSY{1}: held by another; ");
    let waited = server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s", "--wait", "50ms"]);
    waited.fails(4, "leasehold: TIMEOUT: not granted within the wait; ");
    let busy = server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s", "--json"]);
    assert_eq!(busy.exit, 4);
    let problem = busy.problem();
    assert_eq!((&problem["code"], &problem["queue_position"]), (&"BUSY".into(), &1.into()));
    assert!(problem["next_step"].is_string() && problem["detail"].is_string());
}

#[test]
fn who_waits_is_granted_when_the_holder_releases_and_the_higher_priority_first() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str, priority: &str| {
        let args =
            ["acquire", "a", "--holder", holder, "--ttl", "60s", "--wait", "60s", "--priority", priority, "--json"];
        begin(&mut server.command(&args))
    };
    let low = wait("low", "1");
    server.until_waited_for("a");
    let high = wait("high", "200");
    server.until("a", |show| show["waiters"] == 2);
    server.run(&["release", "a", "--token", &token]).ok();
    let granted = end(high).ok().json();
    assert_eq!(granted["holder"], "high");
    server.run(&["release", "a", "--token", &text(&granted["token"])]).ok();
    assert_eq!(end(low).ok().json()["holder"], "low");
}

#[test]
fn readers_share_slots_are_numbered_and_units_are_counted() {
    let server = Server::start();
    let acquire = |name: &str, how: &[&str]| {
        let args = [&["acquire", name, "--holder", "w", "--ttl", "60s", "--json"], how].concat();
        server.run(&args)
    };
    for _ in 0..2 {
        assert!(acquire("book", &["--shared"]).ok().json()["slot"].is_null());
    }
    assert_eq!(acquire("book", &[]).exit, 4, "a writer waits for the readers");
    assert_eq!(acquire("pool", &["--slots", "2"]).ok().json()["slot"], 0);
    assert_eq!(acquire("pool", &["--slots", "2"]).ok().json()["slot"], 1);
    acquire("pool", &["--slots", "2"]).fails(4, "{");
    assert!(acquire("pool", &["--slots", "3"]).problem()["code"] != "BUSY", "another capacity is no wait");
    assert!(acquire("one", &["--units", "1"]).ok().json()["slot"].is_null());
    acquire("pool", &["--units", "7"]).fails(7, "{");
    assert_eq!(acquire("x", &["--shared", "--slots", "2"]).exit, 2, "one of them only");
}

#[test]
fn a_token_comes_by_argument_by_standard_input_or_by_environment() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let renewed = server.json(&["renew", "a", "--token", &token]);
    assert_eq!(keys(&renewed), ["remaining_ms", "resource", "state", "token_number"]);
    assert_eq!((&renewed["resource"], &renewed["state"]), (&"a".into(), &"held".into()));
    assert!(server.run(&["renew", "a", "--token", &token, "--ttl", "90s"]).ok().out.contains("remaining  1m"));

    let checked = run_with(&mut server.command(&["check", "a", "--token", "-"]), &format!("{token}\n")).ok();
    assert!(checked.out.contains("state      held"), "{checked:?}");
    let by_env = support::run(server.command(&["release", "a"]).env("LEASEHOLD_TOKEN", &token)).ok();
    assert_eq!(by_env.out, "released a\n");
    let none = server.run(&["release", "a"]);
    assert!(none.exit == 2 && none.err.contains("--token"), "{none:?}");
}

#[test]
fn a_lease_that_is_over_says_why_and_exits_3() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    assert_eq!(server.json(&["release", "a", "--token", &token]), serde_json::json!({ "done": true }));
    for verb in ["check", "renew", "release"] {
        let told = server.run(&[verb, "a", "--token", &token]);
        told.fails(3, "leasehold: LEASE_LOST{expired, released}: ");
    }
    let problem = server.run(&["check", "a", "--token", &token, "--json"]).problem();
    assert_eq!((&problem["code"], &problem["reason"]), (&"LEASE_LOST".into(), &"released".into()));

    let next = server.acquire("a", "w2");
    server.run(&["release", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST{");
    server.run(&["check", "a", "--token", &next]).ok();
}

#[test]
fn another_resources_token_and_another_clusters_are_refused() {
    let (server, other) = (Server::start(), Server::start());
    let token = server.acquire("a", "w1");
    server.acquire("b", "w1");
    server.run(&["check", "b", "--token", &token]).fails(2, "leasehold: TOKEN_INVALID{resource}: ");
    other.run(&["check", "a", "--token", &token]).fails(2, "leasehold: WRONG_CLUSTER: ");
    let changed = token.replace("lh1-", "lh1-f");
    server.run(&["renew", "a", "--token", &changed]).fails(2, "leasehold: TOKEN_INVALID{");
    for text in ["", "x", "-5"] {
        server.run(&["renew", "a", "--token", text]).fails(2, "leasehold: TOKEN_INVALID{");
    }
}

#[test]
fn what_was_granted_is_there_after_the_server_was_killed() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let server = server.again();
    server.run(&["check", "a", "--token", &token]).ok();
    server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s"]).fails(4, "leasehold: BUSY");
}
