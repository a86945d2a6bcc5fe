//! Files of another journal or version, a damaged identity file, and lost progress.

use leasehold_server::journal::file::Disk;
use leasehold_server::journal::{Journal, OpenError};

use crate::fixture::*;
use crate::journal_support::simulated_disk::SimulatedDisk;
use crate::journal_support::{append, open_on, save, small_segments};

#[test]
fn a_newer_version_is_refused_and_unchanged() {
    let check = |disk: &SimulatedDisk, name: &str| {
        disk.tamper(name, |bytes| bytes[8] = 2);
        let before = disk.contents();
        let expected = OpenError::UnsupportedVersion { file: disk.path(name), have: 2, want: 1 };
        assert_eq!(open_journal(disk), Err(expected));
        assert_eq!(disk.contents(), before);
    };
    check(&intact_log(), &segment(1));
    check(&intact_log(), &segment(4));
    check(&log_with_snapshots(&[7]), &snapshot(7));
    let disk = intact_log();
    // The first generation is in the second slot of the identity file.
    disk.tamper("journal", |bytes| bytes.copy_within(4_096..4_096 + 140, 0));
    check(&disk, "journal");
}

#[test]
fn a_file_of_another_journal_is_refused() {
    let other = SimulatedDisk::new();
    other.random().expect("the next journal gets another id");
    let mut journal = open_on(other.clone(), &small_segments()).expect("an empty disk opens").0.journal;
    for sequence in 1..=LAST {
        append(&mut journal, &batch(sequence)).expect("the disk works");
    }
    save(&journal, 9, &[9; 900]).expect("the disk works");
    for number in 1..=4 {
        let disk = intact_log();
        disk.add_file(&segment(number), &other.bytes(&segment(number)));
        assert_eq!(open_journal(&disk), Err(OpenError::Foreign { file: disk.path(&segment(number)) }));
    }
    let disk = intact_log();
    disk.add_file(&snapshot(9), &other.bytes(&snapshot(9)));
    assert_eq!(open_journal(&disk), Err(OpenError::Foreign { file: disk.path(&snapshot(9)) }));
    // A batch of another journal is invalid, even at the same offset.
    let disk = intact_log();
    let (name, at) = batch_offset(3);
    let theirs = other.bytes(&name)[at..at + 720].to_vec();
    disk.tamper(&name, |bytes| bytes[at..at + 720].copy_from_slice(&theirs));
    assert_corrupt(&disk, &name, at, "checksum");
}

#[test]
fn a_missing_or_damaged_identity_file_is_refused() {
    let disk = intact_log();
    disk.remove_file("journal");
    assert_corrupt(&disk, "journal", 0, "batches");
    let disk = log_with_snapshots(&[7]);
    disk.remove_file("journal");
    (2..=4).for_each(|number| disk.remove_file(&segment(number)));
    assert_corrupt(&disk, "journal", 0, "batches");
    let disk = intact_log();
    disk.tamper("journal", |bytes| bytes[4_096 + 20] ^= 1);
    assert_corrupt(&disk, "journal", 4_096, "checksum");
    let disk = intact_log();
    disk.tamper("journal", |bytes| bytes.clear());
    assert_corrupt(&disk, "journal", 0, "");
}

#[test]
fn a_damaged_generation_is_never_reused() {
    for opens in 2..6 {
        let disk = intact_log();
        let generation =
            || open_on(disk.clone(), &small_segments()).expect("one of the two slots is intact").0.journal.generation();
        let last = (0..opens).fold(0, |_, _| generation());
        disk.tamper("journal", |bytes| bytes[last as usize % 2 * 4_096 + 33] ^= 1);
        let next = generation();
        assert!(next > last, "{next} after {last}");
        assert_eq!(generation(), next + 1);
    }
}

#[test]
fn a_batch_before_a_clean_stop_must_exist_at_the_next_open() {
    for lost in [1, 2] {
        let disk = SimulatedDisk::new();
        let mut journal = open_on(disk.clone(), &small_segments()).expect("an empty disk opens").0.journal;
        (1..=LAST).for_each(|sequence| append(&mut journal, &batch(sequence)).expect("the disk works"));
        journal.close();
        drop(journal);
        let (name, at) = batch_offset(LAST + 1 - lost);
        disk.tamper(&name, |bytes| bytes[at..].fill(0));
        assert_corrupt(&disk, &name, at, "clean stop");
    }
    // A journal that was closed opens, and a later one that crashed may lose its incomplete end.
    let disk = SimulatedDisk::new();
    for end in [LAST - 1, LAST] {
        let (opened, replay) = open_on(disk.clone(), &small_segments()).expect("the journal is intact");
        let mut journal = opened.journal;
        (replay.batches.len() + 1..=end).for_each(|at| append(&mut journal, &batch(at)).expect("the disk works"));
        if end < LAST {
            journal.close();
        }
    }
    let (name, at) = batch_offset(LAST);
    disk.tamper(&name, |bytes| bytes[at + FRAME_HEADER] ^= 1);
    let (replay, warnings) = open_journal(&disk).expect("a crash explains an incomplete last batch");
    assert_eq!((sequences(&replay).last(), warnings.len()), (Some(&(LAST - 1)), 1));
}

#[test]
fn a_batch_replayed_at_one_open_must_exist_at_the_next() {
    let disk = intact_log();
    open_journal(&disk).expect("the journal is intact");
    let (name, at) = batch_offset(LAST);
    disk.tamper(&name, |bytes| bytes[at + FRAME_HEADER] ^= 1);
    assert_corrupt(&disk, &name, at, "last open");
}
