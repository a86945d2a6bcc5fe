//! Commands whose lease depends on their progress.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::harness::{Fixture, WrapperProcess};
use crate::support::{leasehold, run};

#[test]
fn a_command_that_reports_progress_keeps_its_lease() {
    let fixture = Fixture::new();
    let script = r#"i=0; while [ $i -lt 24 ]; do i=$((i+1)); "$LEASEHOLD" progress $i >&2 || exit 9; sleep 0.5; done; echo done"#;
    let wrapped = fixture.start(&["run", "a", "--ttl", "10s", "--progress", "5s"], script);
    wrapped.wait_line("done");
    assert_eq!(wrapped.wait_exit().exit, 0);
}

/// Exits on SIGTERM.
const OBEYS: &str = "trap 'echo terminated; exit 0' TERM; echo began; while :; do sleep 0.01; done";
/// Ignores SIGTERM, and cleans up in a small part of its grace period.
const IGNORES: &str = "trap 'echo terminated; sleep 0.1; echo cleaned' TERM; echo began; while :; do sleep 0.01; done";
/// Reports progress on SIGTERM, when it is too late.
const REPORTS_LATE: &str = r#"
    trap '"$LEASEHOLD" progress 7 >&2; echo terminated; exit 0' TERM; echo began; while :; do sleep 0.01; done"#;

/// Asserts that a hung command received SIGTERM before it was killed, and that its lease was recorded as stalled.
#[track_caller]
fn assert_stalled(fixture: &Fixture, name: &str, wrapped: WrapperProcess, lines: &[&str]) {
    let result = wrapped.wait_exit();
    assert_eq!(
        (result.exit, result.lines.iter().map(String::as_str).collect::<Vec<_>>()),
        (3, lines.to_vec()),
        "{result:?}"
    );
    assert!(result.errors.contains("leasehold: LEASE_LOST{expired, stalled}: "), "{result:?}");
    assert!(!result.errors.contains("supervisor"), "the supervisor did its work: {result:?}");
    let history = fixture.history(name);
    let ends: Vec<_> = history.iter().filter(|line| line.contains(" ended ")).collect();
    assert!(ends.len() == 1 && ends[0].contains("stalled"), "{history:?}");
}

#[test]
fn a_hung_command_receives_sigterm_and_its_grace_period_and_its_lease_is_recorded_as_stalled() {
    let fixture = Fixture::new();
    let cases = [
        ("obeys", OBEYS, &["began", "terminated"][..]),
        ("ignores", IGNORES, &["began", "terminated", "cleaned"]),
        ("late", REPORTS_LATE, &["began", "terminated"]),
    ];
    let args = |name| ["run", name, "--ttl", "10s", "--progress", "500ms", "--grace", "5s"];
    let started = cases.map(|(name, script, lines)| (name, fixture.start(&args(name), script), lines));
    for (name, wrapped, lines) in started {
        assert_stalled(&fixture, name, wrapped, lines);
    }
    fixture.assert_clean();
}

#[test]
fn a_charter_that_requires_progress_leaves_a_hung_command_its_grace_period_too() {
    let fixture = Fixture::new();
    let file = fixture.charter("renewal = { proves = \"progress\", window_ms = 4000 }");
    fixture.server.run(&["charter", "apply", &file, "--comment", "a test"]).ok();
    let args = |name| ["run", name, "--ttl", "10s", "--grace", "2s"];
    let started =
        [("a/obeys", OBEYS, &["began", "terminated"][..]), ("a/ignores", IGNORES, &["began", "terminated", "cleaned"])]
            .map(|(name, script, lines)| (name, fixture.start(&args(name), script), lines));
    for (name, wrapped, lines) in started {
        assert_stalled(&fixture, name, wrapped, lines);
    }
    std::fs::remove_file(file).expect("it exists");
    fixture.assert_clean();
}

#[test]
fn a_candidate_whose_command_hangs_campaigns_again() {
    let fixture = Fixture::new();
    let args = ["elect", "a", "--ttl", "10s", "--progress", "500ms", "--grace", "500ms", "--pause", "10ms"];
    let candidate = fixture.start(&args, OBEYS);
    for _ in 0..2 {
        candidate.wait_line("began");
        candidate.wait_line("terminated");
    }
    candidate.wait_line("began");
    candidate.signal(Signal::TERM);
    let result = candidate.wait_exit();
    assert_eq!(result.exit, 0, "{result:?}");
    assert!(result.errors.contains("the lease expired: stalled"), "{result:?}");
    let history = fixture.history("a");
    assert_eq!(history.iter().filter(|line| line.contains("stalled")).count(), 2, "{history:?}");
}

#[test]
fn progress_is_an_sd_notify_datagram() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    run(leasehold(&["progress", "42"]).env("LEASEHOLD_SOCKET", &path)).ok();
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).expect("it was sent");
    assert_eq!(&bytes[..length], b"PROGRESS=42\n");
}

#[test]
fn an_invalid_notification_is_reported_and_ignored() {
    let fixture = Fixture::new();
    let mut wrapped = fixture.start(&["run", "a"], "echo socket $LEASEHOLD_SOCKET; read line; exit 6");
    let socket = UnixDatagram::unbound().expect("a socket");
    let path = wrapped.wait_line("socket");
    for datagram in [&b"PROGRESS=much"[..], b"", b"\xff\xfe", b"READY=1", b"PROGRESS=3", &[b'x'; 10_000]] {
        socket.send_to(datagram, &path).expect("the wrapper listens");
    }
    wrapped.write_stdin("end\n");
    let result = wrapped.wait_exit();
    assert_eq!(result.exit, 6, "{result:?}");
    assert!(!std::path::Path::new(&path).exists());
}
