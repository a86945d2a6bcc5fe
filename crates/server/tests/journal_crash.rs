//! Every state that a crash may leave in one append, one rotation, one snapshot, one trim and one open, recovered (V2).

mod journal_support;

use journal_support::simulated_disk::{Power, World, record};
use journal_support::{append, depth, open_on, save, small};
use leasehold_server::journal::conformance::{RecordedReplay, batch};
use leasehold_server::journal::file::FileJournal;
use leasehold_server::journal::{DiskSpace, Journal, JournalError, SnapshotStore};

type File = FileJournal<Power>;

fn state(sequence: u64) -> Vec<u8> {
    let mut state = format!("the state after {sequence}").into_bytes();
    state.resize(700, sequence as u8);
    state
}

/// Appends a batch of this length and keeps count.
fn give(power: &Power, journal: &mut File, length: usize) {
    let sequence = journal.next();
    power.give(sequence);
    append(journal, &sized(sequence, length)).expect("the disk is well");
    power.answer(sequence);
}

fn sized(sequence: u64, length: usize) -> Vec<u8> {
    let mut bytes = batch(sequence);
    bytes.resize(length, sequence as u8);
    bytes
}

/// Everything answered is there, nothing is there that was not given, and each batch has its own bytes.
fn check(told: &RecordedReplay, answered: u64, given: u64, lengths: &[usize], context: &str) -> u64 {
    let mut next = 1;
    if let Some((sequence, bytes)) = &told.snapshot {
        assert_eq!(*bytes, state(*sequence), "{context}");
        next = sequence + 1;
    }
    for (sequence, bytes) in &told.batches {
        assert_eq!(*sequence, next, "{context}");
        assert_eq!(*bytes, sized(*sequence, lengths[*sequence as usize - 1]), "{context}: batch {sequence}");
        next += 1;
    }
    assert!(next > answered, "{context}: {answered} batches were answered, {} are there", next - 1);
    assert!(next <= given + 1, "{context}: {given} batches were given, {} are there", next - 1);
    next
}

