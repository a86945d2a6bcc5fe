//! `leasehold run --slots`: at most N commands run at a time, and no slot leaks however its holder ends.

use rustix::process::{Signal, kill_process};

use crate::harness::{Fixture, wait_until};

/// The number of killed holders, and how many of them run at a time.
fn kill_counts() -> (usize, usize) {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => (32, 16),
        Ok("deep") => (10_000, 50),
        _ => (300, 30),
    }
}

#[test]
fn at_most_as_many_commands_run_as_there_are_slots() {
    let fixture = Fixture::new();
    let script = "echo token $LEASEHOLD_TOKEN; read line";
    let begin = || fixture.start(&["run", "a", "--slots", "2", "--wait", "60s"], script);
    let (first, second) = (begin(), begin());
    let slot = |token: String| token.split('-').nth(4).expect("its reach").to_owned();
    let mut slots = [slot(first.wait_line("token")), slot(second.wait_line("token"))];
    slots.sort_unstable();
    assert_eq!(slots, ["w00000000", "w00000001"]);
    let third = begin();
    fixture.server.wait_for_waiter("a");
    assert!(third.has_no_output());
    assert_eq!(first.wait_exit().exit, 1, "read found the end of its input");
    third.wait_line("token");
    assert_eq!((second.wait_exit().exit, third.wait_exit().exit), (1, 1));
}

#[test]
fn holders_that_are_killed_leak_no_slot_no_process_and_no_directory() {
    let fixture = Fixture::new();
    let (count, at_a_time) = kill_counts();
    let slots = at_a_time.to_string();
    for round in 0..count / at_a_time {
        let script = "setsid sleep 600 & echo began $$; exec sleep 600";
        let args = ["run", "pool", "--slots", &slots, "--ttl", "5m", "--wait", "60s"];
        let holders: Vec<_> = (0..at_a_time).map(|_| fixture.start(&args, script)).collect();
        // All run at once: every slot of the previously killed holders is free again.
        let commands: Vec<_> = holders.iter().map(|holder| holder.wait_pid("began")).collect();
        for (at, (holder, command)) in holders.iter().zip(commands).enumerate() {
            // Kill wrappers and commands alternately.
            let victim = if at % 2 == round % 2 { holder.pid() } else { command };
            kill_process(victim, Signal::KILL).expect("it runs");
        }
        for (at, holder) in holders.into_iter().enumerate() {
            assert_eq!(holder.wait_exit().exit, if at % 2 == round % 2 { -1 } else { 137 });
        }
    }
    fixture.assert_clean();
    wait_until("every slot is free", || fixture.server.json(&["ls"])["resources"] == serde_json::json!([]));
}
