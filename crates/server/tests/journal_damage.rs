//! Damage of every kind, and what it gets: a torn end is cut, anything else is refused with file and offset (V2).

mod journal_support;

use journal_support::simulated_disk::Power;
use journal_support::{append, now, open_on, save, small};
use leasehold_core::grantor::CorruptionError;
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Disk, FileJournal};
use leasehold_server::journal::{AppendOutcome, Journal, OpenError, Replay, SnapshotStore};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const HEADER: usize = 64;
const HEAD: usize = 16;
/// Batches per segment, and in all: the last segment has two.
const EACH: usize = 5;
const ALL: usize = 3 * EACH + 2;

fn segment(number: usize) -> String {
    format!("segment-{number:020}")
}

fn snapshot(sequence: usize) -> String {
    format!("snapshot-{sequence:020}")
}

fn batch(sequence: usize) -> Vec<u8> {
    vec![sequence as u8; 700]
}

/// Where a batch lies: five of 720 bytes fill a segment.
fn place(sequence: usize) -> (String, usize) {
    (segment(1 + (sequence - 1) / EACH), HEADER + (sequence - 1) % EACH * 720)
}

/// Four segments with all batches; opened once, before any of them was there.
fn whole() -> Power {
    let power = Power::new();
    let mut journal = open_on(power.clone(), &small()).expect("an empty disk").0.journal;
    for sequence in 1..=ALL {
        append(&mut journal, &batch(sequence)).expect("the disk is well");
    }
    power
}

/// The same with snapshots.
fn with_snapshots(at: &[usize]) -> Power {
    let power = Power::new();
    let mut journal = open_on(power.clone(), &small()).expect("an empty disk").0.journal;
    for sequence in 1..=ALL {
        append(&mut journal, &batch(sequence)).expect("the disk is well");
        if at.contains(&sequence) {
            save(&journal, sequence as u64, &[sequence as u8; 900]).expect("the disk is well");
        }
    }
    power
}

fn told(power: &Power) -> Result<(RecordedReplay, Vec<String>), OpenError> {
    open_on(power.clone(), &small()).map(|(opened, told)| (told, opened.warnings))
}

/// The batches that were told, by number, each with its own bytes.
fn numbers(told: &RecordedReplay) -> Vec<usize> {
    for (sequence, bytes) in &told.batches {
        assert_eq!(*bytes, batch(*sequence as usize));
    }
    told.batches.iter().map(|(sequence, _)| *sequence as usize).collect()
}

#[track_caller]
fn refused_at(power: &Power, name: &str, at: usize, words: &str) {
    let before = power.contents();
    match told(power) {
        Err(OpenError::Corrupt { file, offset, reason }) => {
            assert_eq!((file, offset), (power.path(name), at as u64), "{reason}");
            assert!(reason.contains(words), "{reason}");
        }
        other => panic!("{name} at {at}: {other:?}"),
    }
    assert_eq!(power.contents(), before, "a refused journal is untouched");
}

#[track_caller]
fn cut_to(power: &Power, last: usize) {
    let (told_first, warnings) = told(power).expect("a torn end is cut");
    assert_eq!(numbers(&told_first), (1..=last).collect::<Vec<_>>());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is truncated at byte"), "{warnings:?}");
    let (again, warnings) = told(power).expect("and it stays cut");
    assert_eq!((again, warnings), (told_first, Vec::new()));
    goes_on(power, last).expect("and is written on");
}

#[test]
fn what_is_whole_is_told_without_a_warning() {
    let (told, warnings) = told(&whole()).expect("nothing is wrong");
    assert_eq!(numbers(&told), (1..=ALL).collect::<Vec<_>>());
    assert_eq!(warnings, Vec::<String>::new(), "zeros behind the last batch are a clean end");
}

#[test]
fn a_damaged_header_is_refused() {
    for number in 1..=4 {
        let name = segment(number);
        for (words, damage) in [
            ("empty", (|bytes: &mut Vec<u8>| bytes.clear()) as fn(&mut Vec<u8>)),
            ("truncated", |bytes| bytes.truncate(63)),
            ("magic", |bytes| bytes[0] ^= 1),
            ("version 0", |bytes| bytes[8] = 0),
            ("checksum", |bytes| bytes[40] ^= 1),
        ] {
            let power = whole();
            power.tamper(&name, damage);
            refused_at(&power, &name, 0, words);
        }
    }
}

