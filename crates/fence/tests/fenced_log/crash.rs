//! A torn append is cut off. Any other damage is an error, and the file is left unchanged.

use leasehold_fence::Error;

use crate::fixture::TestLog;
use crate::support::{number, token};

/// A log with five entries, and the offset of each.
fn log_with_five_entries() -> (TestLog, Vec<usize>) {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    let mut offsets = vec![40, fixture.bytes().len()];
    log.claim(token(5)).expect("claimed");
    offsets.push(fixture.bytes().len());
    log.append(token(5), b"first").expect("appended");
    offsets.push(fixture.bytes().len());
    log.append(token(6), b"second").expect("appended");
    offsets.push(fixture.bytes().len());
    log.append(token(7), b"third").expect("appended");
    (fixture, offsets)
}

/// After the crash the acknowledged entries exist, and appends continue.
fn assert_continues(fixture: &TestLog, expected: &[u64], how: &str) {
    assert_eq!(fixture.numbers(), expected, "{how}: the readable entries");
    let mut log = fixture.open();
    assert_eq!(log.mark().expect(how), expected.last().map(|last| number(*last)), "{how}");
    log.append(token(9), b"next").expect(how);
    assert_eq!(fixture.numbers(), [expected, &[9]].concat(), "{how}");
    assert_eq!(log.append(token(8), b"late").expect_err(how).code(), "STALE_TOKEN");
}

#[test]
fn an_append_torn_at_any_byte_is_cut_off_and_appends_continue() {
    let (fixture, offsets) = log_with_five_entries();
    let whole = fixture.bytes();
    let last = *offsets.last().expect("five records");
    for end in last..whole.len() {
        fixture.overwrite(&whole[..end]);
        assert_continues(&fixture, &[5, 6], &format!("cut at {end}"));
    }
}

#[test]
fn a_torn_append_with_missing_sectors_is_cut_off() {
    let (fixture, offsets) = log_with_five_entries();
    let whole = fixture.bytes();
    let last = *offsets.last().expect("five records");
    for from in last..whole.len() {
        let mut holes = whole.clone();
        holes[from..].fill(0);
        if holes != whole {
            fixture.overwrite(&holes);
            assert_continues(&fixture, &[5, 6], &format!("zeros from {from}"));
        }
        let mut holes = whole.clone();
        holes[last..=from].fill(0);
        fixture.overwrite(&holes);
        assert_continues(&fixture, &[5, 6], &format!("zeros up to {from}"));
    }
    let mut zeros = whole.clone();
    zeros.resize(whole.len() + 4096, 0);
    fixture.overwrite(&zeros);
    assert_continues(&fixture, &[5, 6, 7], "zeros after the end");
}

#[test]
fn damage_before_the_last_entry_is_an_error_with_its_offset() {
    let (fixture, offsets) = log_with_five_entries();
    let whole = fixture.bytes();
    let last = *offsets.last().expect("five records");
    for at in 0..last {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        fixture.overwrite(&flipped);
        let error = fixture.try_open().expect_err("damaged");
        let expected = offsets.iter().rev().find(|offset_of_entry| **offset_of_entry <= at);
        match (&error, expected) {
            (Error::Corrupt { offset, file, .. }, Some(offset_of_entry)) => {
                assert_eq!((*offset, file), (*offset_of_entry as u64, &fixture.file()), "byte {at}");
            }
            (_, Some(_)) => panic!("byte {at}: {error}"),
            // Damage in the header can also look like another version, another log, or no log.
            (_, None) => {
                let codes = ["CORRUPT", "STORAGE_FAILED", "UNSUPPORTED_VERSION"];
                assert!(codes.contains(&error.code()), "byte {at}: {error}");
            }
        }
        assert_eq!(fixture.bytes(), flipped, "byte {at}: unchanged");
    }
}

#[test]
fn damage_is_detected_in_an_open_log_too() {
    let (fixture, offsets) = log_with_five_entries();
    let mut log = fixture.open();
    let mut second = fixture.open();
    second.append(token(8), b"fourth").expect("appended");
    let mut bytes = fixture.bytes();
    let last = bytes.len();
    bytes.truncate(offsets[4] + 3);
    fixture.overwrite(&bytes);
    assert!(bytes.len() < last);
    assert_eq!(log.append(token(9), b"no").expect_err("shorter").code(), "CORRUPT");
    assert_eq!(second.append(token(9), b"no").expect_err("shorter").code(), "CORRUPT");
    assert_eq!(fixture.bytes(), bytes);
}

#[test]
fn an_impossible_length_is_rejected() {
    let (fixture, offsets) = log_with_five_entries();
    let mut bytes = fixture.bytes();
    let last = *offsets.last().expect("five records");
    bytes[last..last + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    fixture.overwrite(&bytes);
    assert_continues(&fixture, &[5, 6], "a huge length at the end");
    let mut bytes = fixture.bytes();
    bytes[offsets[2]..offsets[2] + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    fixture.overwrite(&bytes);
    assert_eq!(fixture.try_open().expect_err("a huge length in the middle").code(), "CORRUPT");
}

#[test]
fn entries_of_another_log_inside_a_payload_are_not_entries() {
    let (other, _) = log_with_five_entries();
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.append(token(5), b"first").expect("appended");
    let before = fixture.bytes().len();
    log.append(token(6), other.bytes()).expect("a log as payload");
    let mut bytes = fixture.bytes();
    bytes.pop();
    assert!(bytes.len() > before);
    fixture.overwrite(&bytes);
    assert_continues(&fixture, &[5], "a torn entry with a log as payload");
}
