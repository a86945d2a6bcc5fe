//! Commands whose lease depends on their progress.

use std::os::unix::net::UnixDatagram;

use crate::harness::Fixture;
use crate::support::{leasehold, run};

#[test]
fn a_command_that_reports_progress_keeps_its_lease() {
    let fixture = Fixture::new();
    let script = r#"i=0; while [ $i -lt 24 ]; do i=$((i+1)); "$LEASEHOLD" progress $i >&2 || exit 9; sleep 0.5; done; echo done"#;
    let wrapped = fixture.start(&["run", "a", "--ttl", "10s", "--progress", "5s"], script);
    wrapped.wait_line("done");
    assert_eq!(wrapped.wait_exit().exit, 0);
}

#[test]
fn a_command_without_progress_loses_its_lease_although_its_wrapper_renews() {
    let fixture = Fixture::new();
    let wrapped = fixture.start(&["run", "a", "--ttl", "10s", "--progress", "1s"], "echo began; exec sleep 600");
    wrapped.wait_line("began");
    let result = wrapped.wait_exit();
    assert_eq!(result.exit, 3, "{result:?}");
    assert!(result.errors.contains("leasehold: LEASE_LOST"), "{result:?}");
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