#[test]
fn a_newer_version_is_refused_and_untouched() {
    let check = |power: &Power, name: &str| {
        power.tamper(name, |bytes| bytes[8] = 2);
        let before = power.contents();
        let owed = OpenError::UnsupportedVersion { file: power.path(name), have: 2, want: 1 };
        assert_eq!(told(power), Err(owed));
        assert_eq!(power.contents(), before);
    };
    check(&whole(), &segment(1));
    check(&whole(), &segment(4));
    check(&with_snapshots(&[7]), &snapshot(7));
    let power = whole();
    // The first generation is in the second place.
    power.tamper("journal", |bytes| bytes.copy_within(4_096..4_096 + 140, 0));
    check(&power, "journal");
}

#[test]
fn a_last_batch_that_is_not_whole_is_cut_with_one_warning() {
    let (name, at) = place(ALL);
    for byte in [0, 4, 8, HEAD, HEAD + 350, HEAD + 699] {
        let power = whole();
        power.tamper(&name, |bytes| bytes[at + byte] ^= 0x10);
        cut_to(&power, ALL - 1);
    }
    for length in [at + 1, at + HEAD, at + HEAD + 699] {
        let power = whole();
        power.tamper(&name, |bytes| bytes.truncate(length));
        cut_to(&power, ALL - 1);
    }
    let power = whole();
    power.tamper(&name, |bytes| bytes[at..at + 512].fill(0));
    cut_to(&power, ALL - 1);
}

#[test]
fn garbage_after_the_end_is_cut() {
    let (name, at) = place(ALL);
    for garbage in [&[0xFF; 100][..], &[1, 0, 0, 0], b"leasehold leasehold leasehold"] {
        let power = whole();
        power.tamper(&name, |bytes| bytes[at + 720..at + 720 + garbage.len()].copy_from_slice(garbage));
        cut_to(&power, ALL);
        let power = whole();
        power.tamper(&name, |bytes| {
            let end = bytes.len();
            bytes[end - garbage.len()..].copy_from_slice(garbage);
        });
        cut_to(&power, ALL);
    }
}

#[test]
fn a_damaged_batch_that_a_later_one_follows_is_refused_with_its_place() {
    for sequence in 1..ALL {
        let (name, at) = place(sequence);
        for byte in [0, 3, 4, 8, HEAD, HEAD + 699] {
            let power = whole();
            power.tamper(&name, |bytes| bytes[at + byte] ^= 0x80);
            refused_at(&power, &name, at, "follows it");
        }
        let power = whole();
        power.tamper(&name, |bytes| bytes[at..at + 720].fill(0));
        refused_at(&power, &name, at, "missing");
        let power = whole();
        power.tamper(&name, |bytes| bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()));
        refused_at(&power, &name, at, "length");
    }
}

#[test]
fn a_gap_a_repeat_and_a_step_back_are_refused() {
    for (from, to, words) in
        [(4, 3, "sequence 4, expected 3"), (2, 3, "sequence 2, expected 3"), (1, 3, "sequence 1, expected 3")]
    {
        let power = whole();
        let ((name, from), (_, to)) = (place(from), place(to));
        power.tamper(&name, |bytes| bytes.copy_within(from..from + 720, to));
        refused_at(&power, &name, to, words);
    }
    // Also at the very end, where nothing later follows: a crash does not make a valid batch.
    let power = whole();
    let ((name, from), (_, to)) = (place(ALL - 1), place(ALL));
    power.tamper(&name, |bytes| bytes.copy_within(from..from + 720, to));
    refused_at(&power, &name, to, "sequence 16, expected 17");
}

