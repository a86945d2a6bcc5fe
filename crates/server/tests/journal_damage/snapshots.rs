//! Damaged or missing snapshots, and replays that the grantor rejects.

use leasehold_core::grantor::CorruptionError;
use leasehold_server::journal::file::{Disk, FileJournal};
use leasehold_server::journal::{AppendOutcome, Journal, OpenError, Replay, SnapshotStore};

use crate::fixture::*;
use crate::journal_support::{open_on, poll_ready, small_segments};

#[test]
fn the_newest_snapshot_is_replayed_with_the_batches_after_it() {
    let (replay, warnings) = open_journal(&log_with_snapshots(&[4, 9, 12])).expect("the journal is intact");
    assert_eq!(replay.snapshot, Some((12, vec![12; 900])));
    assert_eq!(sequences(&replay), (13..=LAST).collect::<Vec<_>>());
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn a_damaged_snapshot_is_skipped_only_if_the_log_covers_the_gap() {
    for byte in [0, 12, 20, 33, 41, 61, 64, 900] {
        let disk = log_with_snapshots(&[9, 12]);
        disk.tamper(&snapshot(12), |bytes| bytes[byte] ^= 1);
        let (replay, warnings) = open_journal(&disk).expect("the previous snapshot is used");
        assert_eq!(replay.snapshot, Some((9, vec![9; 900])), "byte {byte}");
        assert_eq!(sequences(&replay), (10..=LAST).collect::<Vec<_>>());
        assert!(warnings[0].contains(&snapshot(12)), "{warnings:?}");
        disk.tamper(&snapshot(9), |bytes| bytes.truncate(700));
        let (replay, _) = open_journal(&disk).expect("the whole log is used");
        assert_eq!((replay.snapshot.as_ref(), sequences(&replay)), (None, (1..=LAST).collect::<Vec<_>>()));
        disk.remove_file(&segment(1));
        assert_corrupt(&disk, &snapshot(12), 0, "starts only at sequence");
    }
}

#[test]
fn a_trimmed_log_still_covers_a_damaged_newest_snapshot() {
    let disk = log_with_snapshots(&[9, 16]);
    let (opened, _) = open_on(disk.clone(), &small_segments()).expect("the journal is intact");
    assert_eq!(poll_ready(opened.journal.snapshots().trim(u64::MAX)), Ok(AppendOutcome::Durable));
    drop(opened);
    assert!(!disk.contents().contains_key(&segment(1)), "batches covered by both snapshots are removed");
    disk.tamper(&snapshot(16), |bytes| bytes[70] ^= 1);
    let (replay, _) = open_journal(&disk).expect("the previous snapshot is used");
    assert_eq!(replay.snapshot, Some((9, vec![9; 900])));
    assert_eq!(sequences(&replay), (10..=LAST).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_not_connected_to_the_log_is_refused() {
    let disk = log_with_snapshots(&[4]);
    disk.remove_file(&segment(1));
    assert_corrupt(&disk, &segment(2), 0, "snapshots end at 4");
    let disk = log_with_snapshots(&[17]);
    disk.remove_file(&segment(4));
    disk.tamper(&segment(3), |bytes| bytes[HEADER + BATCHES_PER_SEGMENT * 720..].fill(0));
    assert_corrupt(&disk, &snapshot(17), 0, "newer than the log");
    let disk = log_with_snapshots(&[5]);
    let bytes = disk.bytes(&snapshot(5));
    disk.add_file(&snapshot(6), &bytes);
    assert_corrupt(&disk, &snapshot(6), 0, "sequence 5");
}

/// Rejects every snapshot, and the batch with this sequence number.
struct RejectingReplay(u64);

impl Replay for RejectingReplay {
    fn snapshot(&mut self, _: u64, _: &[u8]) -> Result<(), CorruptionError> {
        Err(CorruptionError { at: 5, problem: "not a snapshot" })
    }

    fn batch(&mut self, sequence: u64, _: &[u8]) -> Result<(), CorruptionError> {
        if sequence == self.0 { Err(CorruptionError { at: 3, problem: "the hash chain is broken" }) } else { Ok(()) }
    }
}

#[test]
fn a_rejected_replay_is_reported_with_file_and_offset() {
    let disk = intact_log();
    let (name, at) = batch_offset(8);
    let error = FileJournal::open_on(disk.clone(), &small_segments(), &mut RejectingReplay(8))
        .expect_err("the replay is rejected");
    let reason = "the hash chain is broken".to_owned();
    let expected = OpenError::Corrupt { file: disk.path(&name), offset: (at + FRAME_HEADER + 3) as u64, reason };
    assert_eq!(error, expected);
    let disk = log_with_snapshots(&[6]);
    let error = FileJournal::open_on(disk.clone(), &small_segments(), &mut RejectingReplay(8))
        .expect_err("the replay is rejected");
    let reason = "not a snapshot".to_owned();
    assert_eq!(error, OpenError::Corrupt { file: disk.path(&snapshot(6)), offset: HEADER as u64 + 5, reason });
}
