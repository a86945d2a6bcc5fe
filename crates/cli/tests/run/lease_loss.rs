//! Leases that are lost while their command runs: it receives SIGTERM and then SIGKILL, in time.

use crate::TTL;
use crate::harness::{Fixture, is_alive, wait_until};

/// Exits on SIGTERM.
const EXITS_ON_TERM: &str = "trap 'echo terminated; exit 0' TERM; echo began $$; while :; do sleep 0.01; done";
/// Ignores SIGTERM.
const IGNORES_TERM: &str = "trap 'echo terminated' TERM; echo began $$; while :; do sleep 0.01; done";
/// Exits one second after SIGTERM.
const EXITS_LATE: &str = "trap 'echo terminated; sleep 1; exit 0' TERM; echo began $$; while :; do sleep 0.01; done";

fn revoke(fixture: &Fixture) {
    fixture.server.run(&["revoke", "a", "--comment", "a test"]).ok();
}

#[test]
fn a_command_whose_lease_is_revoked_receives_sigterm_and_then_sigkill() {
    let fixture = Fixture::new();
    for script in [EXITS_ON_TERM, IGNORES_TERM] {
        let wrapped = fixture.start(&["run", "a", "--ttl", "10s", "--grace", "500ms"], script);
        let child = wrapped.wait_pid("began");
        revoke(&fixture);
        wrapped.wait_line("terminated");
        let result = wrapped.wait_exit();
        assert_eq!(result.exit, 3, "{result:?}");
        assert!(result.errors.contains("leasehold: LEASE_LOST{revoked, operator}: "), "{result:?}");
        assert!(!is_alive(child));
    }
    fixture.assert_clean();
}

#[test]
fn on_lost_kill_sends_no_sigterm() {
    let fixture = Fixture::new();
    let wrapped = fixture.start(&["run", "a", "--on-lost", "kill"], EXITS_ON_TERM);
    let child = wrapped.wait_pid("began");
    revoke(&fixture);
    let result = wrapped.wait_exit();
    assert_eq!((result.exit, result.lines.len()), (3, 0), "{result:?}");
    assert!(!is_alive(child));
}

#[test]
fn on_lost_warn_prints_a_warning_and_lets_the_command_continue() {
    let fixture = Fixture::new();
    let mut wrapped = fixture.start(&["run", "a", "--on-lost", "warn"], "echo began; read line; echo done; exit 0");
    wrapped.wait_line("began");
    revoke(&fixture);
    wrapped.wait_stderr("only fences reject");
    wrapped.write_stdin("end\n");
    wrapped.wait_line("done");
    let result = wrapped.wait_exit();
    assert_eq!(result.exit, 3, "its lease was lost: {result:?}");
    fixture.assert_clean();
}

#[test]
fn when_the_server_is_stopped_for_longer_than_the_ttl_the_command_ends_before_the_deadline() {
    let fixture = Fixture::new();
    for (script, terminations) in [(EXITS_ON_TERM, 1), (IGNORES_TERM, 1)] {
        let wrapped = fixture.start(&["run", "a", "--ttl", TTL, "--wait", "60s"], script);
        let child = wrapped.wait_pid("began");
        fixture.server.signal("STOP");
        let result = wrapped.wait_exit();
        assert!(!is_alive(child));
        fixture.server.signal("CONT");
        assert_eq!((result.exit, result.lines.len()), (3, terminations), "{result:?}");
        assert!(result.errors.contains("leasehold: LEASE_LOST: a was not renewed in time"), "{result:?}");
    }
    fixture.assert_clean();
}

#[test]
fn a_short_pause_of_the_server_does_not_affect_the_command() {
    let fixture = Fixture::new();
    let mut wrapped = fixture.start(&["run", "a", "--grace", "500ms"], "echo began; read line; exit 4");
    wrapped.wait_line("began");
    fixture.server.signal("STOP");
    std::thread::sleep(std::time::Duration::from_secs(1));
    fixture.server.signal("CONT");
    wrapped.write_stdin("end\n");
    assert_eq!(wrapped.wait_exit().exit, 4);
}

