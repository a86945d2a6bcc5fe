//! Wrappers that are killed while they wait: what they would have been granted lies with nobody.

use rustix::process::Signal;

use crate::wrapped::World;

/// No end by expiry helps these tests.
const LONG: &str = "5m";

#[test]
fn a_wrapper_that_is_killed_while_it_waits_is_not_granted_afterwards() {
    let world = World::new();
    let mut holder = world.begin(&["run", "a", "--ttl", LONG], "echo began; read line");
    holder.hears("began");
    let waiter = world.begin(&["run", "a", "--ttl", LONG, "--wait", LONG], "echo began");
    world.server.until_waited_for("a");
    waiter.signal(Signal::KILL);
    assert_eq!(waiter.ends().exit, -1);
    world.server.until("a", |shown| shown["waiters"] == 0);
    holder.types("end\n");
    assert_eq!(holder.ends().exit, 0);
    assert_eq!(world.begin(&["run", "a", "--no-wait"], "true").ends().exit, 0, "nobody holds it");
    world.is_empty();
}

#[test]
fn a_candidate_that_is_killed_while_it_waits_is_not_granted_afterwards() {
    let world = World::new();
    let mut holder = world.begin(&["run", "a", "--ttl", LONG], "echo began; read line");
    holder.hears("began");
    let waiter = world.begin(&["elect", "a", "--ttl", LONG], "echo began");
    world.server.until_waited_for("a");
    waiter.signal(Signal::KILL);
    assert_eq!(waiter.ends().exit, -1);
    world.server.until("a", |shown| shown["waiters"] == 0);
    holder.types("end\n");
    assert_eq!(holder.ends().exit, 0);
    assert_eq!(world.begin(&["run", "a", "--no-wait"], "true").ends().exit, 0, "nobody holds it");
    world.is_empty();
}

#[test]
fn a_successor_that_is_killed_before_it_may_claim_leaves_the_lease_to_the_next() {
    let world = World::new();
    let mut first = world.begin(&["run", "a", "--ttl", LONG], "trap '' TERM; echo began; read line");
    first.hears("began");
    let second = world.begin(&["run", "a", "--ttl", LONG, "--wait", LONG], "echo began");
    world.server.until_waited_for("a");
    world.server.run(&["handoff", "a", "--overlap", "--drain", "2m"]).ok();
    world.server.until("a", |shown| shown["waiters"] == 0);
    second.signal(Signal::KILL);
    assert_eq!((second.ends().exit, first.is_silent()), (-1, true));
    let third = world.begin(&["run", "a", "--wait", LONG], "echo began");
    first.types("end\n");
    third.hears("began");
    assert_eq!((first.ends().exit, third.ends().exit), (3, 0));
    world.is_empty();
}
