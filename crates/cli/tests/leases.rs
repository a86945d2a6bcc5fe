//! `acquire`, `renew`, `release` and `check` against a real server.

mod support;

use support::{Server, keys, run_with_stdin, spawn_piped, text, wait_for_output};

#[test]
fn a_grant_is_printed_with_its_token_as_text_and_as_json() {
    let server = Server::start();
    let result = server.run(&["acquire", "jobs/settle", "--holder", "w1", "--ttl", "30s"]).ok();
    assert!(result.out.starts_with("resource   jobs/settle\nholder     w1\n"), "{result:?}");
    assert!(result.out.contains("token      lh1-") && result.out.contains("ttl        30s"), "{result:?}");
    assert_eq!(result.err, "");

    let grant = server.json(&["acquire", "jobs/other", "--holder", "w1", "--ttl", "1500ms"]);
    let fields = [
        "drain_ms",
        "holder",
        "lease",
        "reason",
        "remaining_ms",
        "resource",
        "secret",
        "slot",
        "state",
        "token",
        "token_number",
        "ttl_ms",
        "validity",
    ];
    assert_eq!(keys(&grant), fields);
    assert_eq!((&grant["resource"], &grant["holder"]), (&"jobs/other".into(), &"w1".into()));
    assert_eq!((&grant["ttl_ms"], &grant["slot"], &grant["state"]), (&1_500.into(), &0.into(), &"held".into()));
    assert!(grant["reason"].is_null() && grant["validity"] == "session" && grant["remaining_ms"].is_u64());
    let parts = server.json(&["token", &text(&grant["token"])]);
    assert_eq!(parts["number"], grant["token_number"], "the number is a string and matches the token");
}

#[test]
fn with_quiet_only_the_token_is_printed() {
    let server = Server::start();
    let result = server.run(&["acquire", "a", "--holder", "w1", "--ttl", "30s", "-q"]).ok();
    assert!(result.out.starts_with("lh1-") && result.out.lines().count() == 1, "{result:?}");
    server.run(&["check", "a", "--token", result.out.trim()]).ok();
    server.run(&["acquire", "b", "--holder", "w1", "--ttl", "30s", "--quiet", "--json"]).fails(2, "{");
}

#[test]
fn a_held_resource_is_busy_and_a_wait_times_out() {
    let server = Server::start();
    server.acquire("a", "w1");
    let busy = server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s"]);
    let busy = busy.fails(4, "leasehold: BUSY: held by w1 for ");
    assert!(busy.err.contains(" left unless renewed (queue position 1); wait"), "{busy:?}");
    let waited = server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s", "--wait", "50ms"]);
    waited.fails(4, "leasehold: TIMEOUT: not granted within the wait; ");
    let busy = server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s", "--json"]);
    assert_eq!(busy.exit, 4);
    let problem = busy.problem();
    assert_eq!((&problem["code"], &problem["queue_position"]), (&"BUSY".into(), &1.into()));
    assert_eq!(problem["holder"], "w1");
    assert!(problem["remaining_ms"].as_u64().is_some_and(|ms| (1..=60_000).contains(&ms)), "{problem}");
    assert!(problem["held_ms"].is_u64(), "{problem}");
    assert!(problem["next_step"].is_string() && problem["detail"].is_string());
}

#[test]
fn a_release_grants_the_waiter_with_the_highest_priority_first() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let wait = |holder: &str, priority: &str| {
        let args =
            ["acquire", "a", "--holder", holder, "--ttl", "60s", "--wait", "60s", "--priority", priority, "--json"];
        spawn_piped(&mut server.command(&args))
    };
    let low = wait("low", "1");
    server.wait_for_waiter("a");
    let high = wait("high", "200");
    server.wait_until_resource("a", |show| show["waiters"] == 2);
    server.run(&["release", "a", "--token", &token]).ok();
    let granted = wait_for_output(high).ok().json();
    assert_eq!(granted["holder"], "high");
    server.run(&["release", "a", "--token", &text(&granted["token"])]).ok();
    assert_eq!(wait_for_output(low).ok().json()["holder"], "low");
}

