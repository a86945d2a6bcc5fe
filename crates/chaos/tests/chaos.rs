//! The runner itself: it says what it lacks, it can be red, and it leaves nobody behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

fn chaos(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-chaos"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The binary `leasehold` beside the runner; built if this package is tested alone.
fn leasehold() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_leasehold-chaos")).with_file_name("leasehold");
    if !beside.exists() {
        let cargo = std::env::var("CARGO").expect("cargo names itself to the tests it runs");
        let built = Command::new(cargo).args(["build", "-p", "leasehold-cli"]).status().expect("cargo runs");
        assert!(built.success());
    }
    beside
}

#[test]
fn a_run_without_the_binary_says_how_to_get_it() {
    let output = chaos(&["run", "--leasehold", "/nowhere/leasehold"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("/nowhere/leasehold") && told.contains("--leasehold"), "{told}");
}

#[test]
fn without_fences_a_run_is_red_and_shows_the_corrupted_write() {
    leasehold();
    let output = chaos(&["run", "--for", "10s", "--fence-off"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("BROKEN F1 (stale)") && told.contains("took the corrupted write"), "{told}");
}

#[test]
fn a_run_that_is_killed_leaves_nobody_behind() {
    leasehold();
    let above = tempfile::tempdir().expect("a directory");
    let keep = above.path().join("kept");
    let keep = keep.to_str().expect("a path of text");
    let mut run = chaos(&["run", "--fence-off", "--holders", "3", "--for", "60s", "--keep", keep])
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let until = Instant::now() + PATIENCE;
    // Until it has begun: a holder is there.
    while !left_below(run.id(), keep).is_some_and(|line| line.ends_with("holder\0")) {
        assert!(Instant::now() < until && run.try_wait().expect("ours").is_none(), "nobody holds");
        std::thread::sleep(Duration::from_millis(5));
    }
    run.kill().expect("it is ours");
    run.wait().expect("it ended");
    while let Some(left) = left_below(run.id(), keep) {
        assert!(Instant::now() < until, "{left} is left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Somebody who was started for a run in this directory: it stands on its command line, or in its environment.
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
    // Holders last, so that who waits for one sees the others first.
    named.max_by_key(|line| line.ends_with("holder\0"))
}
