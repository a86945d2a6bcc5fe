//! `leasehold demo`: expected results, detection of a disabled fence, and cleanup.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{CommandRun, leasehold, run};
use tempfile::TempDir;

/// The demonstration with its own temporary directory.
fn demo(tmp: &Path, args: &[&str]) -> Command {
    let mut command = leasehold(&["demo"]);
    command.args(args).env("TMPDIR", tmp).env_remove("LEASEHOLD_DEMO_MUTANT");
    command
}

fn tmp() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[track_caller]
fn nothing_is_left(tmp: &TempDir) {
    let left = left(tmp);
    assert!(left.is_empty(), "{left:?}");
}

/// Files in the directory, and processes whose command line contains it.
fn left(tmp: &TempDir) -> Vec<String> {
    let mut left: Vec<_> =
        std::fs::read_dir(tmp.path()).expect("readable").flatten().map(|e| e.path().display().to_string()).collect();
    let here = tmp.path().to_str().expect("text");
    for process in std::fs::read_dir("/proc").expect("a kernel").flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.contains(here) {
            left.push(format!("{}: {words}", process.path().display()));
        }
    }
    left
}

/// Asserts that these texts appear in this order.
#[track_caller]
fn in_order(output: &CommandRun, words: &[&str]) {
    let mut from = 0;
    for word in words {
        let at = output.out[from..].find(word).unwrap_or_else(|| panic!("{word:?} is missing: {}", output.out));
        from += at + word.len();
    }
}

#[test]
fn a_late_write_is_rejected_by_the_fence_and_corrupts_the_unfenced_database() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "2s"])).ok();
    let expected = [
        "first    is granted the lease",
        "first    claims",
        "first    prepares its write",
        "first    is paused",
        "second   is granted the lease",
        "second   claims",
        "second   writes to the fenced database: written",
        "first    resumes",
        "first    writes to the fenced database: REFUSED, STALE_TOKEN",
        "first    writes to the unfenced database: written",
        "fenced    first holder's write rejected",
        ": consistent",
        "unfenced  first holder's write accepted",
        ": CORRUPTED",
    ];
    in_order(&output, &expected);
    nothing_is_left(&tmp);
}

#[test]
fn json_output_is_one_document_with_both_tokens_and_both_accounts() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "2s", "--pause", "2500ms", "--json"])).ok();
    let body = output.json();
    assert_eq!(body["passed"], true);
    assert_eq!((&body["ttl_ms"], &body["pause_ms"]), (&Value::from(2_000), &Value::from(2_500)));
    let late = &body["targets"]["fenced"]["late_write"]["refused"];
    assert_eq!(late["code"], "STALE_TOKEN");
    let number = |value: &Value| value.as_str().expect("a text").parse::<u64>().expect("a number");
    assert!(number(&late["presented"]) < number(&late["mark"]), "{late}");
    assert_eq!(body["targets"]["fenced"]["account"]["consistent"], true);
    assert_eq!(body["targets"]["unfenced"]["late_write"], "written");
    assert_eq!(body["targets"]["unfenced"]["account"]["consistent"], false);
    let times: Vec<u64> =
        body["events"].as_array().expect("a list").iter().map(|e| e["at_ms"].as_u64().expect("ms")).collect();
    assert!(times.len() > 10 && times.is_sorted(), "{times:?}");
    assert!(!output.out.contains("lh1-"), "no token is printed");
}

#[test]
fn after_a_pause_shorter_than_the_ttl_the_write_is_accepted_with_an_explanation() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "30s", "--pause", "200ms"])).ok();
    let expected = [
        "first    resumes",
        "first    writes to the fenced database: written",
        "first    releases the lease",
        "second   is granted the lease",
        "second   reads the balance: 70",
        ": consistent",
        ": consistent",
        "The pause was shorter than the ttl",
    ];
    in_order(&output, &expected);
    nothing_is_left(&tmp);
}

