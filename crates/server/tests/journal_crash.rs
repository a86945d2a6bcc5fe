//! Crash recovery of the file journal: from every state that a crash in an append, rotation, snapshot, trim or open may leave (V2).

mod journal_support;

use journal_support::simulated_disk::{DiskImage, SimulatedDisk, record};
use journal_support::{append, open_on, save, small_segments};
use leasehold_server::journal::conformance::{RecordedReplay, batch};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::{DiskSpace, Journal, JournalError, SnapshotStore};
use leasehold_testkit::depth::depth;

type Log = FileJournal<SimulatedDisk>;

fn snapshot(sequence: u64) -> Vec<u8> {
    let mut bytes = format!("the state after {sequence}").into_bytes();
    bytes.resize(700, sequence as u8);
    bytes
}

/// Appends a batch of this length and records it in the disk image.
fn append_counted(disk: &SimulatedDisk, journal: &mut Log, length: usize) {
    let sequence = journal.next();
    disk.submitted(sequence);
    append(journal, &sized(sequence, length)).expect("the disk works");
    disk.acknowledged(sequence);
}

fn sized(sequence: u64, length: usize) -> Vec<u8> {
    let mut bytes = batch(sequence);
    bytes.resize(length, sequence as u8);
    bytes
}

/// Every acknowledged batch is replayed, no batch that was never submitted, and each with its own bytes.
fn check_replay(replay: &RecordedReplay, acknowledged: u64, submitted: u64, lengths: &[usize], context: &str) -> u64 {
    let mut next = 1;
    if let Some((sequence, bytes)) = &replay.snapshot {
        assert_eq!(*bytes, snapshot(*sequence), "{context}");
        next = sequence + 1;
    }
    for (sequence, bytes) in &replay.batches {
        assert_eq!(*sequence, next, "{context}");
        assert_eq!(*bytes, sized(*sequence, lengths[*sequence as usize - 1]), "{context}: batch {sequence}");
        next += 1;
    }
    assert!(next > acknowledged, "{context}: {acknowledged} batches acknowledged, {} replayed", next - 1);
    assert!(next <= submitted + 1, "{context}: {submitted} batches submitted, {} replayed", next - 1);
    next
}