#[test]
fn shared_slot_and_unit_leases_are_granted_within_capacity() {
    let server = Server::start();
    let acquire = |name: &str, options: &[&str]| {
        let args = [&["acquire", name, "--holder", "w", "--ttl", "60s", "--json"], options].concat();
        server.run(&args)
    };
    for _ in 0..2 {
        assert!(acquire("book", &["--shared"]).ok().json()["slot"].is_null());
    }
    assert_eq!(acquire("book", &[]).exit, 4, "a writer waits for the readers");
    assert_eq!(acquire("pool", &["--slots", "2"]).ok().json()["slot"], 0);
    assert_eq!(acquire("pool", &["--slots", "2"]).ok().json()["slot"], 1);
    acquire("pool", &["--slots", "2"]).fails(4, "{");
    assert!(
        acquire("pool", &["--slots", "3"]).problem()["code"] != "BUSY",
        "a different capacity is an error, not a wait"
    );
    assert!(acquire("one", &["--units", "1"]).ok().json()["slot"].is_null());
    acquire("pool", &["--units", "7"]).fails(7, "{");
    assert_eq!(acquire("x", &["--shared", "--slots", "2"]).exit, 2, "the options exclude each other");
}

#[test]
fn a_token_is_read_from_an_argument_standard_input_or_the_environment() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let renewed = server.json(&["renew", "a", "--token", &token]);
    assert_eq!(keys(&renewed), ["remaining_ms", "resource", "state", "token_number"]);
    assert_eq!((&renewed["resource"], &renewed["state"]), (&"a".into(), &"held".into()));
    assert!(server.run(&["renew", "a", "--token", &token, "--ttl", "90s"]).ok().out.contains("remaining  1m"));

    let checked = run_with_stdin(&mut server.command(&["check", "a", "--token", "-"]), &format!("{token}\n")).ok();
    assert!(checked.out.contains("state      held"), "{checked:?}");
    let by_env = support::run(server.command(&["release", "a"]).env("LEASEHOLD_TOKEN", &token)).ok();
    assert_eq!(by_env.out, "released a\n");
    let none = server.run(&["release", "a"]);
    assert!(none.exit == 2 && none.err.contains("--token"), "{none:?}");
}

#[test]
fn commands_on_an_ended_lease_report_the_reason_and_exit_with_3() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    assert_eq!(server.json(&["release", "a", "--token", &token]), serde_json::json!({ "done": true }));
    for verb in ["check", "renew", "release"] {
        let result = server.run(&[verb, "a", "--token", &token]);
        result.fails(3, "leasehold: LEASE_LOST{released, released}: ");
    }
    let problem = server.run(&["check", "a", "--token", &token, "--json"]).problem();
    assert_eq!((&problem["code"], &problem["reason"]), (&"LEASE_LOST".into(), &"released".into()));

    let next = server.acquire("a", "w2");
    server.run(&["release", "a", "--token", &token]).fails(3, "leasehold: LEASE_LOST{");
    server.run(&["check", "a", "--token", &next]).ok();
}

#[test]
fn tokens_of_other_resources_and_clusters_are_rejected() {
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
fn a_grant_survives_a_killed_server() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let server = server.crash_and_restart();
    server.run(&["check", "a", "--token", &token]).ok();
    server.run(&["acquire", "a", "--holder", "w2", "--ttl", "1s"]).fails(4, "leasehold: BUSY");
}

#[test]
fn a_ttl_that_is_too_long_is_refused_with_its_bound() {
    let server = Server::start();
    let refused = server.run(&["acquire", "a", "--holder", "w1", "--ttl", "11m"]);
    let refused = refused.fails(2, "leasehold: INVALID_ARGUMENT{ttl}: ttl: 11m is not allowed; ");
    assert!(refused.err.contains("the cluster allows 100ms to 10m"), "{refused:?}");
}

#[test]
fn an_exclusive_lease_shows_no_units() {
    let server = Server::start();
    server.acquire("a", "w1");
    let shown = server.run(&["show", "a"]).ok().out;
    assert!(!shown.contains("units") && shown.contains("held      1"), "{shown}");
    server.run(&["acquire", "pool", "--holder", "w1", "--ttl", "60s", "--slots", "3"]).ok();
    assert!(server.run(&["show", "pool"]).ok().out.contains("units     1 of 3"));
}

#[test]
fn an_interrupted_wait_is_withdrawn() {
    let server = Server::start();
    let token = server.acquire("a", "w1");
    let mut waiting = server.command(&["acquire", "a", "--holder", "w2", "--ttl", "60s", "--wait", "10m"]);
    let waiting = spawn_piped(&mut waiting);
    server.wait_for_waiter("a");
    let pid = rustix::process::Pid::from_raw(waiting.id() as i32).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the process runs");
    wait_for_output(waiting).fails(4, "leasehold: CANCELLED: interrupted; ");
    server.wait_until_resource("a", |show| show["waiters"] == 0);
    server.run(&["release", "a", "--token", &token]).ok();
    assert_eq!(server.json(&["ls"])["resources"].as_array().map(Vec::len), Some(0), "granted to no one");
}
