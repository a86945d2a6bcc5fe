//! What a crash can leave of the last append is cut; any other damage refuses and is left as it is.

use leasehold_fence::Error;

use crate::events::Events;
use crate::support::{number, token};

/// A log with three entries of two holders, and where each of its five records begins.
fn three() -> (Events, Vec<usize>) {
    let events = Events::new();
    let mut log = events.open();
    let mut begins = vec![40, events.bytes().len()];
    log.claim(&token(5)).expect("claimed");
    begins.push(events.bytes().len());
    log.append(&token(5), b"first").expect("appended");
    begins.push(events.bytes().len());
    log.append(&token(6), b"second").expect("appended");
    begins.push(events.bytes().len());
    log.append(&token(7), b"third").expect("appended");
    (events, begins)
}

/// Whoever comes after the crash finds what was acknowledged before, and goes on.
fn goes_on(events: &Events, kept: &[u64], how: &str) {
    assert_eq!(events.numbers(), kept, "{how}: a reader is not confused");
    let mut log = events.open();
    assert_eq!(log.mark().expect(how), kept.last().map(|last| number(*last)), "{how}");
    log.append(&token(9), b"next").expect(how);
    assert_eq!(events.numbers(), [kept, &[9]].concat(), "{how}");
    assert_eq!(log.append(&token(8), b"late").expect_err(how).code(), "STALE_TOKEN");
}

#[test]
fn an_append_that_was_torn_anywhere_is_cut_and_the_log_goes_on() {
    let (events, begins) = three();
    let whole = events.bytes();
    let last = *begins.last().expect("five records");
    for end in last..whole.len() {
        events.overwrite(&whole[..end]);
        goes_on(&events, &[5, 6], &format!("cut at {end}"));
    }
}

#[test]
fn a_torn_append_whose_sectors_came_in_any_order_is_cut() {
    let (events, begins) = three();
    let whole = events.bytes();
    let last = *begins.last().expect("five records");
    for from in last..whole.len() {
        let mut holes = whole.clone();
        holes[from..].fill(0);
        if holes != whole {
            events.overwrite(&holes);
            goes_on(&events, &[5, 6], &format!("zeros from {from}"));
        }
        let mut holes = whole.clone();
        holes[last..=from].fill(0);
        events.overwrite(&holes);
        goes_on(&events, &[5, 6], &format!("zeros up to {from}"));
    }
    let mut zeros = whole.clone();
    zeros.resize(whole.len() + 4096, 0);
    events.overwrite(&zeros);
    goes_on(&events, &[5, 6, 7], "zeros behind the end");
}

#[test]
fn damage_before_the_last_entry_refuses_and_names_the_place() {
    let (events, begins) = three();
    let whole = events.bytes();
    let last = *begins.last().expect("five records");
    for at in 0..last {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        events.overwrite(&flipped);
        let error = events.try_open().expect_err("damaged");
        let expected = begins.iter().rev().find(|begin| **begin <= at);
        match (&error, expected) {
            (Error::Corrupt { offset, file, .. }, Some(begin)) => {
                assert_eq!((*offset, file), (*begin as u64, &events.file()), "byte {at}");
            }
            (_, Some(_)) => panic!("byte {at}: {error}"),
            // In the header it may also be another version, another log, or none.
            (_, None) => {
                let codes = ["CORRUPT", "STORAGE_FAILED", "UNSUPPORTED_VERSION"];
                assert!(codes.contains(&error.code()), "byte {at}: {error}");
            }
        }
        assert_eq!(events.bytes(), flipped, "byte {at}: left as it is");
    }
}

#[test]
fn damage_under_an_open_log_refuses_it_too() {
    let (events, begins) = three();
    let mut log = events.open();
    let mut second = events.open();
    second.append(&token(8), b"fourth").expect("appended");
    let mut bytes = events.bytes();
    let last = bytes.len();
    bytes.truncate(begins[4] + 3);
    events.overwrite(&bytes);
    assert!(bytes.len() < last);
    assert_eq!(log.append(&token(9), b"no").expect_err("shorter").code(), "CORRUPT");
    assert_eq!(second.append(&token(9), b"no").expect_err("shorter").code(), "CORRUPT");
    assert_eq!(events.bytes(), bytes);
}

#[test]
fn a_length_that_no_entry_has_is_not_believed() {
    let (events, begins) = three();
    let mut bytes = events.bytes();
    let last = *begins.last().expect("five records");
    bytes[last..last + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    events.overwrite(&bytes);
    goes_on(&events, &[5, 6], "a huge length at the end");
    let mut bytes = events.bytes();
    bytes[begins[2]..begins[2] + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    events.overwrite(&bytes);
    assert_eq!(events.try_open().expect_err("a huge length in the middle").code(), "CORRUPT");
}

#[test]
fn bytes_of_a_log_inside_an_entry_prove_nothing_about_another_log() {
    let (other, _) = three();
    let events = Events::new();
    let mut log = events.open();
    log.append(&token(5), b"first").expect("appended");
    let before = events.bytes().len();
    log.append(&token(6), &other.bytes()).expect("a log as payload");
    let mut bytes = events.bytes();
    bytes.pop();
    assert!(bytes.len() > before);
    events.overwrite(&bytes);
    goes_on(&events, &[5], "a torn entry that carries a log");
}
