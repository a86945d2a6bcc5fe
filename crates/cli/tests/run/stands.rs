//! A minder that stands still alone: its wrapper has the same deadline, and ends everyone itself.

use rustix::process::{Signal, kill_process};

use crate::TTL;
use crate::ends::Family;
use crate::support::NOBODY;
use crate::way::Way;
use crate::wrapped::{World, Wrapped, lives, looks_for, stands, until};

#[test]
fn a_minder_that_stands_still_does_not_save_a_command_whose_lease_is_revoked() {
    let world = World::new();
    for on_lost in ["term", "kill"] {
        let args = ["run", "a", "--ttl", "10s", "--grace", "500ms", "--on-lost", on_lost];
        let family = Family::of(world.begin(&args, crate::ends::FAMILY));
        kill_process(family.minder, Signal::STOP).expect("it is there");
        until("the minder stands", || stands(family.minder));
        world.server.run(&["revoke", "a", "--reason", "a test"]).ok();
        let ended = family.wrapped.ends();
        assert_eq!(ended.exit, 3, "{ended:?}");
        assert!(!family.below.iter().any(|pid| lives(*pid)), "nobody outlives the wrapper");
        assert!(!lives(family.minder));
        assert!(ended.errors.contains("stands still"), "{ended:?}");
    }
    world.is_empty();
}

#[test]
fn a_minder_that_stands_still_does_not_save_a_command_whose_wrapper_is_cut_off() {
    let world = World::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let way = runtime.block_on(Way::to(&world.server.address));
    let mut first = world.command(&["run", "a", "--ttl", TTL, "--", "sh", "-c", crate::ends::FAMILY]);
    let family = Family::of(Wrapped::begin(first.env("LEASEHOLD_ADDR", &way.address)));
    let successor = world.begin(&["run", "a", "--wait", "60s"], &looks_for(&family.below));
    world.server.until_waited_for("a");
    kill_process(family.minder, Signal::STOP).expect("it is there");
    until("the minder stands", || stands(family.minder));
    way.leads_to(NOBODY);
    way.cut();
    assert_eq!(successor.hears(""), "began", "somebody of the family lived when the successor began");
    assert_eq!(successor.ends().exit, 0);
    let ended = family.wrapped.ends();
    assert_eq!(ended.exit, 3, "{ended:?}");
    world.is_empty();
}

#[test]
fn a_leader_whose_minder_stands_still_resigns_all_the_same() {
    let world = World::new();
    let family = Family::of(world.begin(&["elect", "a", "--ttl", "1m", "--grace", "500ms"], crate::ends::FAMILY));
    kill_process(family.minder, Signal::STOP).expect("it is there");
    until("the minder stands", || stands(family.minder));
    family.wrapped.signal(Signal::TERM);
    let ended = family.wrapped.ends();
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert!(!family.below.iter().any(|pid| lives(*pid)));
    world.is_empty();
}

#[test]
fn a_minder_that_stands_still_until_nothing_more_can_be_said_to_it_holds_up_nobody() {
    let world = World::new();
    let wrapped = world.begin(&["run", "a", "--ttl", "10s"], "echo minder $PPID; echo child $$; exec sleep 600");
    let (minder, child) = (wrapped.process("minder"), wrapped.process("child"));
    kill_process(minder, Signal::STOP).expect("it is there");
    until("the minder stands", || stands(minder));
    // Each is passed on, and the socket to the minder has room for some hundreds.
    for _ in 0..2_000 {
        wrapped.signal(Signal::USR1);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    world.server.run(&["revoke", "a", "--reason", "a test"]).ok();
    assert_eq!(wrapped.ends().exit, 3);
    assert!(!lives(child));
    world.is_empty();
}
