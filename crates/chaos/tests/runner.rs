//! The runner itself: it reports a missing binary, it can fail, and it leaves no process behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Upper bound of every wait, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn chaos(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-chaos"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The `leasehold` binary next to the runner; built if this package is tested alone.
fn leasehold() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_leasehold-chaos")).with_file_name("leasehold");
    if !beside.exists() {
        let cargo = std::env::var("CARGO").expect("cargo sets CARGO for its tests");
        let built = Command::new(cargo).args(["build", "-p", "leasehold-cli"]).status().expect("cargo runs");
        assert!(built.success());
    }
    beside
}

#[test]
fn a_run_without_the_binary_explains_how_to_get_it() {
    let output = chaos(&["run", "--leasehold", "/nowhere/leasehold"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output_text.contains("/nowhere/leasehold") && output_text.contains("--leasehold"), "{output_text}");
}

#[test]
fn a_run_without_fences_fails_and_shows_the_corrupted_write() {
    leasehold();
    let output = chaos(&["run", "--for", "10s", "--fence-off"]).output().expect("it runs");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output_text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output_text.contains("BROKEN F1 (fence_marks)") && output_text.contains("applied the corrupted write"),
        "{output_text}"
    );
}

#[test]
fn a_killed_run_leaves_no_process_behind() {
    leasehold();
    let above = tempfile::tempdir().expect("a directory");
    let keep = above.path().join("kept");
    let keep = keep.to_str().expect("the path is UTF-8");
    let mut run = chaos(&["run", "--fence-off", "--holders", "3", "--for", "60s", "--keep", keep])
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let until = Instant::now() + PATIENCE;
    // Wait until the run has started a holder.
    while !left_below(run.id(), keep).is_some_and(|line| line.ends_with("holder\0")) {
        assert!(Instant::now() < until && run.try_wait().expect("ours").is_none(), "no holder was started");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.kill().expect("the run is our child");
    run.wait().expect("it ended");
    while let Some(left) = left_below(run.id(), keep) {
        assert!(Instant::now() < until, "{left} still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that was started for a run in this directory, found by its command line or environment.
fn left_below(run: u32, keep: &str) -> Option<String> {
    let processes = fs::read_dir("/proc").expect("this is Linux").flatten();
    let named = processes.filter_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let read =
            |name: &str| String::from_utf8_lossy(&fs::read(process.path().join(name)).unwrap_or_default()).into_owned();
        let line = read("cmdline");
        let its_own =
            line.contains(keep) || (line.ends_with("leasehold-chaos\0holder\0") && read("environ").contains(keep));
        (its_own && id != run && id != std::process::id()).then_some(line)
    });
    // Holders last: when a holder is found, the other processes exist too.
    named.max_by_key(|line| line.ends_with("holder\0"))
}