/// Recovers the journal, checks its replay, and appends a batch that a second crash must not lose.
fn check_recovery(disk: &SimulatedDisk, acknowledged: u64, submitted: u64, lengths: &[usize], context: &str) {
    let (mut opened, replay) =
        open_on(disk.clone(), &small_segments()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let next = check_replay(&replay, acknowledged, submitted, lengths, context);
    assert_eq!(opened.journal.next(), next, "{context}");
    append(&mut opened.journal, b"after the crash").expect("the disk works");
    drop(opened);
    let (_, reopened) =
        open_on(disk.image().lose_unsynced(), &small_segments()).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(reopened.snapshot, replay.snapshot, "{context}");
    let (last, before) = reopened.batches.split_last().expect("one batch was appended");
    assert_eq!((before, last), (&replay.batches[..], &(next, b"after the crash".to_vec())), "{context}");
}

/// Crashes at every step of `act`: by a kill, by a power loss, and by a second power loss during recovery.
fn check_crashes(
    name: &str,
    lengths: &[usize],
    prepare: impl Fn(&SimulatedDisk) -> Log,
    act: impl FnOnce(&SimulatedDisk, &mut Log),
) {
    let disk = SimulatedDisk::new();
    let mut journal = prepare(&disk);
    let images = record(&disk, || act(&disk, &mut journal));
    drop(journal);
    assert!(images.len() > 2, "{name} changes the disk");
    let (limit, second_limit) = (depth(64, 1_024, 65_536), depth(3, 9, 65));
    let mut states = 0;
    for (step, image) in images.iter().enumerate() {
        let DiskImage { acknowledged, submitted, .. } = *image;
        let killed = SimulatedDisk::from(image.clone());
        check_recovery(&killed, acknowledged, submitted, lengths, &format!("{name}, killed at step {step}"));
        let crashes = image.crashes(limit);
        for (pick, crash) in crashes.iter().enumerate() {
            let context = format!("{name}, step {step}, state {pick}");
            states += 1;
            // For a few of the states, recovery crashes too.
            if pick % (crashes.len() / second_limit).max(1) == 0 {
                let retry = SimulatedDisk::from(crash.image());
                let recovering = record(&retry, || drop(open_on(retry.clone(), &small_segments())));
                for (second, image) in recovering.iter().enumerate() {
                    let context = format!("{context}, then step {second} of recovery");
                    check_recovery(
                        &SimulatedDisk::from(image.clone()),
                        acknowledged,
                        submitted,
                        lengths,
                        &format!("{context}, killed"),
                    );
                    for second_crash in image.crashes(second_limit) {
                        check_recovery(&second_crash, acknowledged, submitted, lengths, &context);
                        states += 1;
                    }
                }
            }
            check_recovery(crash, acknowledged, submitted, lengths, &context);
        }
    }
    assert!(states > images.len(), "{name} has unsynced states");
}

fn new_journal(disk: &SimulatedDisk) -> Log {
    open_on(disk.clone(), &small_segments()).expect("an empty disk opens").0.journal
}

#[test]
fn an_append_survives_every_crash() {
    let lengths = [100, 1_500, 1_200];
    check_crashes(
        "append",
        &lengths,
        |disk| {
            let mut journal = new_journal(disk);
            append_counted(disk, &mut journal, lengths[0]);
            journal
        },
        |disk, journal| {
            append_counted(disk, journal, lengths[1]);
            append_counted(disk, journal, lengths[2]);
        },
    );
}

#[test]
fn a_rotation_survives_every_crash() {
    let lengths = [1_500, 1_500, 1_500, 200];
    check_crashes(
        "rotation",
        &lengths,
        |disk| {
            let mut journal = new_journal(disk);
            append_counted(disk, &mut journal, lengths[0]);
            append_counted(disk, &mut journal, lengths[1]);
            journal
        },
        |disk, journal| {
            append_counted(disk, journal, lengths[2]);
            append_counted(disk, journal, lengths[3]);
        },
    );
}

#[test]
fn a_batch_larger_than_a_segment_survives_every_crash() {
    let lengths = [300, 5_000, 300];
    check_crashes(
        "large batch",
        &lengths,
        |disk| {
            let mut journal = new_journal(disk);
            append_counted(disk, &mut journal, lengths[0]);
            journal
        },
        |disk, journal| {
            append_counted(disk, journal, lengths[1]);
            append_counted(disk, journal, lengths[2]);
        },
    );
}

#[test]
fn snapshots_and_trimming_survive_every_crash() {
    let lengths = [1_500; 13];
    check_crashes(
        "snapshot",
        &lengths,
        |disk| {
            let mut journal = new_journal(disk);
            for length in &lengths[..8] {
                append_counted(disk, &mut journal, *length);
            }
            save(&journal, 2, &snapshot(2)).expect("the disk works");
            save(&journal, 5, &snapshot(5)).expect("the disk works");
            journal
        },
        |disk, journal| {
            save(journal, 7, &snapshot(7)).expect("the disk works");
            assert_eq!(
                journal_support::poll_ready(journal.snapshots().trim(7)),
                Ok(leasehold_server::journal::AppendOutcome::Durable)
            );
            append_counted(disk, journal, lengths[8]);
            save(journal, 8, &snapshot(8)).expect("the disk works");
            append_counted(disk, journal, lengths[9]);
        },
    );
}

#[test]
fn the_first_open_survives_every_crash() {
    let disk = SimulatedDisk::new();
    let images = record(&disk, || drop(new_journal(&disk)));
    let mut states = 0;
    for (step, image) in images.iter().enumerate() {
        let context = format!("first open, step {step}");
        check_recovery(&SimulatedDisk::from(image.clone()), 0, 0, &[], &format!("{context}, killed"));
        for crash in image.crashes(depth(64, 1_024, 65_536)) {
            check_recovery(&crash, 0, 0, &[], &context);
            states += 1;
        }
    }
    assert!(states > 100, "{states} states");
}

#[test]
fn generations_increase_across_every_crash_of_an_open() {
    let disk = SimulatedDisk::new();
    let mut journal = new_journal(&disk);
    append_counted(&disk, &mut journal, 100);
    drop(journal);
    let mut highest = 1;
    for _ in 0..4 {
        let images = record(&disk, || {
            highest = open_on(disk.clone(), &small_segments()).expect("the disk works").0.journal.generation();
        });
        let done = images.len() - 1;
        for (step, image) in images.iter().enumerate() {
            for crash in image.crashes(256) {
                let opened = open_on(crash, &small_segments()).expect("the disk works").0;
                let min = if step == done { highest + 1 } else { highest };
                assert!(opened.journal.generation() >= min, "step {step}");
            }
        }
    }
}

#[test]
fn after_a_failed_sync_every_call_fails_and_no_acknowledged_batch_is_lost() {
    let lengths = [1_500; 8];
    let mut failures = 0;
    for after in 0.. {
        let disk = SimulatedDisk::new();
        let mut journal = new_journal(&disk);
        disk.fail_sync(after);
        let mut failed = None;
        for length in lengths {
            let sequence = journal.next();
            disk.submitted(sequence);
            match append(&mut journal, &sized(sequence, length)) {
                Ok(()) => disk.acknowledged(sequence),
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
            if sequence == 4
                && let Err(fault) = save(&journal, 3, &snapshot(3))
            {
                failed = Some(fault);
                break;
            }
        }
        if !disk.cancel_sync_failure() {
            break;
        }
        // A failure while preallocating the next segment is reported by the next call.
        let fault = failed.unwrap_or_else(|| journal.disk_space().expect_err("a sync failed"));
        assert!(matches!(fault, JournalError::Failed { .. }), "{fault:?}");
        let next = journal.next();
        assert_eq!(append(&mut journal, &sized(next, 10)), Err(fault.clone()), "permanently");
        assert_eq!(journal_support::poll_ready(journal.confirm()), Err(fault.clone()));
        assert_eq!(journal_support::poll_ready(journal.snapshots().trim(1)), Err(fault.clone()));
        assert_eq!(journal.disk_space(), Err(fault));
        drop(journal);
        failures += 1;
        let DiskImage { acknowledged, submitted, .. } = disk.image();
        for crash in disk.image().crashes(depth(16, 256, 4_096)) {
            check_recovery(
                &crash,
                acknowledged,
                submitted,
                &lengths,
                &format!("sync {after} failed, then power was lost"),
            );
        }
        // Data that is readable after a failed sync may not be durable: the open must sync it again.
        check_recovery(&disk, acknowledged, submitted, &lengths, &format!("sync {after} failed"));
    }
    assert!(failures > 15, "{failures} syncs could fail");
}

#[test]
fn a_full_disk_leaves_the_reserve_and_recovers_without_a_restart() {
    let disk = SimulatedDisk::new();
    let mut journal = new_journal(&disk);
    assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
    disk.limit(Some(disk.used()));
    let mut stored = 0;
    let mut reserve_from = None;
    let fault = loop {
        let space = journal.disk_space().expect("a full disk is not a failed disk");
        if space != DiskSpace::Plenty && reserve_from.is_none() {
            reserve_from = Some(stored);
        }
        match append(&mut journal, &[7; 200]) {
            Ok(()) => stored += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault, JournalError::Full);
    let min = (4_096 * 3 / 4 - 216) / 216;
    let after = stored - reserve_from.expect("the low space is reported before the reserve is used up");
    assert!(after >= min, "{after} batches of the reserve, at least {min} expected");
    assert_eq!(journal.disk_space(), Ok(DiskSpace::None));
    assert_eq!(append(&mut journal, &[7; 200]), Err(JournalError::Full), "still full");
    assert_eq!(save(&journal, 1, &[1; 9_000]), Err(JournalError::Full), "a snapshot does not fit either");
    // Killed and restarted on the full disk.
    drop(journal);
    let (mut opened, replay) = open_on(disk.clone(), &small_segments()).expect("a full disk can be opened");
    assert_eq!(replay.batches.len(), stored);
    assert_eq!(append(&mut opened.journal, &[7; 200]), Err(JournalError::Full));
    disk.limit(None);
    assert_eq!(opened.journal.disk_space(), Ok(DiskSpace::Plenty));
    append(&mut opened.journal, &[7; 200]).expect("space was freed");
    drop(opened);
    let (_, replay) = open_on(disk.image().lose_unsynced(), &small_segments()).expect("the journal is intact");
    assert_eq!(replay.batches.len(), stored + 1);
}
