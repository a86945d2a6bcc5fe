//! Commands whose lease depends on their progress.

use std::os::unix::net::UnixDatagram;

use crate::support::{leasehold, run};
use crate::wrapped::World;

#[test]
fn a_command_that_reports_progress_keeps_its_lease_beyond_the_window() {
    let world = World::new();
    let script = r#"i=0; while [ $i -lt 24 ]; do i=$((i+1)); "$LEASEHOLD" progress $i >&2 || exit 9; sleep 0.5; done; echo done"#;
    let wrapped = world.begin(&["run", "a", "--ttl", "10s", "--progress", "5s"], script);
    wrapped.hears("done");
    assert_eq!(wrapped.ends().exit, 0);
}

#[test]
fn a_command_that_stalls_loses_its_lease_although_its_wrapper_renews() {
    let world = World::new();
    let wrapped = world.begin(&["run", "a", "--ttl", "10s", "--progress", "1s"], "echo began; exec sleep 600");
    wrapped.hears("began");
    let ended = wrapped.ends();
    assert_eq!(ended.exit, 3, "{ended:?}");
    assert!(ended.errors.contains("leasehold: LEASE_LOST"), "{ended:?}");
}

#[test]
fn progress_is_a_datagram_as_service_managers_take_it() {
    let room = tempfile::tempdir().expect("a directory");
    let path = room.path().join("socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    run(leasehold(&["progress", "42"]).env("LEASEHOLD_SOCKET", &path)).ok();
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).expect("it was sent");
    assert_eq!(&bytes[..length], b"PROGRESS=42\n");
}

#[test]
fn what_is_no_progress_is_told_and_harms_nothing() {
    let world = World::new();
    let mut wrapped = world.begin(&["run", "a"], "echo socket $LEASEHOLD_SOCKET; read line; exit 6");
    let socket = UnixDatagram::unbound().expect("a socket");
    let path = wrapped.hears("socket");
    for notice in [&b"PROGRESS=much"[..], b"", b"\xff\xfe", b"READY=1", b"PROGRESS=3", &[b'x'; 10_000]] {
        socket.send_to(notice, &path).expect("the wrapper listens");
    }
    wrapped.types("end\n");
    let ended = wrapped.ends();
    assert_eq!(ended.exit, 6, "{ended:?}");
    assert!(!std::path::Path::new(&path).exists());
}