#[test]
fn in_a_handoff_the_command_ends_before_its_successor_starts() {
    let fixture = Fixture::new();
    for mode in ["--gap", "--overlap"] {
        let first = fixture.start(&["run", "a", "--wait", "60s"], EXITS_LATE);
        let child = first.wait_pid("began");
        let script = format!("kill -0 {} 2>/dev/null && echo alive; echo began", child.as_raw_pid());
        let second = fixture.start(&["run", "a", "--wait", "60s"], &script);
        fixture.server.wait_for_waiter("a");
        fixture.server.run(&["handoff", "a", mode]).ok();
        assert_eq!(second.wait_line(""), "began", "{mode}");
        first.wait_line("terminated");
        assert_eq!((first.wait_exit().exit, second.wait_exit().exit), (3, 0), "{mode}");
    }
}

#[test]
fn an_announced_end_is_reported_with_its_reason() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &str, &str); 2] = [
        (&["revoke", "a", "--grace", "1m", "--comment", "a test"], "revoked", "operator"),
        (&["handoff", "a", "--gap"], "expired", "handed_off"),
    ];
    for (announce, state, reason) in cases {
        for script in [EXITS_ON_TERM, EXITS_LATE] {
            let wrapped = fixture.start(&["run", "a"], script);
            wrapped.wait_line("began");
            fixture.server.run(announce).ok();
            let result = wrapped.wait_exit();
            assert_eq!(result.exit, 3, "{result:?}");
            let prefix = format!("leasehold: LEASE_LOST{{{state}, {reason}}}: ");
            assert!(result.errors.contains(&prefix), "{announce:?}: {result:?}");
        }
        let wrapped = fixture.start(&["run", "a", "--json"], EXITS_ON_TERM);
        wrapped.wait_line("began");
        fixture.server.run(announce).ok();
        let result = wrapped.wait_exit();
        // The shell of the command prints a line of its own.
        let last = result.errors.lines().next_back().unwrap_or_default();
        let problem: serde_json::Value = serde_json::from_str(last).expect("a JSON document");
        assert_eq!((&problem["code"], &problem["state"]), (&"LEASE_LOST".into(), &state.into()), "{result:?}");
        assert_eq!(problem["reason"], reason, "{result:?}");
    }
    fixture.assert_clean();
}

#[test]
fn at_its_maximum_hold_a_command_receives_sigterm_and_its_grace_period() {
    let fixture = Fixture::new();
    let file = fixture.charter("max_hold_ms = 4000");
    fixture.server.run(&["charter", "apply", &file, "--comment", "a test"]).ok();
    let script = "trap 'echo terminated; sleep 0.1; echo cleaned' TERM; echo began; while :; do sleep 0.01; done";
    let result = fixture.start(&["run", "a", "--ttl", "10s", "--grace", "2s"], script).wait_exit();
    assert_eq!((result.exit, result.lines.join(" ").as_str()), (3, "began terminated cleaned"), "{result:?}");
    assert!(result.errors.contains("leasehold: LEASE_LOST{expired, max_hold}: "), "{result:?}");
    std::fs::remove_file(file).expect("it exists");
    fixture.assert_clean();
}

#[test]
fn without_a_server_the_wrapper_exits_with_unavailable() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["run", "a", "--no-wait", "--", "true"]);
    let output = crate::support::run(command.env("LEASEHOLD_ADDR", crate::support::UNUSED_ADDRESS));
    assert_eq!(output.exit, 5, "{output:?}");
    fixture.assert_clean();
}

#[test]
fn a_stopped_command_is_killed_too() {
    let fixture = Fixture::new();
    let wrapped = fixture.start(&["run", "a", "--ttl", TTL], "echo began $$; kill -STOP $$");
    let child = wrapped.wait_pid("began");
    fixture.server.signal("STOP");
    let result = wrapped.wait_exit();
    fixture.server.signal("CONT");
    assert_eq!(result.exit, 3, "{result:?}");
    wait_until("the command is dead", || !is_alive(child));
}