#[test]
fn a_truncated_segment_in_the_middle_is_refused() {
    for number in 1..=3 {
        for length in [HEADER, HEADER + 720, HEADER + 721, HEADER + 5 * 720 - 8] {
            let power = whole();
            power.tamper(&segment(number), |bytes| bytes.truncate(length));
            let at = HEADER + (length - HEADER) / 720 * 720;
            refused_at(&power, &segment(number), at, "segment");
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    for number in [2, 3] {
        let power = whole();
        power.take_away(&segment(number));
        refused_at(&power, &segment(number), 0, "missing");
    }
    let power = whole();
    power.take_away(&segment(4));
    refused_at(&power, &segment(4), 0, "sealed");
    let power = whole();
    power.take_away(&segment(1));
    refused_at(&power, &segment(2), 0, "starts at sequence 6");
    let power = whole();
    (1..=4).for_each(|number| power.take_away(&segment(number)));
    refused_at(&power, "journal", 0, "no segment");
}

#[test]
fn a_segment_in_another_place_is_refused() {
    let power = whole();
    let [second, third] = [2, 3].map(|number| power.bytes(&segment(number)));
    power.tamper(&segment(2), |bytes| *bytes = third.clone());
    refused_at(&power, &segment(2), 0, "segment 3");
    power.tamper(&segment(2), |bytes| *bytes = second.clone());
    power.plant(&segment(5), &second);
    refused_at(&power, &segment(5), 0, "segment 2");
    let power = whole();
    power.plant("segment-2", &second);
    refused_at(&power, "segment-2", 0, "name");
    let power = whole();
    power.tamper(&segment(4), |bytes| bytes.push(0));
    refused_at(&power, &segment(4), 4_096, "longer");
}

#[test]
fn the_file_of_another_journal_is_refused() {
    let other = Power::new();
    other.random().expect("another id is taken from here on");
    let mut journal = open_on(other.clone(), &small()).expect("an empty disk").0.journal;
    for sequence in 1..=ALL {
        append(&mut journal, &batch(sequence)).expect("the disk is well");
    }
    save(&journal, 9, &[9; 900]).expect("the disk is well");
    for number in 1..=4 {
        let power = whole();
        power.plant(&segment(number), &other.bytes(&segment(number)));
        assert_eq!(told(&power), Err(OpenError::Foreign { file: power.path(&segment(number)) }));
    }
    let power = whole();
    power.plant(&snapshot(9), &other.bytes(&snapshot(9)));
    assert_eq!(told(&power), Err(OpenError::Foreign { file: power.path(&snapshot(9)) }));
    // A batch of another journal is no batch here, even in its own place.
    let power = whole();
    let (name, at) = place(3);
    let theirs = other.bytes(&name)[at..at + 720].to_vec();
    power.tamper(&name, |bytes| bytes[at..at + 720].copy_from_slice(&theirs));
    refused_at(&power, &name, at, "checksum");
}

#[test]
fn the_identity_is_missed() {
    let power = whole();
    power.take_away("journal");
    refused_at(&power, "journal", 0, "batches");
    let power = with_snapshots(&[7]);
    power.take_away("journal");
    (2..=4).for_each(|number| power.take_away(&segment(number)));
    refused_at(&power, "journal", 0, "batches");
    let power = whole();
    power.tamper("journal", |bytes| bytes[4_096 + 20] ^= 1);
    refused_at(&power, "journal", 0, "");
    let power = whole();
    power.tamper("journal", |bytes| bytes.clear());
    refused_at(&power, "journal", 0, "");
}

#[test]
fn a_damaged_generation_is_not_given_out_again() {
    for opens in 2..6 {
        let power = whole();
        let generation = || open_on(power.clone(), &small()).expect("one of two is whole").0.journal.generation();
        let last = (0..opens).fold(0, |_, _| generation());
        power.tamper("journal", |bytes| bytes[last as usize % 2 * 4_096 + 33] ^= 1);
        let next = generation();
        assert!(next > last, "{next} after {last}");
        assert_eq!(generation(), next + 1);
    }
}

#[test]
fn what_was_there_at_an_open_must_be_there_at_the_next() {
    let power = whole();
    told(&power).expect("nothing is wrong");
    let (name, at) = place(ALL);
    power.tamper(&name, |bytes| bytes[at + HEAD] ^= 1);
    refused_at(&power, &name, at, "last open");
}

#[test]
fn a_snapshot_is_told_with_what_follows_it() {
    let (told, warnings) = told(&with_snapshots(&[4, 9, 12])).expect("nothing is wrong");
    assert_eq!(told.snapshot, Some((12, vec![12; 900])));
    assert_eq!(numbers(&told), (13..=ALL).collect::<Vec<_>>());
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn a_damaged_snapshot_is_passed_over_only_if_the_log_covers_the_gap() {
    for byte in [0, 12, 20, 33, 41, 61, 64, 900] {
        let power = with_snapshots(&[9, 12]);
        power.tamper(&snapshot(12), |bytes| bytes[byte] ^= 1);
        let (seen, warnings) = told(&power).expect("the one before will do");
        assert_eq!(seen.snapshot, Some((9, vec![9; 900])), "byte {byte}");
        assert_eq!(numbers(&seen), (10..=ALL).collect::<Vec<_>>());
        assert!(warnings[0].contains(&snapshot(12)), "{warnings:?}");
        power.tamper(&snapshot(9), |bytes| bytes.truncate(700));
        let (seen, _) = told(&power).expect("the log is whole");
        assert_eq!((seen.snapshot.as_ref(), numbers(&seen)), (None, (1..=ALL).collect::<Vec<_>>()));
        power.take_away(&segment(1));
        refused_at(&power, &snapshot(12), 0, "starts only at sequence");
    }
}

#[test]
fn trimming_leaves_enough_to_do_without_the_newest_snapshot() {
    let power = with_snapshots(&[9, 16]);
    let (opened, _) = open_on(power.clone(), &small()).expect("nothing is wrong");
    assert_eq!(now(opened.journal.snapshots().trim(u64::MAX)), Ok(AppendOutcome::Durable));
    drop(opened);
    assert!(!power.contents().contains_key(&segment(1)), "what both snapshots cover is gone");
    power.tamper(&snapshot(16), |bytes| bytes[70] ^= 1);
    let (seen, _) = told(&power).expect("the one before will do");
    assert_eq!(seen.snapshot, Some((9, vec![9; 900])));
    assert_eq!(numbers(&seen), (10..=ALL).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_that_the_log_does_not_reach_is_refused() {
    let power = with_snapshots(&[4]);
    power.take_away(&segment(1));
    refused_at(&power, &segment(2), 0, "snapshots end at 4");
    let power = with_snapshots(&[17]);
    power.take_away(&segment(4));
    power.tamper(&segment(3), |bytes| bytes[HEADER + EACH * 720..].fill(0));
    refused_at(&power, &snapshot(17), 0, "newer than the log");
    let power = with_snapshots(&[5]);
    let bytes = power.bytes(&snapshot(5));
    power.plant(&snapshot(6), &bytes);
    refused_at(&power, &snapshot(6), 0, "sequence 5");
}

/// One who finds that a batch does not follow from the one before.
struct Refuses(u64);

impl Replay for Refuses {
    fn snapshot(&mut self, _: u64, _: &[u8]) -> Result<(), CorruptionError> {
        Err(CorruptionError { at: 5, problem: "no snapshot of ours" })
    }

    fn batch(&mut self, sequence: u64, _: &[u8]) -> Result<(), CorruptionError> {
        if sequence == self.0 { Err(CorruptionError { at: 3, problem: "the hash chain is broken" }) } else { Ok(()) }
    }
}

#[test]
fn what_the_grantor_refuses_is_told_with_file_and_offset() {
    let power = whole();
    let (name, at) = place(8);
    let error = FileJournal::open_on(power.clone(), &small(), &mut Refuses(8)).expect_err("refused");
    let reason = "the hash chain is broken".to_owned();
    let owed = OpenError::Corrupt { file: power.path(&name), offset: (at + HEAD + 3) as u64, reason };
    assert_eq!(error, owed);
    let power = with_snapshots(&[6]);
    let error = FileJournal::open_on(power.clone(), &small(), &mut Refuses(8)).expect_err("refused");
    let reason = "no snapshot of ours".to_owned();
    assert_eq!(error, OpenError::Corrupt { file: power.path(&snapshot(6)), offset: HEADER as u64 + 5, reason });
}

#[test]
fn a_length_that_lies_takes_no_memory() {
    // A header that is whole and claims the largest size there is.
    let power = whole();
    power.tamper(&segment(4), |bytes| {
        bytes[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        let check = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&check.to_le_bytes());
    });
    // The checksum of its batches starts from the header's: none of them is valid any more.
    cut_to(&power, 15);
    let power = with_snapshots(&[7]);
    power.tamper(&snapshot(7), |bytes| bytes[40..48].copy_from_slice(&u64::MAX.to_le_bytes()));
    assert_eq!(numbers(&told(&power).expect("the log covers it").0).len(), ALL);
}

fn fixed() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(fixed())]

    #[test]
    fn a_flipped_bit_in_a_batch_is_refused_unless_it_is_the_last(
        sequence in 1..=ALL, byte in 0..HEAD + 700, bit in 0..8_u8,
    ) {
        let power = whole();
        let (name, at) = place(sequence);
        power.tamper(&name, |bytes| bytes[at + byte] ^= 1 << bit);
        if sequence == ALL {
            cut_to(&power, ALL - 1);
        } else {
            refused_at(&power, &name, at, "");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_invents_nothing_and_loses_at_most_the_last(
        file in 0..7_usize, byte in 0..8_192_usize, bit in 0..8_u8,
    ) {
        let power = with_snapshots(&[7, 12]);
        let names: Vec<_> = power.contents().into_keys().collect();
        power.tamper(&names[file % names.len()], |bytes| {
            let byte = byte % bytes.len();
            bytes[byte] ^= 1 << bit;
        });
        tells_the_truth(&power)?;
    }

    #[test]
    fn arbitrary_bytes_in_any_file_invent_nothing(
        file in 0..7_usize, bytes in proptest::collection::vec(any::<u8>(), 0..5_000), keep in 0..200_usize,
    ) {
        let power = with_snapshots(&[7, 12]);
        let names: Vec<_> = power.contents().into_keys().collect();
        power.tamper(&names[file % names.len()], |old| {
            old.truncate(keep);
            old.extend(bytes);
        });
        survives(&power)?;
    }

    #[test]
    fn arbitrary_files_alone_do_no_harm(
        files in proptest::collection::vec((0..6_usize, proptest::collection::vec(any::<u8>(), 0..300)), 1..5),
    ) {
        let power = Power::new();
        for (file, bytes) in files {
            let name = [segment(1), segment(2), snapshot(3), "journal".to_owned(), "spare".to_owned(), "x".to_owned()];
            power.plant(&name[file], &bytes);
        }
        if let Ok((told, _)) = told(&power) {
            prop_assert_eq!(told, RecordedReplay::default());
        }
    }

    #[test]
    fn a_truncated_file_invents_nothing_and_loses_only_an_end(number in 1..=4_usize, length in 0..4_096_usize) {
        let power = whole();
        power.tamper(&segment(number), |bytes| bytes.truncate(length));
        match told(&power) {
            Ok((told, _)) => {
                // A batch ends with four zeros that nobody misses.
                let whole = (length + 4).saturating_sub(HEADER) / 720;
                let last = if number == 4 { 15 + whole.min(2) } else { ALL };
                prop_assert!(number == 4 || whole >= EACH);
                prop_assert_eq!(numbers(&told), (1..=last).collect::<Vec<_>>());
                goes_on(&power, last)?;
            }
            Err(error) => prop_assert_eq!(error.code(), "CORRUPT"),
        }
    }
}

/// What was cut short takes batches again, and keeps them.
fn goes_on(power: &Power, last: usize) -> Result<(), TestCaseError> {
    let mut journal = open_on(power.clone(), &small()).expect("it was opened before").0.journal;
    for sequence in last + 1..last + 9 {
        append(&mut journal, &batch(sequence)).expect("the disk is well");
    }
    drop(journal);
    let (told, warnings) = told(&power.world().harshest()).expect("nothing is wrong");
    prop_assert_eq!(numbers(&told), (1..last + 9).collect::<Vec<_>>());
    prop_assert_eq!(warnings, Vec::<String>::new());
    Ok(())
}

/// Whatever is told was given; one flipped bit loses the last batch at most.
fn tells_the_truth(power: &Power) -> Result<(), TestCaseError> {
    match told(power) {
        Ok((told, _)) => {
            let seen = told_in_order(&told)?;
            prop_assert!(seen >= ALL - 1, "{seen} of {ALL}");
        }
        Err(error) => prop_assert!(
            matches!(error.code(), "CORRUPT" | "WRONG_CLUSTER" | "UNSUPPORTED_VERSION" | "CONFIG"),
            "{error}"
        ),
    }
    Ok(())
}

fn survives(power: &Power) -> Result<(), TestCaseError> {
    if let Ok((told, _)) = told(power) {
        told_in_order(&told)?;
    }
    Ok(())
}

/// The last sequence of what was told, which is checked to be what was given.
fn told_in_order(told: &RecordedReplay) -> Result<usize, TestCaseError> {
    let mut next = 1;
    if let Some((sequence, bytes)) = &told.snapshot {
        prop_assert_eq!(bytes, &vec![*sequence as u8; 900]);
        next = *sequence as usize + 1;
    }
    let seen = numbers(told);
    prop_assert_eq!(&seen, &(next..next + seen.len()).collect::<Vec<_>>());
    Ok(next + seen.len() - 1)
}
