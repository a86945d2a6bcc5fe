//! A command that ends, by itself or by somebody's hand: its code is passed on, and the next one starts.

use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use crate::support::run;
use crate::wrapped::{World, Wrapped, lives};

#[test]
fn of_two_wrappers_with_one_name_one_runs_at_a_time() {
    let world = World::new();
    let mut first = world.begin(&["run", "a"], "echo began; read line; echo heard $line");
    first.hears("began");
    let second = world.begin(&["run", "a", "--wait", "60s"], "echo began");
    world.server.until_waited_for("a");
    assert!(second.is_silent(), "the first one runs");
    first.types("end\n");
    assert_eq!(first.hears("heard"), "end", "standard input is the command's");
    assert_eq!(first.ends().exit, 0);
    second.hears("began");
    assert_eq!(second.ends().exit, 0);
    world.is_empty();
}

#[test]
fn a_command_that_is_killed_makes_room_at_once_although_its_ttl_is_long() {
    let world = World::new();
    let first = world.begin(&["run", "a", "--ttl", "5m"], "echo began $$; exec sleep 600");
    let child = first.process("began");
    let second = world.begin(&["run", "a", "--ttl", "5m", "--wait", "60s"], "echo began");
    world.server.until_waited_for("a");
    kill_process(child, Signal::KILL).expect("it is there");
    second.hears("began");
    assert_eq!((first.ends().exit, second.ends().exit), (137, 0));
    assert!(world.ends("a").iter().any(|line| line.contains("released")), "{:?}", world.ends("a"));
}

#[test]
fn the_code_of_a_command_is_passed_on() {
    let world = World::new();
    for (script, exit) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let ended = world.begin(&["run", "a"], script).ends();
        assert_eq!((ended.exit, ended.errors.as_str()), (exit, ""), "{script}");
    }
    let missing = run(world.command(&["run", "a", "--", "no-such-command"]).env("LC_ALL", "C"));
    assert_eq!(missing.exit, 127);
    assert!(missing.err.starts_with("leasehold: no-such-command: no such command; "), "{missing:?}");
    let file = world.room.path().join("plain");
    std::fs::write(&file, "").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a file");
    let plain = run(world.command(&["run", "a", "--"]).arg(&file));
    assert_eq!(plain.exit, 126, "{plain:?}");
    std::fs::remove_file(&file).expect("it is there");
    // Nothing of this kept the lease.
    assert_eq!(world.begin(&["run", "a", "--no-wait"], "true").ends().exit, 0);
    world.is_empty();
}

#[test]
fn a_command_finds_its_lease_in_its_environment() {
    let world = World::new();
    // What it loses by its own release it is asked to end for; it has something to say before.
    let script = r#"
        trap '' TERM
        echo resource $LEASEHOLD_RESOURCE
        echo number $LEASEHOLD_TOKEN_NUMBER
        echo lease $LEASEHOLD_LEASE
        echo mode $(stat -c %a "$(dirname "$LEASEHOLD_SOCKET")")
        "$LEASEHOLD" check a --json
        "$LEASEHOLD" release a && echo released"#;
    let ended = world.begin(&["run", "a", "--ttl", "30s", "--grace", "10s"], script).ends();
    let told = |word: &str| {
        let line = ended.lines.iter().find_map(|line| line.strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word} in {ended:?}")).to_owned()
    };
    assert_eq!((told("resource "), told("mode ")), ("a".into(), "700".into()));
    assert!(told("{").contains(&format!("\"token_number\":\"{}\"", told("number "))), "{ended:?}");
    assert!(told("lease ").contains('.'), "{ended:?}");
    // The token in its hands is the lease's: it can even give it back, and that is a loss to its wrapper.
    assert_eq!(told("released a"), "");
    world.is_empty();
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let world = World::new();
    let signals = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ];
    for (name, signal) in signals {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo began; while :; do sleep 0.01; done");
        let wrapped = world.begin(&["run", "a", "--wait", "60s"], &script);
        wrapped.hears("began");
        wrapped.signal(signal);
        wrapped.hears(&format!("got {name}"));
        assert_eq!(wrapped.ends().exit, 5, "{name}");
    }
}

