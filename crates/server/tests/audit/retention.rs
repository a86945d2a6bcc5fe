//! Retention by size and by age.

use leasehold_server::audit::{Retention, verify, verify_export};
use leasehold_server::journal::{AuditFiles, Journal};
use leasehold_server::recovery::Backlog;
use leasehold_server::snapshotter::{SnapshotConfig, Snapshotter};

use crate::fixture::{export, memory_harness};
use crate::snapshot_support::{poll_ready, snapshot_config, snapshot_metrics};

#[test]
fn the_oldest_files_are_removed_and_the_rest_verifies() {
    let mut harness = memory_harness();
    let retention = Retention { bytes: 10_000, age_ms: None, file_bytes: 2_000 };
    let by_size = SnapshotConfig { audit: retention, ..snapshot_config(0) };
    let mut snapshotter =
        Snapshotter::new(harness.journal.snapshots(), by_size, Backlog::default(), snapshot_metrics());
    for round in 0..10 {
        harness.acquire_and_release(None, round * 10..(round + 1) * 10);
        poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    }
    let head = poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    let snapshots = harness.journal.snapshots();
    let verified = verify(&snapshots, head).expect("the log is intact");
    assert!(verified.first > 1 && verified.last == head.entries);
    let bytes: u64 = snapshots.files().expect("the memory journal works").iter().map(|(_, length)| length).sum();
    assert!(bytes <= 12_500, "{bytes}");
    assert_eq!(verify_export(&export(&snapshots, head)[..]), Ok(verified));

    let by_age = SnapshotConfig { audit: Retention { age_ms: Some(0), ..retention }, ..snapshot_config(0) };
    let mut snapshotter = Snapshotter::new(harness.journal.snapshots(), by_age, Backlog::default(), snapshot_metrics());
    harness.acquire_and_release(None, 200..201);
    poll_ready(snapshotter.write_audit()).expect("the memory journal works");
    assert!(snapshots.files().expect("the memory journal works").len() <= 2, "all but the newest file are too old");
}
