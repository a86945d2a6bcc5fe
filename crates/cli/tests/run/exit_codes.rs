//! Exit codes, signals and the environment of a command under `leasehold run`.

use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use crate::harness::{Fixture, WrapperProcess, is_alive};
use crate::support::run;

#[test]
fn of_two_wrappers_on_one_resource_one_runs_at_a_time() {
    let fixture = Fixture::new();
    let mut first = fixture.start(&["run", "a"], "echo began; read line; echo received $line");
    first.wait_line("began");
    let second = fixture.start(&["run", "a", "--wait", "60s"], "echo began");
    fixture.server.wait_for_waiter("a");
    assert!(second.has_no_output(), "the first one runs");
    first.write_stdin("end\n");
    assert_eq!(first.wait_line("received"), "end", "standard input is the command's");
    assert_eq!(first.wait_exit().exit, 0);
    second.wait_line("began");
    assert_eq!(second.wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn when_a_command_is_killed_its_lease_is_released_at_once() {
    let fixture = Fixture::new();
    let first = fixture.start(&["run", "a", "--ttl", "5m"], "echo began $$; exec sleep 600");
    let child = first.wait_pid("began");
    let second = fixture.start(&["run", "a", "--ttl", "5m", "--wait", "60s"], "echo began");
    fixture.server.wait_for_waiter("a");
    kill_process(child, Signal::KILL).expect("it runs");
    second.wait_line("began");
    assert_eq!((first.wait_exit().exit, second.wait_exit().exit), (137, 0));
    assert!(fixture.history("a").iter().any(|line| line.contains("released")), "{:?}", fixture.history("a"));
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    let fixture = Fixture::new();
    for (script, exit) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let result = fixture.start(&["run", "a"], script).wait_exit();
        assert_eq!((result.exit, result.errors.as_str()), (exit, ""), "{script}");
    }
    let missing = run(fixture.command(&["run", "a", "--", "no-such-command"]).env("LC_ALL", "C"));
    assert_eq!(missing.exit, 127);
    assert!(missing.err.starts_with("leasehold: no-such-command: command not found; "), "{missing:?}");
    let file = fixture.tmp_dir.path().join("plain");
    std::fs::write(&file, "").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a file");
    let plain = run(fixture.command(&["run", "a", "--"]).arg(&file));
    assert_eq!(plain.exit, 126, "{plain:?}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).expect("a file");
    std::fs::write(&file, "#!/no/such/interpreter\n").expect("a file");
    let unusable = run(fixture.command(&["run", "a", "--"]).arg(&file));
    assert!(unusable.exit == 126 && unusable.err.contains("its interpreter was not found; "), "{unusable:?}");
    std::fs::remove_file(&file).expect("it exists");
    // All these leases were released.
    assert_eq!(fixture.start(&["run", "a", "--no-wait"], "true").wait_exit().exit, 0);
    fixture.assert_clean();
}

#[test]
fn with_json_every_message_is_a_document() {
    let fixture = Fixture::new();
    let missing = run(&mut fixture.command(&["run", "a", "--json", "--", "no-such-command"]));
    assert_eq!(missing.exit, 127, "{missing:?}");
    assert!(missing.problem()["detail"].as_str().is_some_and(|text| text.contains("not found")), "{missing:?}");
    let candidate = fixture.start(&["elect", "a", "--json", "--pause", "10ms"], "echo leads");
    candidate.wait_line("leads");
    candidate.wait_line("leads");
    candidate.signal(Signal::TERM);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    for line in result.errors.lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(message["detail"].is_string(), "{line}");
    }
}

#[test]
fn the_environment_of_a_command_describes_its_lease() {
    let fixture = Fixture::new();
    // Its own release counts as a loss, for which it receives SIGTERM; it must still print its last line.
    let script = r#"
        trap '' TERM
        echo resource $LEASEHOLD_RESOURCE
        echo number $LEASEHOLD_TOKEN_NUMBER
        echo lease $LEASEHOLD_LEASE
        echo mode $(stat -c %a "$(dirname "$LEASEHOLD_SOCKET")")
        "$LEASEHOLD" check a --json
        "$LEASEHOLD" release a && echo released"#;
    let result = fixture.start(&["run", "a", "--ttl", "30s", "--grace", "10s"], script).wait_exit();
    let output = |word: &str| {
        let line = result.lines.iter().find_map(|line| line.strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word} in {result:?}")).to_owned()
    };
    assert_eq!((output("resource "), output("mode ")), ("a".into(), "700".into()));
    assert!(output("{").contains(&format!("\"token_number\":\"{}\"", output("number "))), "{result:?}");
    assert!(output("lease ").contains('.'), "{result:?}");
    // The token in its environment is valid: the command can even release its own lease.
    assert_eq!(output("released a"), "");
    fixture.assert_clean();
}

#[test]
fn in_a_pid_namespace_a_command_runs_if_procfs_shows_it() {
    let fixture = Fixture::new();
    let script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & exit 5";
    let args = ["run", "a", "--", "sh", "-c", script];
    let inside = run(&mut fixture.started_by(&["unshare", "--pid", "--fork", "--mount-proc"], &args));
    assert_eq!((inside.exit, inside.err.as_str()), (5, ""), "{inside:?}");
    let outside = run(&mut fixture.started_by(&["unshare", "--pid", "--fork"], &args));
    outside.fails(78, "leasehold: CONFIG{/proc}: ");
    fixture.assert_clean();
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let fixture = Fixture::new();
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
        let wrapped = fixture.start(&["run", "a", "--wait", "60s"], &script);
        wrapped.wait_line("began");
        wrapped.signal(signal);
        wrapped.wait_line(&format!("got {name}"));
        assert_eq!(wrapped.wait_exit().exit, 5, "{name}");
    }
}

