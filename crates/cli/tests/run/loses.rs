//! Leases that are lost while their command runs: it is asked to end, then made to, in time.

use crate::TTL;
use crate::wrapped::{World, lives, until};

/// Says when it is asked to end, and does.
const POLITE: &str = "trap 'echo asked; exit 0' TERM; echo began $$; while :; do sleep 0.01; done";
/// Says when it is asked to end, and does not.
const DEAF: &str = "trap 'echo asked' TERM; echo began $$; while :; do sleep 0.01; done";
/// Says when it is asked to end, and ends a moment later.
const DEAF_FOR_A_WHILE: &str = "trap 'echo asked; sleep 1; exit 0' TERM; echo began $$; while :; do sleep 0.01; done";

fn revoke(world: &World) {
    world.server.run(&["revoke", "a", "--reason", "a test"]).ok();
}

#[test]
fn a_command_whose_lease_is_revoked_is_asked_to_end_and_then_killed() {
    let world = World::new();
    for script in [POLITE, DEAF] {
        let wrapped = world.begin(&["run", "a", "--ttl", "10s", "--grace", "500ms"], script);
        let child = wrapped.process("began");
        revoke(&world);
        wrapped.hears("asked");
        let ended = wrapped.ends();
        assert_eq!(ended.exit, 3, "{ended:?}");
        assert!(ended.errors.contains("leasehold: LEASE_LOST{revoked, operator}: "), "{ended:?}");
        assert!(!lives(child));
    }
    world.is_empty();
}

#[test]
fn on_lost_kill_does_not_ask() {
    let world = World::new();
    let wrapped = world.begin(&["run", "a", "--on-lost", "kill"], POLITE);
    let child = wrapped.process("began");
    revoke(&world);
    let ended = wrapped.ends();
    assert_eq!((ended.exit, ended.lines.len()), (3, 0), "{ended:?}");
    assert!(!lives(child));
}

#[test]
fn on_lost_warn_lets_the_command_go_on_and_says_so() {
    let world = World::new();
    let mut wrapped = world.begin(&["run", "a", "--on-lost", "warn"], "echo began; read line; echo done; exit 0");
    wrapped.hears("began");
    revoke(&world);
    wrapped.complains("only fences stop");
    wrapped.types("end\n");
    wrapped.hears("done");
    let ended = wrapped.ends();
    assert_eq!(ended.exit, 3, "its lease was lost all the same: {ended:?}");
    world.is_empty();
}

#[test]
fn a_server_that_is_silent_for_longer_than_the_ttl_costs_the_command_before_the_deadline() {
    let world = World::new();
    for (script, asked) in [(POLITE, 1), (DEAF, 1)] {
        let wrapped = world.begin(&["run", "a", "--ttl", TTL, "--wait", "60s"], script);
        let child = wrapped.process("began");
        world.server.signal("STOP");
        let ended = wrapped.ends();
        assert!(!lives(child));
        world.server.signal("CONT");
        assert_eq!((ended.exit, ended.lines.len()), (3, asked), "{ended:?}");
        assert!(ended.errors.contains("leasehold: LEASE_LOST: a was not renewed in time"), "{ended:?}");
    }
    world.is_empty();
}

#[test]
fn a_server_that_is_silent_for_a_moment_costs_nothing() {
    let world = World::new();
    let mut wrapped = world.begin(&["run", "a", "--grace", "500ms"], "echo began; read line; exit 4");
    wrapped.hears("began");
    world.server.signal("STOP");
    std::thread::sleep(std::time::Duration::from_secs(1));
    world.server.signal("CONT");
    wrapped.types("end\n");
    assert_eq!(wrapped.ends().exit, 4);
}

#[test]
fn a_lease_that_is_handed_over_is_given_up_by_its_command_before_the_successor_begins() {
    let world = World::new();
    for how in ["--gap", "--overlap"] {
        let first = world.begin(&["run", "a", "--wait", "60s"], DEAF_FOR_A_WHILE);
        let child = first.process("began");
        let script = format!("kill -0 {} 2>/dev/null && echo lives; echo began", child.as_raw_pid());
        let second = world.begin(&["run", "a", "--wait", "60s"], &script);
        world.server.until_waited_for("a");
        world.server.run(&["handoff", "a", how]).ok();
        assert_eq!(second.hears(""), "began", "{how}");
        first.hears("asked");
        assert_eq!((first.ends().exit, second.ends().exit), (3, 0), "{how}");
    }
}

#[test]
fn a_wrapper_finds_no_server_and_says_so() {
    let world = World::new();
    let mut command = world.command(&["run", "a", "--no-wait", "--", "true"]);
    let told = crate::support::run(command.env("LEASEHOLD_ADDR", crate::support::NOBODY));
    assert_eq!(told.exit, 5, "{told:?}");
    world.is_empty();
}

#[test]
fn a_command_that_stands_still_cannot_hold_up_its_end() {
    let world = World::new();
    let wrapped = world.begin(&["run", "a", "--ttl", TTL], "echo began $$; kill -STOP $$");
    let child = wrapped.process("began");
    world.server.signal("STOP");
    let ended = wrapped.ends();
    world.server.signal("CONT");
    assert_eq!(ended.exit, 3, "{ended:?}");
    until("it is dead", || !lives(child));
}