/// What a recovered journal must still be able to do: take a batch that a second crash cannot take away.
fn goes_on(power: &Power, answered: u64, given: u64, lengths: &[usize], context: &str) {
    let (mut opened, told) = open_on(power.clone(), &small()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let next = check(&told, answered, given, lengths, context);
    assert_eq!(opened.journal.next(), next, "{context}");
    append(&mut opened.journal, b"after the crash").expect("the disk is well");
    drop(opened);
    let (_, again) = open_on(power.world().harshest(), &small()).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(again.snapshot, told.snapshot, "{context}");
    let (last, before) = again.batches.split_last().expect("one was appended");
    assert_eq!((before, last), (&told.batches[..], &(next, b"after the crash".to_vec())), "{context}");
}

/// Crashes at every step of `act`: killed, without power, and without power while recovering from that.
fn survives(name: &str, lengths: &[usize], prepare: impl Fn(&Power) -> File, act: impl FnOnce(&Power, &mut File)) {
    let power = Power::new();
    let mut journal = prepare(&power);
    let worlds = record(&power, || act(&power, &mut journal));
    drop(journal);
    assert!(worlds.len() > 2, "{name} changes the disk");
    let (most, again) = (depth(64, 1_024, 65_536), depth(3, 9, 65));
    let mut states = 0;
    for (step, world) in worlds.iter().enumerate() {
        let World { answered, given, .. } = *world;
        let killed = Power::from(world.clone());
        goes_on(&killed, answered, given, lengths, &format!("{name}, killed at step {step}"));
        let crashes = world.crashes(most);
        for (pick, crash) in crashes.iter().enumerate() {
            let context = format!("{name}, step {step}, state {pick}");
            states += 1;
            // A few of the states are also left half-recovered.
            if pick % (crashes.len() / again).max(1) == 0 {
                let retry = Power::from(crash.world());
                let recovering = record(&retry, || drop(open_on(retry.clone(), &small())));
                for (second, world) in recovering.iter().enumerate() {
                    let context = format!("{context}, then step {second} of recovery");
                    goes_on(&Power::from(world.clone()), answered, given, lengths, &format!("{context}, killed"));
                    for twice in world.crashes(again) {
                        goes_on(&twice, answered, given, lengths, &context);
                        states += 1;
                    }
                }
            }
            goes_on(crash, answered, given, lengths, &context);
        }
    }
    assert!(states > worlds.len(), "{name} has states to lose");
}

fn fresh(power: &Power) -> File {
    open_on(power.clone(), &small()).expect("an empty disk").0.journal
}

#[test]
fn an_append_survives_every_crash() {
    let lengths = [100, 1_500, 1_200];
    survives(
        "append",
        &lengths,
        |power| {
            let mut journal = fresh(power);
            give(power, &mut journal, lengths[0]);
            journal
        },
        |power, journal| {
            give(power, journal, lengths[1]);
            give(power, journal, lengths[2]);
        },
    );
}

#[test]
fn a_rotation_survives_every_crash() {
    let lengths = [1_500, 1_500, 1_500, 200];
    survives(
        "rotation",
        &lengths,
        |power| {
            let mut journal = fresh(power);
            give(power, &mut journal, lengths[0]);
            give(power, &mut journal, lengths[1]);
            journal
        },
        |power, journal| {
            give(power, journal, lengths[2]);
            give(power, journal, lengths[3]);
        },
    );
}

#[test]
fn a_batch_larger_than_a_segment_survives_every_crash() {
    let lengths = [300, 5_000, 300];
    survives(
        "large batch",
        &lengths,
        |power| {
            let mut journal = fresh(power);
            give(power, &mut journal, lengths[0]);
            journal
        },
        |power, journal| {
            give(power, journal, lengths[1]);
            give(power, journal, lengths[2]);
        },
    );
}

#[test]
fn snapshots_and_trimming_survive_every_crash() {
    let lengths = [1_500; 13];
    survives(
        "snapshot",
        &lengths,
        |power| {
            let mut journal = fresh(power);
            for length in &lengths[..8] {
                give(power, &mut journal, *length);
            }
            save(&journal, 2, &state(2)).expect("the disk is well");
            save(&journal, 5, &state(5)).expect("the disk is well");
            journal
        },
        |power, journal| {
            save(journal, 7, &state(7)).expect("the disk is well");
            assert_eq!(
                journal_support::now(journal.snapshots().trim(7)),
                Ok(leasehold_server::journal::AppendOutcome::Durable)
            );
            give(power, journal, lengths[8]);
            save(journal, 8, &state(8)).expect("the disk is well");
            give(power, journal, lengths[9]);
        },
    );
}

#[test]
fn the_first_open_survives_every_crash() {
    let power = Power::new();
    let worlds = record(&power, || drop(fresh(&power)));
    let mut states = 0;
    for (step, world) in worlds.iter().enumerate() {
        let context = format!("first open, step {step}");
        goes_on(&Power::from(world.clone()), 0, 0, &[], &format!("{context}, killed"));
        for crash in world.crashes(depth(64, 1_024, 65_536)) {
            goes_on(&crash, 0, 0, &[], &context);
            states += 1;
        }
    }
    assert!(states > 100, "{states} states");
}

#[test]
fn generations_rise_over_every_crash_of_an_open() {
    let power = Power::new();
    let mut journal = fresh(&power);
    give(&power, &mut journal, 100);
    drop(journal);
    let mut highest = 1;
    for _ in 0..4 {
        let worlds = record(&power, || {
            highest = open_on(power.clone(), &small()).expect("the disk is well").0.journal.generation();
        });
        let done = worlds.len() - 1;
        for (step, world) in worlds.iter().enumerate() {
            for crash in world.crashes(256) {
                let opened = open_on(crash, &small()).expect("the disk is well").0;
                let owed = if step == done { highest + 1 } else { highest };
                assert!(opened.journal.generation() >= owed, "step {step}");
            }
        }
    }
}

#[test]
fn after_a_failed_sync_everything_fails_and_nothing_answered_is_lost() {
    let lengths = [1_500; 8];
    let mut failures = 0;
    for after in 0.. {
        let power = Power::new();
        let mut journal = fresh(&power);
        power.fail_sync(after);
        let mut failed = None;
        for length in lengths {
            let sequence = journal.next();
            power.give(sequence);
            match append(&mut journal, &sized(sequence, length)) {
                Ok(()) => power.answer(sequence),
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
            if sequence == 4
                && let Err(fault) = save(&journal, 3, &state(3))
            {
                failed = Some(fault);
                break;
            }
        }
        if !power.mend() {
            break;
        }
        // A spare that failed at the last moment is told by the next call.
        let fault = failed.unwrap_or_else(|| journal.disk_space().expect_err("a sync failed"));
        assert!(matches!(fault, JournalError::Failed { .. }), "{fault:?}");
        let next = journal.next();
        assert_eq!(append(&mut journal, &sized(next, 10)), Err(fault.clone()), "for ever");
        assert_eq!(journal_support::now(journal.confirm()), Err(fault.clone()));
        assert_eq!(journal_support::now(journal.snapshots().trim(1)), Err(fault.clone()));
        assert_eq!(journal.disk_space(), Err(fault));
        drop(journal);
        failures += 1;
        let World { answered, given, .. } = power.world();
        for crash in power.world().crashes(depth(16, 256, 4_096)) {
            goes_on(&crash, answered, given, &lengths, &format!("sync {after} failed, then power was lost"));
        }
        // What can be read again may be in memory only, though it was not lost: the open must make it certain.
        goes_on(&power, answered, given, &lengths, &format!("sync {after} failed"));
    }
    assert!(failures > 15, "{failures} syncs could fail");
}

#[test]
fn a_full_disk_leaves_the_reserve_and_is_mended_without_a_new_start() {
    let power = Power::new();
    let mut journal = fresh(&power);
    assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
    power.limit(Some(power.used()));
    let mut kept = 0;
    let mut reserve = None;
    let fault = loop {
        let room = journal.disk_space().expect("a full disk is no failure");
        if room != DiskSpace::Plenty && reserve.is_none() {
            reserve = Some(kept);
        }
        match append(&mut journal, &[7; 200]) {
            Ok(()) => kept += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault, JournalError::Full);
    let owed = (4_096 * 3 / 4 - 216) / 216;
    let after = kept - reserve.expect("the reserve is told before it is used up");
    assert!(after >= owed, "{after} batches of the reserve, {owed} are owed");
    assert_eq!(journal.disk_space(), Ok(DiskSpace::None));
    assert_eq!(append(&mut journal, &[7; 200]), Err(JournalError::Full), "and still");
    assert_eq!(save(&journal, 1, &[1; 9_000]), Err(JournalError::Full), "a snapshot has no room either");
    // Killed and started again on the full disk.
    drop(journal);
    let (mut opened, told) = open_on(power.clone(), &small()).expect("a full disk can be opened");
    assert_eq!(told.batches.len(), kept);
    assert_eq!(append(&mut opened.journal, &[7; 200]), Err(JournalError::Full));
    power.limit(None);
    assert_eq!(opened.journal.disk_space(), Ok(DiskSpace::Plenty));
    append(&mut opened.journal, &[7; 200]).expect("space came back");
    drop(opened);
    let (_, told) = open_on(power.world().harshest(), &small()).expect("whole");
    assert_eq!(told.batches.len(), kept + 1);
}
