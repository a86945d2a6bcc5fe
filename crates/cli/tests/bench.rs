//! `leasehold bench`: measurements in one JSON document, and cleanup after its end or an interrupt.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{TEST_TIMEOUT, leasehold, run};

/// Processes whose command line contains this path.
fn processes_at(path: &Path) -> Vec<String> {
    let path = path.to_str().expect("a text");
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        // The process may have ended.
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(path).then_some(line)
    };
    std::fs::read_dir("/proc").expect("a list of processes").filter_map(of).collect()
}

fn nothing_is_left(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_at(dir), [""; 0]);
}

#[test]
fn all_measurements_are_in_one_document_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a text");
    let args = ["bench", "--json", "--leases", "2000", "--seconds", "1", "--in-flight", "1,16", "--dir", path];
    let mut bench = leasehold(&args);
    // A storm takes long: it is measured five times, each with a run without load.
    let all = std::env::var("LEASEHOLD_DEPTH").as_deref() != Ok("quick");
    if !all {
        bench.args(["fsync", "acquire", "renew", "handoff", "run", "held"]);
    }
    let body = run(&mut bench).ok().json();
    let rows = body["rows"].as_array().expect("a list of rows");
    let value = |prefix: &str, name: &str| {
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
        let value = row.and_then(|row| row[name].as_f64());
        value.unwrap_or_else(|| panic!("{name} of {prefix} in {body}"))
    };
    for prefix in [
        "fdatasync of 4 KiB",
        "acquire, 1 in flight",
        "acquire, 16 in flight",
        "renew in batches of 1000",
        "renew in batches of 8000",
        "release to next grant",
        "killed command under `run`",
    ] {
        assert!(value(prefix, "per_second") > 0.0, "{prefix}");
        assert!(value(prefix, "p50_ms") <= value(prefix, "p99_ms"), "{prefix}");
    }
    assert!(value("acquire, 16 in flight", "server_cpu_us") > 0.0);
    assert!(rows.iter().all(|row| row["name"].is_string()));
    assert!(value("2000 leases held", "resident_B_per_lease") >= 0.0);
    assert!(value("restart after a kill with 2000 leases", "after_s") > 0.0);
    assert!(!all || value("renewals during 2000 expiries", "p99_storm_ms") > 0.0);
    nothing_is_left(dir.path());
}

#[test]
fn servers_with_and_without_tls_are_measured_in_turn() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a text");
    let bench = |more: &[&str]| {
        run(&mut leasehold(&[&["bench", "acquire", "renew", "--tls", "--json", "--dir", path], more].concat()))
    };
    let body = bench(&["--seconds", "1", "--in-flight", "1,16"]).ok().json();
    let rows = body["rows"].as_array().expect("a list of rows");
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    let expected = ["acquire, 1 in flight", "acquire, 16 in flight", "renew in batches of 1000, 4 in flight"];
    for name in expected.into_iter().chain(["renew in batches of 8000, 4 in flight"]) {
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name} in {names:?}"));
        assert_eq!(names[at + 1], format!("{name}, TLS"));
        for row in &rows[at..at + 2] {
            for value in ["per_second", "p50_ms", "server_cpu_us"] {
                assert!(row[value].as_f64().is_some_and(|value| value > 0.0), "{value} of {row}");
            }
        }
    }
    nothing_is_left(dir.path());
    assert_eq!(bench(&["--cluster"]).exit, 2);
    let refused = bench(&["--addr", "127.0.0.1:1"]);
    assert!(refused.exit == 1 && refused.err.contains("--tls starts two servers of its own"), "{refused:?}");
    nothing_is_left(dir.path());
}

#[test]
fn an_interrupted_bench_ends_its_server_and_removes_its_directory() {
    for signal in ["INT", "TERM"] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_str().expect("a text");
        let mut bench = leasehold(&["bench", "acquire", "--seconds", "600", "--dir", path]);
        let mut bench =
            bench.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let until = Instant::now() + TEST_TIMEOUT;
        let serves = || {
            let data = std::fs::read_dir(dir.path()).expect("a directory").next()?.ok()?.path().join("data");
            data.join("journal").exists().then_some(())
        };
        while serves().is_none() {
            assert!(Instant::now() < until, "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(processes_at(dir.path()).len() >= 2, "the bench and its server");
        let sent = Command::new("kill").args([&format!("-{signal}"), &bench.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let status = loop {
            if let Some(status) = bench.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(1), "{signal}: an incomplete benchmark fails");
        nothing_is_left(dir.path());
    }
}
