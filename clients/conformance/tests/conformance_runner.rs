//! The runner as a program: a short benchmark, and the page without results.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the program with the server next to it, which is built if this package is tested alone.
fn conformance(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold-conformance"));
    if !program.with_file_name("leasehold").exists() {
        let cargo = std::env::var("CARGO").expect("cargo sets CARGO for its tests");
        let built = Command::new(cargo).args(["build", "--workspace", "--bin", "leasehold"]).status();
        assert!(built.expect("cargo runs").success());
    }
    // A dependency of the tests, so that cargo builds it with them.
    assert!(Path::new(env!("CARGO_BIN_EXE_rust-driver")).exists());
    Command::new(program).args(arguments).env_remove("LEASEHOLD_BLESS").stdin(Stdio::null()).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SHORT: [&str; 9] =
    ["bench", "--client", "rust", "--no-build", "--leases=50", "--seconds=1", "--rounds=2", "--pairs=3", "--results"];

#[test]
fn a_short_benchmark_reports_every_figure_as_json() {
    let results = tempfile::tempdir().expect("a directory");
    let results = results.path().to_str().expect("a text");
    let output = conformance(&[&SHORT[..], &[results, "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let body: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(body["conditions"]["leases"], 50, "{body}");
    let client = &body["clients"][0];
    assert_eq!(client["client"], "rust", "{body}");
    let holding = &client["holding"];
    assert!(holding["held"] == 50 && holding["held_at_server"] == 50, "{body}");
    assert!(
        holding["held_seconds"].as_f64() >= Some(1.0) && holding["memory_bytes"].as_u64() > Some(1 << 20),
        "{body}"
    );
    let cycle = &client["cycle"];
    assert!(cycle["acquire_us"].as_f64() > Some(0.0) && cycle["release_us"].as_f64() > Some(0.0), "{body}");
    assert_eq!(cycle["relative"]["median"], 1.0, "{body}");
    let progress = text(&output.stderr);
    assert!(progress.contains("bench: rust holds 50 leases") && progress.contains("cores, load"), "{progress}");
}

#[test]
fn a_short_benchmark_prints_two_tables() {
    let results = tempfile::tempdir().expect("a directory");
    let output = conformance(&[&SHORT[..], &[results.path().to_str().expect("a text")]].concat());
    let tables = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(tables.starts_with("50 leases in one process, session ttl 30 s, held for 1 s\n"), "{tables}");
    assert_eq!(tables.lines().filter(|line| line.starts_with("rust ")).count(), 2, "{tables}");
}

#[test]
fn the_page_cannot_be_compared_without_results() {
    let results = tempfile::tempdir().expect("a directory");
    let output = conformance(&["page", "--results", results.path().to_str().expect("a text")]);
    let reasons = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{reasons}");
    assert!(reasons.contains("acquire_and_release of java: not run") && reasons.contains("--broken"), "{reasons}");
}
