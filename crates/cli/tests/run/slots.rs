//! Slots: so many at a time, and none of them lost however their holders end.

use rustix::process::{Signal, kill_process};

use crate::wrapped::{World, until};

/// How many holders are killed, and how many of them at a time.
fn killed() -> (usize, usize) {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => (32, 16),
        Ok("deep") => (10_000, 50),
        _ => (300, 30),
    }
}

#[test]
fn so_many_run_at_a_time_as_there_are_slots() {
    let world = World::new();
    let script = "echo token $LEASEHOLD_TOKEN; read line";
    let begin = || world.begin(&["run", "a", "--slots", "2", "--wait", "60s"], script);
    let (first, second) = (begin(), begin());
    let slot = |token: String| token.split('-').nth(4).expect("its reach").to_owned();
    let mut slots = [slot(first.hears("token")), slot(second.hears("token"))];
    slots.sort_unstable();
    assert_eq!(slots, ["w00000000", "w00000001"]);
    let third = begin();
    world.server.until_waited_for("a");
    assert!(third.is_silent());
    assert_eq!(first.ends().exit, 1, "read found the end of its input");
    third.hears("token");
    assert_eq!((second.ends().exit, third.ends().exit), (1, 1));
}

#[test]
fn holders_that_are_killed_leak_no_slot_no_process_and_no_directory() {
    let world = World::new();
    let (count, at_a_time) = killed();
    let slots = at_a_time.to_string();
    for round in 0..count / at_a_time {
        let script = "setsid sleep 600 & echo began $$; exec sleep 600";
        let args = ["run", "pool", "--slots", &slots, "--ttl", "5m", "--wait", "60s"];
        let holders: Vec<_> = (0..at_a_time).map(|_| world.begin(&args, script)).collect();
        // All of them at once: every slot of those that were killed before is there again.
        let commands: Vec<_> = holders.iter().map(|holder| holder.process("began")).collect();
        for (at, (holder, command)) in holders.iter().zip(commands).enumerate() {
            // Wrappers and commands in turn.
            let victim = if at % 2 == round % 2 { holder.pid() } else { command };
            kill_process(victim, Signal::KILL).expect("it is there");
        }
        for (at, holder) in holders.into_iter().enumerate() {
            assert_eq!(holder.ends().exit, if at % 2 == round % 2 { -1 } else { 137 });
        }
    }
    world.is_empty();
    until("every slot is free", || world.server.json(&["ls"])["resources"] == serde_json::json!([]));
}
