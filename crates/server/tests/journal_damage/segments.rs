//! Damage to segments: headers, batches, order, and missing or misplaced files.

use crate::fixture::*;

#[test]
fn an_intact_log_is_replayed_without_a_warning() {
    let (replay, warnings) = open_journal(&intact_log()).expect("the journal is intact");
    assert_eq!(sequences(&replay), (1..=LAST).collect::<Vec<_>>());
    assert_eq!(warnings, Vec::<String>::new(), "zeros after the last batch are a clean end");
}

#[test]
fn a_damaged_header_is_refused() {
    for number in 1..=4 {
        let name = segment(number);
        for (reason, damage) in [
            ("empty", (|bytes: &mut Vec<u8>| bytes.clear()) as fn(&mut Vec<u8>)),
            ("truncated", |bytes| bytes.truncate(63)),
            ("magic", |bytes| bytes[0] ^= 1),
            ("version 0", |bytes| bytes[8] = 0),
            ("checksum", |bytes| bytes[40] ^= 1),
        ] {
            let disk = intact_log();
            disk.tamper(&name, damage);
            assert_corrupt(&disk, &name, 0, reason);
        }
    }
}

#[test]
fn a_damaged_last_batch_is_truncated_with_one_warning() {
    let (name, at) = batch_offset(LAST);
    for byte in [0, 4, 8, FRAME_HEADER, FRAME_HEADER + 350, FRAME_HEADER + 699] {
        let disk = intact_log();
        disk.tamper(&name, |bytes| bytes[at + byte] ^= 0x10);
        assert_truncated(&disk, LAST - 1);
    }
    for length in [at + 1, at + FRAME_HEADER, at + FRAME_HEADER + 699] {
        let disk = intact_log();
        disk.tamper(&name, |bytes| bytes.truncate(length));
        assert_truncated(&disk, LAST - 1);
    }
    let disk = intact_log();
    disk.tamper(&name, |bytes| bytes[at..at + 512].fill(0));
    assert_truncated(&disk, LAST - 1);
}

#[test]
fn garbage_after_the_last_batch_is_truncated() {
    let (name, at) = batch_offset(LAST);
    for garbage in [&[0xFF; 100][..], &[1, 0, 0, 0], b"leasehold leasehold leasehold"] {
        let disk = intact_log();
        disk.tamper(&name, |bytes| bytes[at + 720..at + 720 + garbage.len()].copy_from_slice(garbage));
        assert_truncated(&disk, LAST);
        let disk = intact_log();
        disk.tamper(&name, |bytes| {
            let end = bytes.len();
            bytes[end - garbage.len()..].copy_from_slice(garbage);
        });
        assert_truncated(&disk, LAST);
    }
}

#[test]
fn a_damaged_batch_before_a_valid_one_is_refused_with_its_offset() {
    for sequence in 1..LAST {
        let (name, at) = batch_offset(sequence);
        for byte in [0, 3, 4, 8, FRAME_HEADER, FRAME_HEADER + 699] {
            let disk = intact_log();
            disk.tamper(&name, |bytes| bytes[at + byte] ^= 0x80);
            assert_corrupt(&disk, &name, at, "follows it");
        }
        let disk = intact_log();
        disk.tamper(&name, |bytes| bytes[at..at + 720].fill(0));
        assert_corrupt(&disk, &name, at, "missing");
        let disk = intact_log();
        disk.tamper(&name, |bytes| bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()));
        assert_corrupt(&disk, &name, at, "length");
    }
}

#[test]
fn a_gap_a_repeat_and_a_backward_step_in_sequence_are_refused() {
    for (from, to, reason) in
        [(4, 3, "sequence 4, expected 3"), (2, 3, "sequence 2, expected 3"), (1, 3, "sequence 1, expected 3")]
    {
        let disk = intact_log();
        let ((name, from), (_, to)) = (batch_offset(from), batch_offset(to));
        disk.tamper(&name, |bytes| bytes.copy_within(from..from + 720, to));
        assert_corrupt(&disk, &name, to, reason);
    }
    // Also at the end of the log: a crash cannot produce a valid batch.
    let disk = intact_log();
    let ((name, from), (_, to)) = (batch_offset(LAST - 1), batch_offset(LAST));
    disk.tamper(&name, |bytes| bytes.copy_within(from..from + 720, to));
    assert_corrupt(&disk, &name, to, "sequence 16, expected 17");
}

#[test]
fn a_truncated_segment_in_the_middle_is_refused() {
    for number in 1..=3 {
        for length in [HEADER, HEADER + 720, HEADER + 721, HEADER + 5 * 720 - 8] {
            let disk = intact_log();
            disk.tamper(&segment(number), |bytes| bytes.truncate(length));
            let at = HEADER + (length - HEADER) / 720 * 720;
            assert_corrupt(&disk, &segment(number), at, "segment");
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    for number in [2, 3] {
        let disk = intact_log();
        disk.remove_file(&segment(number));
        assert_corrupt(&disk, &segment(number), 0, "missing");
    }
    let disk = intact_log();
    disk.remove_file(&segment(4));
    assert_corrupt(&disk, &segment(4), 0, "sealed");
    let disk = intact_log();
    disk.remove_file(&segment(1));
    assert_corrupt(&disk, &segment(2), 0, "starts at sequence 6");
    let disk = intact_log();
    (1..=4).for_each(|number| disk.remove_file(&segment(number)));
    assert_corrupt(&disk, "journal", 0, "no segment");
}

#[test]
fn a_misplaced_segment_is_refused() {
    let disk = intact_log();
    let [second, third] = [2, 3].map(|number| disk.bytes(&segment(number)));
    disk.tamper(&segment(2), |bytes| *bytes = third.clone());
    assert_corrupt(&disk, &segment(2), 0, "segment 3");
    disk.tamper(&segment(2), |bytes| *bytes = second.clone());
    disk.add_file(&segment(5), &second);
    assert_corrupt(&disk, &segment(5), 0, "segment 2");
    let disk = intact_log();
    disk.add_file("segment-2", &second);
    assert_corrupt(&disk, "segment-2", 0, "name");
    let disk = intact_log();
    disk.tamper(&segment(4), |bytes| bytes.push(0));
    assert_corrupt(&disk, &segment(4), 4_096, "longer");
}

#[test]
fn a_false_length_allocates_no_memory() {
    // A header with a valid checksum that claims the maximum size.
    let disk = intact_log();
    disk.tamper(&segment(4), |bytes| {
        bytes[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        let check = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&check.to_le_bytes());
    });
    // Each batch's checksum is seeded with the header's, so no batch of the segment is valid now.
    assert_truncated(&disk, 15);
    let disk = log_with_snapshots(&[7]);
    disk.tamper(&snapshot(7), |bytes| bytes[40..48].copy_from_slice(&u64::MAX.to_le_bytes()));
    assert_eq!(sequences(&open_journal(&disk).expect("the log covers the snapshot").0).len(), LAST);
}
