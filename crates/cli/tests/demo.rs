//! The demonstration shows what it must, fails when its fence is off, and leaves nothing behind.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Told, leasehold, run};
use tempfile::TempDir;

/// The demonstration, with a place of its own for what it makes.
fn demo(place: &Path, args: &[&str]) -> Command {
    let mut command = leasehold(&["demo"]);
    command.args(args).env("TMPDIR", place).env_remove("LEASEHOLD_DEMO_MUTANT");
    command
}

fn place() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[track_caller]
fn nothing_is_left(place: &TempDir) {
    let left = left(place);
    assert!(left.is_empty(), "{left:?}");
}

/// Files there, and processes that know of it.
fn left(place: &TempDir) -> Vec<String> {
    let mut left: Vec<_> =
        std::fs::read_dir(place.path()).expect("readable").flatten().map(|e| e.path().display().to_string()).collect();
    let here = place.path().to_str().expect("text");
    for process in std::fs::read_dir("/proc").expect("a kernel").flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.contains(here) {
            left.push(format!("{}: {words}", process.path().display()));
        }
    }
    left
}

/// The places at which these words stand in the timeline, which must be in this order.
#[track_caller]
fn in_order(told: &Told, words: &[&str]) {
    let mut from = 0;
    for word in words {
        let at = told.out[from..].find(word).unwrap_or_else(|| panic!("{word:?} does not follow: {}", told.out));
        from += at + word.len();
    }
}

#[test]
fn a_late_write_is_refused_by_the_fence_and_corrupts_the_unfenced_twin() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "2s"])).ok();
    let course = [
        "first    is granted the lease",
        "first    claims",
        "first    has its write ready",
        "first    is stopped",
        "second   is granted the lease",
        "second   claims",
        "second   writes to the fenced database: written",
        "first    is continued",
        "first    writes to the fenced database: REFUSED, STALE_TOKEN",
        "first    writes to the unfenced database: written",
        "fenced    first holder's write refused",
        ": sound",
        "unfenced  first holder's write accepted",
        ": CORRUPTED",
    ];
    in_order(&told, &course);
    nothing_is_left(&place);
}

#[test]
fn for_programs_it_is_one_document_with_both_tokens_and_both_books() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "2s", "--pause", "2500ms", "--json"])).ok();
    let body = told.json();
    assert_eq!(body["shown"], true);
    assert_eq!((&body["ttl_ms"], &body["pause_ms"]), (&Value::from(2_000), &Value::from(2_500)));
    let late = &body["targets"]["fenced"]["late_write"]["refused"];
    assert_eq!(late["code"], "STALE_TOKEN");
    let number = |value: &Value| value.as_str().expect("a text").parse::<u64>().expect("a number");
    assert!(number(&late["presented"]) < number(&late["mark"]), "{late}");
    assert_eq!(body["targets"]["fenced"]["books"]["sound"], true);
    assert_eq!(body["targets"]["unfenced"]["late_write"], "written");
    assert_eq!(body["targets"]["unfenced"]["books"]["sound"], false);
    let times: Vec<u64> =
        body["events"].as_array().expect("a list").iter().map(|e| e["at_ms"].as_u64().expect("ms")).collect();
    assert!(times.len() > 10 && times.is_sorted(), "{times:?}");
    assert!(!told.out.contains("lh1-"), "no token's text is printed");
}

#[test]
fn a_pause_shorter_than_the_ttl_is_accepted_and_it_says_why() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "30s", "--pause", "200ms"])).ok();
    let course = [
        "first    is continued",
        "first    writes to the fenced database: written",
        "first    gives the lease back",
        "second   is granted the lease",
        "second   reads the balance: 70",
        ": sound",
        ": sound",
        "The pause was shorter than the ttl",
    ];
    in_order(&told, &course);
    nothing_is_left(&place);
}

#[test]
fn without_the_fence_there_is_only_the_corruption() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "2s", "--no-fence"])).ok();
    in_order(
        &told,
        &["first    is stopped", "second   writes to the unfenced", "first    writes to the unfenced", "CORRUPTED"],
    );
    assert!(!told.out.contains("fenced database: REFUSED") && !told.out.contains("claims"), "{}", told.out);
    nothing_is_left(&place);
}

#[test]
fn a_stopped_grantor_grants_nothing_and_takes_nothing_from_who_lives() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "2s", "--pause", "5s", "--grantor"])).ok();
    let course = [
        "grantor  is stopped",
        "second   was granted nothing meanwhile",
        "grantor  is continued",
        "first    asks the grantor, and still holds",
        "first    gives the lease back",
        "second   is granted the lease",
    ];
    in_order(&told, &course);
    nothing_is_left(&place);
}

#[test]
fn a_stopped_leader_is_followed_by_another_and_grants_nothing_when_it_wakes() {
    let place = place();
    let told = run(&mut demo(place.path(), &["--ttl", "10s", "--grantor", "--etcd"])).ok();
    let course = [
        "which leads, is stopped",
        "leads, ",
        "first    asks the new one, and still holds",
        "first    gives the lease back",
        "second   is granted the lease by the new one",
        "is continued",
        "and grants nothing",
        "stands by and points at",
    ];
    in_order(&told, &course);
    nothing_is_left(&place);
}

#[test]
fn it_fails_when_its_fence_is_switched_off() {
    let place = place();
    let mut command = demo(place.path(), &["--ttl", "2s", "--json"]);
    let told = run(command.env("LEASEHOLD_DEMO_MUTANT", "fence-off"));
    assert_eq!(told.exit, 8, "{told:?}");
    let body = told.json();
    assert_eq!(body["shown"], false);
    assert_eq!(body["targets"]["fenced"]["as_it_must"], false);
    assert!(told.err.contains("the demonstration failed"), "{told:?}");
    nothing_is_left(&place);
}

#[test]
fn what_it_cannot_play_is_refused_with_the_bounds() {
    let place = place();
    for (args, says) in [
        (&["--ttl", "499ms"][..], "from 500ms to 1m"),
        (&["--ttl", "61s"], "from 500ms to 1m"),
        (&["--pause", "11m"], "up to 10m"),
        (&["--ttl", "2"], "2"),
        (&["--ttl", "-1s"], "-1"),
        (&["--no-fence", "--grantor"], "--grantor"),
        (&["--etcd"], "--grantor"),
    ] {
        let told = run(&mut demo(place.path(), args));
        assert_eq!(told.exit, 2, "{args:?}: {told:?}");
        assert!(told.err.contains(says) && told.out.is_empty(), "{args:?}: {told:?}");
    }
    nothing_is_left(&place);
}

#[test]
fn interrupted_it_leaves_neither_processes_nor_files() {
    let place = place();
    let mut command = demo(place.path(), &["--ttl", "60s", "--pause", "10m"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("first    is stopped")), "a holder stands still now");
    kill_process(Pid::from_child(&child), Signal::INT).expect("our child");
    let status = child.wait().expect("our child");
    assert_eq!(status.code(), Some(1));
    nothing_is_left(&place);
}

#[test]
fn killed_it_leaves_neither_processes_nor_files() {
    let place = place();
    let mut command = demo(place.path(), &["--ttl", "60s", "--pause", "10m"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("first    is stopped")), "a holder stands still now");
    child.kill().expect("our child");
    child.wait().expect("our child");
    let over = std::time::Instant::now() + support::PATIENCE;
    while !left(&place).is_empty() {
        assert!(std::time::Instant::now() < over, "still there: {:?}", left(&place));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    nothing_is_left(&place);
}
