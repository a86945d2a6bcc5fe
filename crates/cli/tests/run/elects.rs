//! Candidates: one leads, and another takes over.

use rustix::process::{Signal, kill_process};

use crate::TTL;
use crate::support::run;
use crate::wrapped::{World, lives, until};

const LEADS: &str = "echo leads $$; while :; do sleep 0.01; done";

#[test]
fn one_of_two_candidates_leads_and_the_other_takes_over_when_it_resigns() {
    let world = World::new();
    let first = world.begin(&["elect", "a", "--ttl", "1m"], LEADS);
    let leader = first.process("leads");
    let second = world.begin(&["elect", "a", "--ttl", "1m"], LEADS);
    world.server.until_waited_for("a");
    assert!(second.is_silent());
    first.signal(Signal::TERM);
    let ended = first.ends();
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert!(!lives(leader));
    second.hears("leads");
    second.signal(Signal::INT);
    assert_eq!(second.ends().exit, 0);
    world.is_empty();
}

#[test]
fn a_candidate_whose_command_ends_stands_again() {
    let world = World::new();
    let candidate = world.begin(&["elect", "a", "--pause", "10ms"], "echo leads $$; exit 1");
    let (first, second, third) = (candidate.process("leads"), candidate.process("leads"), candidate.process("leads"));
    assert!(first != second && second != third && first != third);
    candidate.signal(Signal::TERM);
    let ended = candidate.ends();
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert!(ended.errors.contains("the command ended with 1; stands again"), "{ended:?}");
    world.is_empty();
}

#[test]
fn a_leader_whose_command_is_killed_makes_room_for_the_other() {
    let world = World::new();
    let first = world.begin(&["elect", "a", "--ttl", "1m", "--pause", "1m"], LEADS);
    let leader = first.process("leads");
    let second = world.begin(&["elect", "a", "--ttl", "1m"], LEADS);
    world.server.until_waited_for("a");
    kill_process(leader, Signal::KILL).expect("it is there");
    second.hears("leads");
    // In its pause it can be asked to end as well.
    for candidate in [first, second] {
        candidate.signal(Signal::TERM);
        assert_eq!(candidate.ends().exit, 0);
    }
}

#[test]
fn a_leader_that_cannot_renew_ends_its_command_and_leads_again_when_it_can() {
    let world = World::new();
    let candidate = world.begin(&["elect", "a", "--ttl", TTL, "--pause", "10ms"], LEADS);
    let before = candidate.process("leads");
    world.server.signal("STOP");
    until("the command is ended", || !lives(before));
    world.server.signal("CONT");
    assert_ne!(candidate.process("leads"), before);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.ends().exit, 0);
}

#[test]
fn a_leader_that_was_revoked_does_not_stand_again() {
    let world = World::new();
    let candidate = world.begin(&["elect", "a"], LEADS);
    candidate.hears("leads");
    world.server.run(&["revoke", "a", "--reason", "a test"]).ok();
    let ended = candidate.ends();
    assert_eq!(ended.exit, 3, "{ended:?}");
    assert!(ended.errors.contains("LEASE_LOST{revoked, operator}"), "{ended:?}");
}

#[test]
fn other_signals_are_the_commands() {
    let world = World::new();
    let script = "trap 'echo got USR1' USR1; echo leads $$; while :; do sleep 0.01; done";
    let candidate = world.begin(&["elect", "a"], script);
    candidate.hears("leads");
    candidate.signal(Signal::USR1);
    candidate.hears("got USR1");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.ends().exit, 0);
}

#[test]
fn a_command_that_cannot_be_started_ends_the_candidacy() {
    let world = World::new();
    let told = run(&mut world.command(&["elect", "a", "--", "no-such-command"]));
    assert_eq!(told.exit, 127, "{told:?}");
    assert_eq!(world.begin(&["run", "a", "--no-wait"], "true").ends().exit, 0, "it was given back");
}

#[test]
fn a_command_that_ends_as_shells_do_without_one_is_not_taken_for_missing() {
    let world = World::new();
    for exit in [126, 127] {
        let candidate = world.begin(&["elect", "a", "--pause", "10ms"], &format!("echo leads $$; exit {exit}"));
        assert_ne!(candidate.process("leads"), candidate.process("leads"));
        candidate.signal(Signal::TERM);
        assert_eq!(candidate.ends().exit, 0);
    }
    world.is_empty();
}

#[test]
fn a_leader_whose_minder_is_killed_ends_its_command_and_stands_again() {
    let world = World::new();
    let candidate = world.begin(&["elect", "a", "--pause", "10ms"], &format!("echo minder $PPID; {LEADS}"));
    let (minder, before) = (candidate.process("minder"), candidate.process("leads"));
    kill_process(minder, Signal::KILL).expect("it is there");
    assert_ne!(candidate.process("leads"), before);
    assert!(!lives(before));
    candidate.complains("minder was killed; the command was ended; stands again");
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.ends().exit, 0);
    world.is_empty();
}

#[test]
fn a_candidate_that_loses_before_it_may_claim_stands_again_and_never_says_that_it_leads() {
    let world = World::new();
    let mut first = world.begin(&["run", "a", "--ttl", "1m"], "trap '' TERM; echo began; read line");
    first.hears("began");
    let candidate = world.begin(&["elect", "a", "--ttl", TTL, "--pause", "10ms"], LEADS);
    world.server.until_waited_for("a");
    world.server.run(&["handoff", "a", "--overlap", "--drain", "1m"]).ok();
    world.server.until("a", |shown| shown["waiters"] == 0);
    candidate.signal(Signal::STOP);
    until("its lease is over", || world.ends("a").iter().any(|line| line.contains("ttl")));
    candidate.signal(Signal::CONT);
    candidate.complains("stands again");
    first.types("end\n");
    candidate.hears("leads");
    candidate.signal(Signal::TERM);
    let ended = candidate.ends();
    assert_eq!(ended.exit, 0, "{ended:?}");
    let said = |what: &str| ended.errors.find(what).unwrap_or_else(|| panic!("{what}: {ended:?}"));
    assert!(said("stands again") < said("leads under"), "{ended:?}");
    assert_eq!(ended.errors.matches("leads under").count(), 1, "{ended:?}");
    world.is_empty();
}
