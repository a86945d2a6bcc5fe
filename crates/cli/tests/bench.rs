//! `leasehold bench`: it measures, tells it in one document, and leaves nothing behind, whether it ends or is interrupted.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{PATIENCE, leasehold, run};

/// Processes that were told of a path.
fn processes_at(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("a text");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        // One that ended meanwhile is not there.
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(path).then_some(line)
    };
    std::fs::read_dir("/proc").expect("a list of processes").filter_map(of).collect()
}

fn nothing_is_left(beside: &Path) {
    let left: Vec<_> = std::fs::read_dir(beside).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_at(beside), [""; 0]);
}

#[test]
fn everything_is_measured_told_in_one_document_and_cleaned_up() {
    let beside = tempfile::tempdir().expect("a directory");
    let path = beside.path().to_str().expect("a text");
    let args = ["bench", "--json", "--leases", "2000", "--seconds", "1", "--in-flight", "1,16", "--beside", path];
    let mut bench = leasehold(&args);
    // A storm is measured five times, each beside an idle time.
    let all = std::env::var("LEASEHOLD_DEPTH").as_deref() != Ok("quick");
    if !all {
        bench.args(["fsync", "acquire", "renew", "handoff", "run", "held"]);
    }
    let body = run(&mut bench).ok().json();
    let rows = body["rows"].as_array().expect("a list of rows");
    let figure = |begins: &str, name: &str| {
        let row = rows.iter().find(|row| row["what"].as_str().is_some_and(|what| what.starts_with(begins)));
        let figure = row.and_then(|row| row[name].as_f64());
        figure.unwrap_or_else(|| panic!("{name} of {begins} in {body}"))
    };
    for begins in [
        "fdatasync of 4 KiB",
        "acquire, 1 in flight",
        "acquire, 16 in flight",
        "renew in batches of 1000",
        "renew in batches of 8000",
        "release to the next holder",
        "a command killed under `run`",
    ] {
        assert!(figure(begins, "per_second") > 0.0, "{begins}");
        assert!(figure(begins, "p50_ms") <= figure(begins, "p99_ms"), "{begins}");
    }
    assert!(figure("acquire, 16 in flight", "server_cpu_us") > 0.0);
    assert!(rows.iter().all(|row| row["what"].is_string()));
    assert!(figure("2000 leases held", "resident_B_per_lease") >= 0.0);
    assert!(figure("killed, serving 2000 again", "after_s") > 0.0);
    assert!(!all || figure("renewals beside 2000 ends", "p99 storm_ms") > 0.0);
    nothing_is_left(beside.path());
}

#[test]
fn an_interrupted_bench_takes_its_server_and_its_directory_along() {
    for signal in ["INT", "TERM"] {
        let beside = tempfile::tempdir().expect("a directory");
        let path = beside.path().to_str().expect("a text");
        let mut bench = leasehold(&["bench", "acquire", "--seconds", "600", "--beside", path]);
        let mut bench =
            bench.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let until = Instant::now() + PATIENCE;
        let serves = || {
            let data = std::fs::read_dir(beside.path()).expect("a directory").next()?.ok()?.path().join("data");
            data.join("journal").exists().then_some(())
        };
        while serves().is_none() {
            assert!(Instant::now() < until, "its server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(processes_at(beside.path()).len() >= 2, "the bench and its server");
        let sent = Command::new("kill").args([&format!("-{signal}"), &bench.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let status = loop {
            if let Some(status) = bench.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(1), "{signal}: it says that it did not measure all");
        nothing_is_left(beside.path());
    }
}
