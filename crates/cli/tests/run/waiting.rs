//! Wrappers that are killed while they wait: the lease is not granted to them afterwards.

use rustix::process::Signal;

use crate::harness::Fixture;

/// Longer than any test, so that expiry does not help.
const LONG: &str = "5m";

#[test]
fn a_wrapper_that_is_killed_while_it_waits_is_not_granted_afterwards() {
    let fixture = Fixture::new();
    let mut holder = fixture.start(&["run", "a", "--ttl", LONG], "echo began; read line");
    holder.wait_line("began");
    let waiter = fixture.start(&["run", "a", "--ttl", LONG, "--wait", LONG], "echo began");
    fixture.server.wait_for_waiter("a");
    waiter.signal(Signal::KILL);
    assert_eq!(waiter.wait_exit().exit, -1);
    fixture.server.wait_until_resource("a", |shown| shown["waiters"] == 0);
    holder.write_stdin("end\n");
    assert_eq!(holder.wait_exit().exit, 0);
    assert_eq!(fixture.start(&["run", "a", "--no-wait"], "true").wait_exit().exit, 0, "no one holds it");
    fixture.assert_clean();
}

#[test]
fn a_candidate_that_is_killed_while_it_waits_is_not_granted_afterwards() {
    let fixture = Fixture::new();
    let mut holder = fixture.start(&["run", "a", "--ttl", LONG], "echo began; read line");
    holder.wait_line("began");
    let waiter = fixture.start(&["elect", "a", "--ttl", LONG], "echo began");
    fixture.server.wait_for_waiter("a");
    waiter.signal(Signal::KILL);
    assert_eq!(waiter.wait_exit().exit, -1);
    fixture.server.wait_until_resource("a", |shown| shown["waiters"] == 0);
    holder.write_stdin("end\n");
    assert_eq!(holder.wait_exit().exit, 0);
    assert_eq!(fixture.start(&["run", "a", "--no-wait"], "true").wait_exit().exit, 0, "no one holds it");
    fixture.assert_clean();
}

#[test]
fn when_a_successor_is_killed_before_it_may_claim_the_next_waiter_gets_the_lease() {
    let fixture = Fixture::new();
    let mut first = fixture.start(&["run", "a", "--ttl", LONG], "trap '' TERM; echo began; read line");
    first.wait_line("began");
    let second = fixture.start(&["run", "a", "--ttl", LONG, "--wait", LONG], "echo began");
    fixture.server.wait_for_waiter("a");
    fixture.server.run(&["handoff", "a", "--overlap", "--drain", "2m"]).ok();
    fixture.server.wait_until_resource("a", |shown| shown["waiters"] == 0);
    second.signal(Signal::KILL);
    assert_eq!((second.wait_exit().exit, first.has_no_output()), (-1, true));
    let third = fixture.start(&["run", "a", "--wait", LONG], "echo began");
    first.write_stdin("end\n");
    third.wait_line("began");
    assert_eq!((first.wait_exit().exit, third.wait_exit().exit), (3, 0));
    fixture.assert_clean();
}
