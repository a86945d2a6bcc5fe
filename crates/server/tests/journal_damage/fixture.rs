//! An intact journal on the simulated disk, and what an open of a damaged one must do.

use leasehold_server::journal::OpenError;
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::Disk;
use proptest::prelude::*;

use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::journal_support::{append, open_on, save, small_segments};

/// Bytes of a file header.
pub const HEADER: usize = 64;
/// Bytes of a batch's frame header.
pub const FRAME_HEADER: usize = 16;
pub const BATCHES_PER_SEGMENT: usize = 5;
/// The last batch. The fourth segment has two.
pub const LAST: usize = 3 * BATCHES_PER_SEGMENT + 2;
pub fn segment(number: usize) -> String {
    format!("segment-{number:020}")
}

pub fn snapshot(sequence: usize) -> String {
    format!("snapshot-{sequence:020}")
}

pub fn batch(sequence: usize) -> Vec<u8> {
    vec![sequence as u8; 700]
}

/// Segment and offset of a batch. A frame has 720 bytes, and five fill a segment.
pub fn batch_offset(sequence: usize) -> (String, usize) {
    (segment(1 + (sequence - 1) / BATCHES_PER_SEGMENT), HEADER + (sequence - 1) % BATCHES_PER_SEGMENT * 720)
}

/// Four segments with all batches, never reopened since the first batch.
pub fn intact_log() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let mut journal = open_on(disk.clone(), &small_segments()).expect("an empty disk opens").0.journal;
    for sequence in 1..=LAST {
        append(&mut journal, &batch(sequence)).expect("the disk works");
    }
    disk
}

/// The same log with snapshots after these batches.
pub fn log_with_snapshots(at: &[usize]) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let mut journal = open_on(disk.clone(), &small_segments()).expect("an empty disk opens").0.journal;
    for sequence in 1..=LAST {
        append(&mut journal, &batch(sequence)).expect("the disk works");
        if at.contains(&sequence) {
            save(&journal, sequence as u64, &[sequence as u8; 900]).expect("the disk works");
        }
    }
    disk
}

pub fn open_journal(disk: &SimulatedDisk) -> Result<(RecordedReplay, Vec<String>), OpenError> {
    open_on(disk.clone(), &small_segments()).map(|(opened, replay)| (replay, opened.warnings))
}

/// The replayed sequence numbers. Checks each batch's bytes.
pub fn sequences(replay: &RecordedReplay) -> Vec<usize> {
    for (sequence, bytes) in &replay.batches {
        assert_eq!(*bytes, batch(*sequence as usize));
    }
    replay.batches.iter().map(|(sequence, _)| *sequence as usize).collect()
}

/// The open fails with `CORRUPT` at this file and offset, with a reason that contains `reason_part`, and changes nothing.
#[track_caller]
pub fn assert_corrupt(disk: &SimulatedDisk, name: &str, at: usize, reason_part: &str) {
    let before = disk.contents();
    match open_journal(disk) {
        Err(OpenError::Corrupt { file, offset, reason }) => {
            assert_eq!((file, offset), (disk.path(name), at as u64), "{reason}");
            assert!(reason.contains(reason_part), "{reason}");
        }
        other => panic!("{name} at {at}: {other:?}"),
    }
    assert_eq!(disk.contents(), before, "a refused journal is unchanged");
}

/// The open truncates the log after this batch, with one warning, once; then the log accepts appends.
#[track_caller]
pub fn assert_truncated(disk: &SimulatedDisk, last: usize) {
    let (first, warnings) = open_journal(disk).expect("a torn end is truncated");
    assert_eq!(sequences(&first), (1..=last).collect::<Vec<_>>());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is truncated at byte"), "{warnings:?}");
    let (reopened, warnings) = open_journal(disk).expect("the truncated log reopens");
    assert_eq!((reopened, warnings), (first, Vec::new()));
    check_appends(disk, last).expect("the truncated log accepts appends");
}

/// The log accepts appends after this batch, and a power loss does not lose them.
pub fn check_appends(disk: &SimulatedDisk, last: usize) -> Result<(), TestCaseError> {
    let mut journal = open_on(disk.clone(), &small_segments()).expect("the journal reopens").0.journal;
    for sequence in last + 1..last + 9 {
        append(&mut journal, &batch(sequence)).expect("the disk works");
    }
    drop(journal);
    let (replay, warnings) = open_journal(&disk.image().lose_unsynced()).expect("the journal is intact");
    prop_assert_eq!(sequences(&replay), (1..last + 9).collect::<Vec<_>>());
    prop_assert_eq!(warnings, Vec::<String>::new());
    Ok(())
}