#[test]
fn a_signal_that_nohup_ignores_stays_ignored() {
    let fixture = Fixture::new();
    let script = "trap 'echo got USR1; exit 0' USR1; echo began; while :; do sleep 0.01; done";
    let nohup = ["env", "--default-signal", "--ignore-signal=HUP"];
    let wrapped = WrapperProcess::start(&mut fixture.started_by(&nohup, &["run", "a", "--", "sh", "-c", script]));
    wrapped.wait_line("began");
    wrapped.signal(Signal::HUP);
    wrapped.signal(Signal::USR1);
    wrapped.wait_line("got USR1");
    assert_eq!(wrapped.wait_exit().exit, 0);
}

#[test]
fn a_signal_during_the_wait_cancels_the_wait() {
    let fixture = Fixture::new();
    let holder = fixture.start(&["run", "a"], "echo began; read line");
    holder.wait_line("began");
    for (signal, exit) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let waiter = fixture.start(&["run", "a", "--wait", "60s"], "echo began");
        fixture.server.wait_for_waiter("a");
        waiter.signal(signal);
        let result = waiter.wait_exit();
        assert_eq!((result.exit, result.lines.len()), (exit, 0), "{result:?}");
        fixture.server.wait_until_resource("a", |shown| shown["waiters"] == 0);
    }
    assert_eq!(holder.wait_exit().exit, 1, "read found the end of its input");
    fixture.assert_clean();
}

#[test]
fn descendants_of_a_command_end_with_it() {
    let fixture = Fixture::new();
    let script = "setsid sh -c 'trap \"\" TERM HUP; echo left $$; while :; do sleep 1; done' & read line; exit 3";
    let mut wrapped = fixture.start(&["run", "a"], script);
    let left = wrapped.wait_pid("left");
    wrapped.write_stdin("end\n");
    assert_eq!(wrapped.wait_exit().exit, 3);
    assert!(!is_alive(left), "it is dead before the lease is released");
    fixture.assert_clean();
}

#[test]
fn a_signal_from_the_terminal_reaches_the_command_once() {
    let fixture = Fixture::new();
    let script = r#"n=0; trap 'n=$((n+1)); echo got $n' INT; echo began; until read line; do :; done; echo total $n"#;
    let line = format!("LINE=exec \"$LEASEHOLD\" run a -- sh -c '{}'", script.replace('\'', r"'\''"));
    let typed = r#"exec script -qec "$LINE" /dev/null"#;
    let terminal = ["env", "--default-signal", "SHELL=/bin/sh", &line, "sh", "-c", typed];
    let mut outer = fixture.started_by(&terminal, &[]);
    let mut terminal = WrapperProcess::start(&mut outer);
    terminal.wait_line("began");
    for n in 1..=5 {
        terminal.write_stdin("\x03");
        // The terminal echoes the input before the line.
        terminal.wait_text(&format!("got {n}"));
        // Time for a duplicate to arrive.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    terminal.write_stdin("end\n");
    terminal.wait_text("total 5");
    assert_eq!(terminal.wait_exit().exit, 0);
}

#[test]
fn a_signal_to_a_wrapper_in_the_foreground_of_a_terminal_is_forwarded() {
    let fixture = Fixture::new();
    let script =
        r#"trap 'echo got INT' INT; echo wrapper $(ps -o ppid= -p $PPID); until read line; do :; done; echo done"#;
    let line = format!("LINE=exec \"$LEASEHOLD\" run a -- sh -c '{}'", script.replace('\'', r"'\''"));
    let typed = r#"exec script -qec "$LINE" /dev/null"#;
    let terminal = ["env", "--default-signal", "SHELL=/bin/sh", &line, "sh", "-c", typed];
    let mut terminal = WrapperProcess::start(&mut fixture.started_by(&terminal, &[]));
    let wrapper = terminal.wait_pid("wrapper");
    kill_process(wrapper, Signal::INT).expect("it runs");
    terminal.wait_text("got INT");
    terminal.write_stdin("end\n");
    terminal.wait_text("done");
    assert_eq!(terminal.wait_exit().exit, 0);
}
