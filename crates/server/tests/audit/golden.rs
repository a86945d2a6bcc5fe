//! Golden files of the audit and backup formats.

use std::path::{Path, PathBuf};

use leasehold_server::audit::{AuditEntry, scan};
use leasehold_server::backup::{self, BackupChunks, RestoreOptions, restore_onto};
use leasehold_server::journal::{AuditFiles, Journal};

use crate::fixture::{memory_harness, snapshotter};
use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::journal_support::small_segments;
use crate::snapshot_support::{at, poll_ready};

/// Path of a golden backup, written by this or an earlier version.
fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden").join(name)
}

#[test]
fn an_audit_file_from_before_entries_named_an_identity_is_still_read() {
    let golden = std::fs::read(golden_path("trail-v1")).expect("the golden file is committed");
    let mut texts = Vec::new();
    let scanned = scan(&golden, true, |entry| texts.push(entry.text.to_vec())).expect("version 1 stays readable");
    assert_eq!((scanned.next, scanned.damage), (5, None));
    let entry = AuditEntry::parse(&texts[3]).expect("an entry");
    assert_eq!((entry.kind.as_ref(), entry.resource.as_deref()), ("ended", Some("jobs/settle")));
    assert_eq!((entry.by, entry.via), (None, None), "who caused it is not known");
}

#[test]
fn an_audit_file_from_before_ends_named_their_slot_is_still_read() {
    let golden = std::fs::read(golden_path("trail-v1-attributed")).expect("the golden file is committed");
    let mut texts = Vec::new();
    let scanned = scan(&golden, true, |entry| texts.push(entry.text.to_vec())).expect("version 1 stays readable");
    assert_eq!((scanned.next, scanned.damage), (5, None));
    let entry = AuditEntry::parse(&texts[3]).expect("an entry");
    assert_eq!((entry.kind.as_ref(), entry.by.as_deref()), ("ended", Some("local")));
    assert_eq!((entry.access, entry.slot), (None, None), "what the lease occupied is not known");
}

#[test]
fn the_golden_audit_file_is_read_and_written_unchanged() {
    let mut harness = memory_harness();
    let number = harness.acquire(None, "jobs/settle", "worker-1");
    harness.release(None, "jobs/settle", number);
    let head = poll_ready(snapshotter(&harness.journal).write_audit()).expect("the memory journal works");
    let mut written = vec![0; 1 << 16];
    let got = harness.journal.snapshots().read(1, 0, &mut written).expect("the memory journal works");
    written.truncate(got);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/golden/trail-v1-ended-slot");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, &written).expect("the golden file can be written");
    }
    let golden = std::fs::read(&path).expect("the golden file is committed");
    assert!(golden == written, "the written audit file differs from version 1");
    let mut texts = Vec::new();
    let scanned =
        scan(&golden, true, |entry| texts.push(String::from_utf8(entry.text.to_vec()).expect("an entry is UTF-8")));
    let scanned = scanned.expect("version 1 stays readable");
    assert_eq!((scanned.next - 1, scanned.hash, scanned.damage), (head.entries, head.hash, None));
    assert_eq!(
        texts[3],
        format!(
            r#"{{"entry":4,"position":3,"step":0,"time_ms":20,"wall_ms":1770000000020,"kind":"ended","resource":"jobs/settle","holder":"worker-1","lease":"0.0","token_number":"{number}","access":"exclusive","slot":0,"state":"expired","reason":"released","by":"local","via":"local"}}"#
        )
    );
}

#[test]
fn every_golden_backup_is_read_and_restored() {
    let mut harness = memory_harness();
    harness.acquire(None, "jobs/settle", "worker-1");
    let snapshot = poll_ready(snapshotter(&harness.journal).snapshot()).expect("the memory journal works");
    let written: Vec<u8> = BackupChunks::of(snapshot, at(50).wall).flatten().collect();
    // Newer backups contain a snapshot of a newer format, or the hash of entries with more fields.
    let newest = golden_path("backup-v1-snapshot-v3-attributed");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&newest, &written).expect("the golden file can be written");
    }
    let golden = std::fs::read(&newest).expect("the golden file is committed");
    assert!(golden == written, "the written backup differs from the golden file");
    let old = ["backup-v1-snapshot-v3", "backup-v1-snapshot-v2", "backup-v1"];
    let old = old.map(|name| std::fs::read(golden_path(name)).expect("the golden file is committed"));
    for golden in old.into_iter().chain([golden]) {
        let backup = backup::decode(&golden).expect("version 1 stays readable");
        assert_eq!((backup.header.position, backup.header.audit.0), (2, 3));
        let disk = SimulatedDisk::new();
        restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(1_000))
            .expect("version 1 stays restorable");
    }
}
