//! Crashes, lost audit files and restores.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::command::{Acquire, Command};
use leasehold_core::lease::Validity;
use leasehold_server::audit::{AuditHead, frame, hex, verify};
use leasehold_server::backup::{self, BackupChunks, RestoreOptions, restore_onto};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::{Journal, OpenError};
use leasehold_server::recovery::StateReplay;
use leasehold_testkit::depth::depth;

use crate::fixture::{entries, memory_harness, newest_audit_file, open_on, rewrite_newest_audit_file, snapshotter};
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

/// A disk with a snapshot whose audit log was written, and the end of that log.
fn disk_with_audited_snapshot() -> (SimulatedDisk, AuditHead) {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut first = snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..24);
    let head = poll_ready(first.write_audit()).expect("the disk works");
    poll_ready(first.snapshot()).expect("the disk works");
    (disk, head)
}

#[test]
fn an_audit_log_that_was_cut_continues_after_the_lost_numbers_and_does_not_verify() {
    let (disk, known) = disk_with_audited_snapshot();
    // The last file ends after its header, so that it is cut at the end of an entry.
    let name = newest_audit_file(&disk);
    disk.tamper(&name, |bytes| bytes.truncate(frame::HEADER_BYTES));
    let (journal, _) = open_on(&disk);
    let head = poll_ready(snapshotter(&journal).write_audit()).expect("the disk works");
    let entries = entries(&journal.snapshots(), head);
    let gap = entries.last().expect("entries");
    assert_eq!((gap["kind"].as_str(), gap["entry"].as_u64()), (Some("gap"), Some(known.entries + 1)));
    assert!(gap["why"].as_str().is_some_and(|why| why.contains("lost entries")), "{gap}");
    let numbers: BTreeSet<u64> = entries.iter().filter_map(|entry| entry["entry"].as_u64()).collect();
    assert_eq!(numbers.len(), entries.len(), "no number is used twice");
    let error = verify(&journal.snapshots(), head).expect_err("entries are missing").to_string();
    assert!(error.contains(&name) && error.contains("are missing"), "{error}");
}

#[test]
fn an_audit_log_that_was_rewritten_before_a_snapshot_gets_a_gap_entry() {
    let (disk, known) = disk_with_audited_snapshot();
    rewrite_newest_audit_file(&disk, known.position);
    let (journal, _) = open_on(&disk);
    let head = poll_ready(snapshotter(&journal).write_audit()).expect("the disk works");
    let gap = entries(&journal.snapshots(), head).pop().expect("entries");
    assert_eq!(gap["kind"], "gap");
    assert!(gap["why"].as_str().is_some_and(|why| why.contains("was changed")), "{gap}");
    assert_eq!(verify(&journal.snapshots(), head).expect("the chain has no key").gaps, 1, "but the gap is reported");
}

#[test]
fn a_journal_that_ends_before_its_audit_log_is_refused() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    harness.acquire_and_release(None, 0..4);
    let head = poll_ready(snapshotter(&harness.journal).write_audit()).expect("the disk works");
    drop(harness);
    // Nothing but the audit log proves that these batches were durable: after a crash they would be an incomplete end.
    let name = disk.contents().into_keys().rfind(|name| name.starts_with("segment-")).expect("a segment");
    let whole = disk.bytes(&name);
    let written = whole.iter().rposition(|byte| *byte != 0).expect("batches") + 1;
    disk.tamper(&name, |bytes| bytes[written - 300..].fill(0));
    let before = disk.contents();
    let mut replay = StateReplay::new(Validity::Session);
    match FileJournal::open_on(disk.clone(), &small_segments(), &mut replay).map(drop) {
        Err(OpenError::Corrupt { file, reason, .. }) => {
            assert!(file.ends_with(&name), "{}", file.display());
            assert!(reason.contains(&format!("derived from batch {}", head.position)), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.contents(), before, "nothing was changed");
    disk.tamper(&name, |bytes| bytes.copy_from_slice(&whole));
    let mut replay = StateReplay::new(Validity::Session);
    FileJournal::open_on(disk, &small_segments(), &mut replay).expect("the whole journal opens");
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
