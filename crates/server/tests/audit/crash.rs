//! Crashes, lost audit files and restores.

use std::collections::BTreeMap;

use leasehold_core::command::{Acquire, Command};
use leasehold_server::audit::{AuditHead, hex, verify};
use leasehold_server::backup::{self, BackupChunks, RestoreOptions, restore_onto};
use leasehold_server::journal::Journal;
use leasehold_testkit::depth::depth;

use crate::fixture::{entries, memory_harness, open_on, snapshotter};
use crate::journal_support::simulated_disk::{SimulatedDisk, record};
use crate::journal_support::small_segments;
use crate::snapshot_support::{GrantorHarness, at, poll_ready};

#[test]
fn after_a_crash_at_any_step_every_entry_exists_exactly_once() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut first = snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..12);
    poll_ready(first.snapshot()).expect("the disk works");
    harness.acquire_and_release(None, 12..24);
    poll_ready(first.write_audit()).expect("the disk works");
    harness.acquire_and_release(None, 24..36);
    let session = harness.open_session(None, "many");
    for name in 0..8 {
        let resource = format!("many/{name}");
        let acquire =
            Acquire { session: Some(session), ttl_ms: None, holder: "", ..Acquire::exclusive(&resource, "", 0) };
        harness.turn(None, Command::Acquire(acquire)).expect("the disk works");
    }
    harness.turn(None, Command::CloseSession { session }).expect("the disk works");
    let mut head = AuditHead::default();
    let images = record(&disk, || {
        poll_ready(first.snapshot()).expect("the disk works");
        head = poll_ready(first.write_audit()).expect("the disk works");
    });
    let expected = entries(&harness.journal.snapshots(), head);
    assert!(expected.len() > 70, "{}", expected.len());
    drop((harness, first));
    let check = |disk: &SimulatedDisk, context: &str| {
        let (journal, _) = open_on(disk);
        let snapshots = journal.snapshots();
        let recovered =
            poll_ready(snapshotter(&journal).write_audit()).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!((recovered.entries, hex(&recovered.hash)), (head.entries, hex(&head.hash)), "{context}");
        verify(&snapshots, recovered).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(entries(&snapshots, recovered), expected, "{context}");
    };
    let mut states = 0;
    for (step, image) in images.iter().enumerate() {
        check(&SimulatedDisk::from(image.clone()), &format!("killed at step {step}"));
        for (pick, crash) in image.crashes(depth(8, 48, 2_048)).iter().enumerate() {
            check(crash, &format!("power lost at step {step}, state {pick}"));
            states += 1;
        }
    }
    assert!(states > images.len());
}

#[test]
fn a_restored_cluster_continues_the_hash_chain_of_its_backup_and_records_every_ended_lease() {
    let mut harness = memory_harness();
    harness.acquire_and_release(None, 0..6);
    let snapshot = poll_ready(snapshotter(&harness.journal).snapshot()).expect("the memory journal works");
    let before = snapshot.audit;
    let bytes: Vec<u8> = BackupChunks::of(snapshot, at(0).wall).flatten().collect();
    let backup = backup::decode(&bytes).expect("the bytes are intact");
    let disk = SimulatedDisk::new();
    restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(10_000)).expect("the disk is empty");
    let (journal, _) = open_on(&disk);
    let head = poll_ready(snapshotter(&journal).write_audit()).expect("the disk works");
    let verified = verify(&journal.snapshots(), head).expect("the bytes are intact");
    assert_eq!(verified.first, before.0 + 1);
    let mut kinds = BTreeMap::new();
    for entry in entries(&journal.snapshots(), head) {
        *kinds.entry(format!("{} {}", entry["kind"], entry["reason"])).or_insert(0) += 1;
    }
    let expected = [("\"restored\" null", 1), ("\"ended\" \"restored\"", 2), ("\"opened\" null", 1)];
    assert_eq!(kinds, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
}

#[test]
fn a_lost_audit_log_continues_with_a_gap_entry() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut first = snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..12);
    poll_ready(first.snapshot()).expect("the disk works");
    harness.acquire_and_release(None, 12..14);
    drop((harness, first));
    for name in disk.contents().into_keys().filter(|name| name.starts_with("trail-")) {
        disk.remove_file(&name);
    }
    let (journal, _) = open_on(&disk);
    let head = poll_ready(snapshotter(&journal).write_audit()).expect("the disk works");
    let entries = entries(&journal.snapshots(), head);
    assert_eq!(entries[0]["kind"], "gap");
    assert_eq!(entries.iter().filter(|entry| entry["kind"] == "granted").count(), 2);
}
