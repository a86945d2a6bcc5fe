//! Wrappers and minders that are killed or stopped: nothing of a command outlives its lease.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::TTL;
use crate::wrapped::{World, Wrapped, lives, looks_for, until};

/// A command with a grandchild in a session of its own, and one whose parent is gone; none of them ends when asked.
pub const FAMILY: &str = r#"
    trap '' TERM HUP INT
    setsid sh -c 'echo grandchild $$; while :; do sleep 1; done' &
    (setsid sh -c 'echo orphan $$; while :; do sleep 1; done' &)
    echo minder $PPID
    echo child $$
    while :; do sleep 1; done"#;

/// A wrapper with its minder and everyone below.
pub struct Family {
    pub wrapped: Wrapped,
    pub minder: Pid,
    pub below: [Pid; 3],
}

impl Family {
    fn begin(world: &World, ttl: &str) -> Self {
        Self::of(world.begin(&["run", "a", "--ttl", ttl], FAMILY))
    }

    pub fn of(wrapped: Wrapped) -> Self {
        let (mut minder, mut below) = (None, Vec::new());
        while minder.is_none() || below.len() < 3 {
            let line = wrapped.hears("");
            let (who, pid) = line.split_once(' ').expect("a word and a number");
            let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a process");
            if who == "minder" { minder = Some(pid) } else { below.push(pid) }
        }
        let (minder, below) = (minder.expect("it was told"), below.try_into().expect("three"));
        Self { wrapped, minder, below }
    }
}

/// A successor that begins, and finds nobody.
#[track_caller]
fn succeeds(successor: Wrapped) {
    successor.hears("began");
    let ended = successor.ends();
    assert_eq!(ended.exit, 0, "{ended:?}");
}

/// The first word of a successor: it began, and nobody lived.
#[track_caller]
fn finds_nobody(successor: &Wrapped) {
    let first = successor.hears("");
    assert_eq!(first, "began", "somebody of the family lived when the successor began");
}

#[test]
fn a_wrapper_that_is_killed_takes_everyone_along_before_a_successor_begins() {
    let world = World::new();
    // Nobody has to wait for its ttl: the minder gives the lease back when everyone is dead.
    let family = Family::begin(&world, "5m");
    let successor = world.begin(&["run", "a", "--wait", "60s"], &looks_for(&family.below));
    world.server.until_waited_for("a");
    family.wrapped.signal(Signal::KILL);
    finds_nobody(&successor);
    assert!(!family.below.iter().any(|pid| lives(*pid)));
    assert_eq!(successor.ends().exit, 0);
    assert_eq!(family.wrapped.ends().exit, -1);
    world.is_empty();
}

#[test]
fn a_job_that_is_killed_as_a_whole_leaves_nobody_who_left_it_before() {
    let world = World::new();
    let mut job = world.command(&["run", "a", "--ttl", "5m", "--", "sh", "-c", FAMILY]);
    // It has a group of its own, as a shell's jobs have.
    let family = Family::of(Wrapped::begin(&mut job));
    let successor = world.begin(&["run", "a", "--wait", "60s"], &looks_for(&family.below));
    world.server.until_waited_for("a");
    kill_process_group(family.wrapped.pid(), Signal::KILL).expect("it is there");
    finds_nobody(&successor);
    assert_eq!((family.wrapped.ends().exit, successor.ends().exit), (-1, 0));
    world.is_empty();
}

#[test]
fn a_wrapper_that_is_killed_while_no_server_answers_takes_everyone_along_all_the_same() {
    let world = World::new();
    let family = Family::begin(&world, TTL);
    world.server.signal("STOP");
    family.wrapped.signal(Signal::KILL);
    until("everyone is dead", || !family.below.iter().any(|pid| lives(*pid)));
    world.server.signal("CONT");
    world.is_empty();
}

#[test]
fn a_minder_that_is_killed_is_replaced_by_its_wrapper_which_ends_everyone() {
    let world = World::new();
    let family = Family::begin(&world, "5m");
    let successor = world.begin(&["run", "a", "--wait", "60s"], &looks_for(&family.below));
    world.server.until_waited_for("a");
    kill_process(family.minder, Signal::KILL).expect("it is there");
    finds_nobody(&successor);
    let ended = family.wrapped.ends();
    assert_eq!(ended.exit, 1);
    assert!(ended.errors.contains("minder was killed"), "{ended:?}");
    assert_eq!(successor.ends().exit, 0);
    world.is_empty();
}

#[test]
fn a_wrapper_that_stands_still_for_three_ttls_loses_and_its_command_is_dead_before_a_successor_begins() {
    let world = World::new();
    let family = Family::begin(&world, TTL);
    let successor = world.begin(&["run", "a", "--wait", "60s"], &format!("{}; read line", looks_for(&family.below)));
    world.server.until_waited_for("a");
    family.wrapped.signal(Signal::STOP);
    finds_nobody(&successor);
    std::thread::sleep(std::time::Duration::from_secs(12));
    family.wrapped.signal(Signal::CONT);
    let ended = family.wrapped.ends();
    assert_eq!(ended.exit, 3, "{ended:?}");
    assert!(ended.errors.starts_with("leasehold: LEASE_LOST"), "{ended:?}");
    assert_eq!(successor.ends().exit, 1, "read found the end of its input");
    world.is_empty();
}

#[test]
fn where_the_minder_stands_still_too_everyone_dies_when_it_wakes() {
    let world = World::new();
    let family = Family::begin(&world, TTL);
    let successor = world.begin(&["run", "a", "--wait", "60s"], "echo began");
    world.server.until_waited_for("a");
    for pid in [family.wrapped.pid(), family.minder] {
        kill_process(pid, Signal::STOP).expect("it is there");
    }
    // Only a fence holds here, and the page says so.
    succeeds(successor);
    assert!(family.below.iter().all(|pid| lives(*pid)), "nobody was there to end them");
    for pid in [family.minder, family.wrapped.pid()] {
        kill_process(pid, Signal::CONT).expect("it is there");
    }
    until("everyone is dead", || !family.below.iter().any(|pid| lives(*pid)));
    assert_eq!(family.wrapped.ends().exit, 3);
    world.is_empty();
}

#[test]
fn a_command_dies_with_both_its_wrapper_and_its_minder() {
    let world = World::new();
    let wrapped = world.begin(&["run", "a", "--ttl", "5m"], "echo minder $PPID; echo child $$; exec sleep 600");
    let (minder, child) = (wrapped.process("minder"), wrapped.process("child"));
    // The wrapper first, standing still: it must not take the minder's place.
    wrapped.signal(Signal::STOP);
    kill_process(minder, Signal::STOP).expect("it is there");
    wrapped.signal(Signal::KILL);
    kill_process(minder, Signal::KILL).expect("it is there");
    until("the command is dead", || !lives(child));
    assert_eq!(wrapped.ends().exit, -1);
}

#[test]
fn one_that_hops_from_parent_to_child_is_caught() {
    let world = World::new();
    // Each of them lives for a moment only and has no parent but the minder; there are more than a minute's patience waits for.
    let hops = "setsid sh -c 'hop() { [ $1 -gt 0 ] || exit; hop $(($1 - 1)) & exit 0; }; hop 1000000' & ";
    let hops = format!("{hops} echo began; read line; exit 2");
    let mut wrapped = world.begin(&["run", "a"], &hops);
    wrapped.hears("began");
    wrapped.types("end\n");
    assert_eq!(wrapped.ends().exit, 2);
    world.is_empty();
}