#[test]
fn without_a_fence_the_database_is_corrupted() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "2s", "--no-fence"])).ok();
    in_order(
        &output,
        &["first    is paused", "second   writes to the unfenced", "first    writes to the unfenced", "CORRUPTED"],
    );
    assert!(!output.out.contains("fenced database: REFUSED") && !output.out.contains("claims"), "{}", output.out);
    nothing_is_left(&tmp);
}

#[test]
fn a_paused_grantor_grants_nothing_and_no_live_holder_loses_its_lease() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "2s", "--pause", "5s", "--grantor"])).ok();
    let expected = [
        "grantor  is paused",
        "second   was granted nothing during the pause",
        "grantor  resumes",
        "first    still holds the lease, confirmed by the grantor",
        "first    releases the lease",
        "second   is granted the lease",
    ];
    in_order(&output, &expected);
    nothing_is_left(&tmp);
}

#[test]
fn a_paused_leader_is_replaced_and_grants_nothing_when_it_resumes() {
    let tmp = tmp();
    let output = run(&mut demo(tmp.path(), &["--ttl", "10s", "--grantor", "--etcd"])).ok();
    let expected = [
        "the leader, is paused",
        "becomes leader after",
        "first    still holds the lease, confirmed by the new leader",
        "first    releases the lease",
        "second   is granted the lease by the new leader",
        "resumes",
        "grants nothing",
        "becomes a standby of",
    ];
    in_order(&output, &expected);
    nothing_is_left(&tmp);
}

#[test]
fn a_disabled_fence_fails_the_demonstration() {
    let tmp = tmp();
    let mut command = demo(tmp.path(), &["--ttl", "2s", "--json"]);
    let output = run(command.env("LEASEHOLD_DEMO_MUTANT", "fence-off"));
    assert_eq!(output.exit, 8, "{output:?}");
    let body = output.json();
    assert_eq!(body["passed"], false);
    assert_eq!(body["targets"]["fenced"]["as_expected"], false);
    assert!(output.err.contains("the demonstration failed"), "{output:?}");
    nothing_is_left(&tmp);
}

#[test]
fn invalid_durations_are_rejected_with_the_limits() {
    let tmp = tmp();
    for (args, expected) in [
        (&["--ttl", "499ms"][..], "from 500ms to 1m"),
        (&["--ttl", "61s"], "from 500ms to 1m"),
        (&["--pause", "11m"], "up to 10m"),
        (&["--ttl", "2"], "2"),
        (&["--ttl", "-1s"], "-1"),
        (&["--no-fence", "--grantor"], "--grantor"),
        (&["--etcd"], "--grantor"),
    ] {
        let output = run(&mut demo(tmp.path(), args));
        assert_eq!(output.exit, 2, "{args:?}: {output:?}");
        assert!(output.err.contains(expected) && output.out.is_empty(), "{args:?}: {output:?}");
    }
    nothing_is_left(&tmp);
}

#[test]
fn after_an_interrupt_no_process_and_no_file_is_left() {
    let tmp = tmp();
    let mut command = demo(tmp.path(), &["--ttl", "60s", "--pause", "10m"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("first    is paused")), "a holder is paused");
    kill_process(Pid::from_child(&child), Signal::INT).expect("our child");
    let status = child.wait().expect("our child");
    assert_eq!(status.code(), Some(1));
    nothing_is_left(&tmp);
}

#[test]
fn after_a_kill_no_process_and_no_file_is_left() {
    let tmp = tmp();
    let mut command = demo(tmp.path(), &["--ttl", "60s", "--pause", "10m"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("first    is paused")), "a holder is paused");
    child.kill().expect("our child");
    child.wait().expect("our child");
    let over = std::time::Instant::now() + support::TEST_TIMEOUT;
    while !left(&tmp).is_empty() {
        assert!(std::time::Instant::now() < over, "still there: {:?}", left(&tmp));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    nothing_is_left(&tmp);
}
