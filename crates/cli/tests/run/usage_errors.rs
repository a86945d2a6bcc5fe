//! Usage errors are reported before a lease is acquired, with their exit code and the next step.

use crate::harness::Fixture;
use crate::support::{leasehold, run};

#[test]
fn invalid_arguments_are_rejected_and_nothing_runs() {
    let fixture = Fixture::new();
    let long = "n".repeat(513);
    let table: &[(&[&str], i32, &str)] = &[
        (&["run", "a"], 2, "COMMAND"),
        (&["run", "a", "true"], 2, "--"),
        (&["run", "--", "touch"], 2, "RESOURCE"),
        (&["run", "a", "--ttl", "10", "--"], 2, "10s"),
        (&["run", "a", "--ttl", "0s", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "99ms", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "11m", "--"], 2, "INVALID_ARGUMENT{ttl"),
        (&["run", "a", "--ttl", "8d", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "18446744073709551615ms", "--"], 2, "INVALID_ARGUMENT{ttl}"),
        (&["run", "a", "--ttl", "10s", "--grace", "10s", "--"], 2, "INVALID_ARGUMENT{grace}"),
        (&["run", "a", "--ttl", "1s", "--grace", "501ms", "--"], 2, "INVALID_ARGUMENT{grace}"),
        (&["run", "a", "--grace=-1s", "--"], 2, "10s"),
        (&["run", "a", "--wait", "25h", "--"], 2, "INVALID_ARGUMENT{wait}"),
        (&["run", "a", "--wait", "1s", "--no-wait", "--"], 2, "--no-wait"),
        (&["run", "a", "--slots", "0", "--"], 2, "INVALID_ARGUMENT{"),
        (&["run", "a", "--slots=-1", "--"], 2, "--slots"),
        (&["run", "a", "--progress", "1ms", "--"], 2, "INVALID_ARGUMENT{progress}"),
        (&["run", "a", "--on-lost", "unknown", "--"], 2, "term"),
        (&["run", "a", "--exit-code-busy", "256", "--"], 2, "--exit-code-busy"),
        (&["run", "a", "--holder", "", "--"], 2, "INVALID_ARGUMENT{holder}"),
        (&["run", "", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", &long, "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", "a//b", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["run", "_sys/a", "--"], 6, "PERMISSION_DENIED"),
        (&["run", "a", "--addr", "nowhere", "--"], 78, "CONFIG{addr}"),
        (&["elect", "a"], 2, "COMMAND"),
        (&["elect", "a", "--wait", "1s", "--"], 2, "--wait"),
        (&["elect", "a", "--pause", "1", "--"], 2, "10s"),
        (&["elect", "a//b", "--"], 2, "INVALID_ARGUMENT{resource}"),
        (&["elect", "a", "--ttl", "1s", "--grace", "1s", "--"], 2, "INVALID_ARGUMENT{grace}"),
    ];
    let mark = fixture.tmp_dir.path().join("mark");
    for (args, exit, output) in table {
        let mut command = fixture.command(args);
        if args.last() == Some(&"--") {
            command.arg("touch").arg(&mark);
        }
        let refused = run(&mut command);
        assert_eq!(refused.exit, *exit, "{args:?}: {refused:?}");
        assert!(refused.err.contains(output) && refused.out.is_empty(), "{args:?}: {refused:?}");
        assert!(!mark.exists(), "{args:?} ran its command");
    }
    assert_eq!(fixture.server.json(&["ls"])["resources"], serde_json::json!([]), "nothing was taken");
    fixture.assert_clean();
}

#[test]
fn a_ttl_that_the_cluster_never_grants_is_refused_at_once_with_the_limit() {
    let fixture = Fixture::new();
    // The wait is longer than any test, so only the refusal can end it.
    for args in [&["run", "a", "--ttl", "1h", "--wait", "24h"][..], &["elect", "a", "--ttl", "1h"]] {
        let result = fixture.start(args, "echo ran").wait_exit();
        assert_eq!((result.exit, result.lines.len()), (2, 0), "{args:?}: {result:?}");
        let refusal = "leasehold: INVALID_ARGUMENT{ttl}: ttl: 1h is not allowed; the cluster allows 100ms to 10m";
        assert!(result.errors.starts_with(refusal), "{args:?}: {result:?}");
    }
    fixture.assert_clean();
}

#[test]
fn a_held_lease_is_reported_with_the_chosen_exit_code() {
    let fixture = Fixture::new();
    let holder = fixture.start(&["run", "a"], "echo began; read line");
    holder.wait_line("began");
    for (args, exit, output) in [
        (&["run", "a", "--no-wait"][..], 4, "leasehold: BUSY: "),
        (&["run", "a", "--no-wait", "--exit-code-busy", "75"], 75, "leasehold: BUSY: "),
        (&["run", "a", "--wait", "100ms"], 4, "leasehold: TIMEOUT: "),
        (&["run", "a", "--wait", "100ms", "--exit-code-busy", "0"], 0, "leasehold: TIMEOUT: "),
    ] {
        let result = fixture.start(args, "echo ran").wait_exit();
        assert_eq!((result.exit, result.lines.len()), (exit, 0), "{args:?}: {result:?}");
        assert!(result.errors.starts_with(output) && result.errors.lines().count() == 1, "{result:?}");
    }
    let problem = run(&mut fixture.command(&["run", "a", "--no-wait", "--json", "--", "true"])).problem();
    assert_eq!(problem["code"], "BUSY");
    assert_eq!(holder.wait_exit().exit, 1, "read found the end of its input");
    fixture.assert_clean();
}

#[test]
fn progress_without_a_wrapper_fails_with_the_next_step() {
    let progress = |args: &[&str]| run(leasehold(args).env_remove("LEASEHOLD_SOCKET"));
    let output = progress(&["progress", "1"]);
    assert!(output.exit == 2 && output.err.contains("--socket"), "{output:?}");
    for wrong in ["-1", "x", "1.5", "18446744073709551616", ""] {
        let output = progress(&["progress", "--socket", "/nowhere", "--", wrong]);
        assert_eq!(output.exit, 2, "{output:?}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let gone = dir.path().join("gone");
    let output = progress(&["progress", "1", "--socket", gone.to_str().expect("a text")]);
    let output = output.fails(5, "leasehold: UNAVAILABLE: cannot notify the wrapper");
    assert!(output.err.contains("leasehold run"), "{output:?}");
}

#[test]
fn an_unusable_tmpdir_is_named_in_the_error() {
    let fixture = Fixture::new();
    let deep = fixture.tmp_dir.path().join("d".repeat(100));
    std::fs::create_dir(&deep).expect("a directory");
    for tmp_dir in [fixture.tmp_dir.path().join("missing"), deep.clone()] {
        let output = run(fixture.command(&["run", "a", "--", "true"]).env("TMPDIR", &tmp_dir));
        let output = output.fails(78, "leasehold: CONFIG{TMPDIR}: ");
        assert_eq!(output.err.lines().count(), 1, "{output:?}");
    }
    std::fs::remove_dir(&deep).expect("it is empty");
    fixture.assert_clean();
}