#[test]
fn what_nohup_ignores_stays_ignored() {
    let world = World::new();
    let script = "trap 'echo got USR1; exit 0' USR1; echo began; while :; do sleep 0.01; done";
    let nohup = ["env", "--default-signal", "--ignore-signal=HUP"];
    let wrapped = Wrapped::begin(&mut world.under(&nohup, &["run", "a", "--", "sh", "-c", script]));
    wrapped.hears("began");
    wrapped.signal(Signal::HUP);
    wrapped.signal(Signal::USR1);
    wrapped.hears("got USR1");
    assert_eq!(wrapped.ends().exit, 0);
}

#[test]
fn a_signal_while_it_waits_takes_the_wait_back() {
    let world = World::new();
    let holder = world.begin(&["run", "a"], "echo began; read line");
    holder.hears("began");
    for (signal, exit) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let waiter = world.begin(&["run", "a", "--wait", "60s"], "echo began");
        world.server.until_waited_for("a");
        waiter.signal(signal);
        let ended = waiter.ends();
        assert_eq!((ended.exit, ended.lines.len()), (exit, 0), "{ended:?}");
        world.server.until("a", |shown| shown["waiters"] == 0);
    }
    assert_eq!(holder.ends().exit, 1, "read found the end of its input");
    world.is_empty();
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let world = World::new();
    let script = "setsid sh -c 'trap \"\" TERM HUP; echo left $$; while :; do sleep 1; done' & read line; exit 3";
    let mut wrapped = world.begin(&["run", "a"], script);
    let left = wrapped.process("left");
    wrapped.types("end\n");
    assert_eq!(wrapped.ends().exit, 3);
    assert!(!lives(left), "it was dead before the lease was given back");
    world.is_empty();
}

#[test]
fn what_is_typed_at_a_terminal_reaches_the_command_once() {
    let world = World::new();
    let script = r#"n=0; trap 'n=$((n+1)); echo got $n' INT; echo began; until read line; do :; done; echo total $n"#;
    let line = format!("LINE=exec \"$LEASEHOLD\" run a -- sh -c '{}'", script.replace('\'', r"'\''"));
    let typed = r#"exec script -qec "$LINE" /dev/null"#;
    let terminal = ["env", "--default-signal", "SHELL=/bin/sh", &line, "sh", "-c", typed];
    let mut outer = world.under(&terminal, &[]);
    let mut terminal = Wrapped::begin(&mut outer);
    terminal.hears("began");
    for n in 1..=5 {
        terminal.types("\x03");
        // The terminal shows what is typed in front of it.
        terminal.shows(&format!("got {n}"));
        // Time for a second one to come, if there were one.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    terminal.types("end\n");
    terminal.shows("total 5");
    assert_eq!(terminal.ends().exit, 0);
}

#[test]
fn what_is_sent_to_a_wrapper_in_the_foreground_of_a_terminal_is_passed_on_too() {
    let world = World::new();
    let script =
        r#"trap 'echo got INT' INT; echo wrapper $(ps -o ppid= -p $PPID); until read line; do :; done; echo done"#;
    let line = format!("LINE=exec \"$LEASEHOLD\" run a -- sh -c '{}'", script.replace('\'', r"'\''"));
    let typed = r#"exec script -qec "$LINE" /dev/null"#;
    let terminal = ["env", "--default-signal", "SHELL=/bin/sh", &line, "sh", "-c", typed];
    let mut terminal = Wrapped::begin(&mut world.under(&terminal, &[]));
    let wrapper = terminal.process("wrapper");
    kill_process(wrapper, Signal::INT).expect("it is there");
    terminal.shows("got INT");
    terminal.types("end\n");
    terminal.shows("done");
    assert_eq!(terminal.ends().exit, 0);
}
