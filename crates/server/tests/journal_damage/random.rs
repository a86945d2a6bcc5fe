//! Random damage: a journal that opens replays only batches that were appended, in order.

use leasehold_server::journal::conformance::RecordedReplay;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::fixture::*;
use crate::journal_support::simulated_disk::SimulatedDisk;

fn fixed_seed() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_flipped_bit_in_a_batch_is_refused_unless_it_is_the_last(
        sequence in 1..=LAST, byte in 0..FRAME_HEADER + 700, bit in 0..8_u8,
    ) {
        let disk = intact_log();
        let (name, at) = batch_offset(sequence);
        disk.tamper(&name, |bytes| bytes[at + byte] ^= 1 << bit);
        if sequence == LAST {
            assert_truncated(&disk, LAST - 1);
        } else {
            assert_corrupt(&disk, &name, at, "");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_invents_no_batch_and_loses_at_most_the_last(
        file in 0..7_usize, byte in 0..8_192_usize, bit in 0..8_u8,
    ) {
        let disk = log_with_snapshots(&[7, 12]);
        let names: Vec<_> = disk.contents().into_keys().collect();
        disk.tamper(&names[file % names.len()], |bytes| {
            let byte = byte % bytes.len();
            bytes[byte] ^= 1 << bit;
        });
        check_bit_flip(&disk)?;
    }

    #[test]
    fn arbitrary_bytes_in_any_file_invent_no_batch(
        file in 0..7_usize, bytes in proptest::collection::vec(any::<u8>(), 0..5_000), keep in 0..200_usize,
    ) {
        let disk = log_with_snapshots(&[7, 12]);
        let names: Vec<_> = disk.contents().into_keys().collect();
        disk.tamper(&names[file % names.len()], |old| {
            old.truncate(keep);
            old.extend(bytes);
        });
        check_open(&disk)?;
    }

    #[test]
    fn arbitrary_files_without_a_journal_replay_nothing(
        files in proptest::collection::vec((0..6_usize, proptest::collection::vec(any::<u8>(), 0..300)), 1..5),
    ) {
        let disk = SimulatedDisk::new();
        for (file, bytes) in files {
            let name = [segment(1), segment(2), snapshot(3), "journal".to_owned(), "spare".to_owned(), "x".to_owned()];
            disk.add_file(&name[file], &bytes);
        }
        if let Ok((replay, _)) = open_journal(&disk) {
            prop_assert_eq!(replay, RecordedReplay::default());
        }
    }

    #[test]
    fn a_truncated_segment_invents_no_batch_and_loses_only_the_end(number in 1..=4_usize, length in 0..4_096_usize) {
        let disk = intact_log();
        disk.tamper(&segment(number), |bytes| bytes.truncate(length));
        match open_journal(&disk) {
            Ok((replay, _)) => {
                // The four bytes of padding after a batch may be missing.
                let complete = (length + 4).saturating_sub(HEADER) / 720;
                let last = if number == 4 { 15 + complete.min(2) } else { LAST };
                prop_assert!(number == 4 || complete >= BATCHES_PER_SEGMENT);
                prop_assert_eq!(sequences(&replay), (1..=last).collect::<Vec<_>>());
                check_appends(&disk, last)?;
            }
            Err(error) => prop_assert_eq!(error.code(), "CORRUPT"),
        }
    }
}

/// The replay contains only appended batches, and one flipped bit loses at most the last.
fn check_bit_flip(disk: &SimulatedDisk) -> Result<(), TestCaseError> {
    match open_journal(disk) {
        Ok((replay, _)) => {
            let last = check_order(&replay)?;
            prop_assert!(last >= LAST - 1, "{last} of {LAST}");
        }
        Err(error) => prop_assert!(
            matches!(error.code(), "CORRUPT" | "WRONG_CLUSTER" | "UNSUPPORTED_VERSION" | "CONFIG"),
            "{error}"
        ),
    }
    Ok(())
}

fn check_open(disk: &SimulatedDisk) -> Result<(), TestCaseError> {
    if let Ok((replay, _)) = open_journal(disk) {
        check_order(&replay)?;
    }
    Ok(())
}

/// The last replayed sequence number. Checks that the replay is in order and equals what was appended.
fn check_order(replay: &RecordedReplay) -> Result<usize, TestCaseError> {
    let mut next = 1;
    if let Some((sequence, bytes)) = &replay.snapshot {
        prop_assert_eq!(bytes, &vec![*sequence as u8; 900]);
        next = *sequence as usize + 1;
    }
    let sequences = sequences(replay);
    prop_assert_eq!(&sequences, &(next..next + sequences.len()).collect::<Vec<_>>());
    Ok(next + sequences.len() - 1)
}
