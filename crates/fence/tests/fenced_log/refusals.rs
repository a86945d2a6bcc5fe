//! Rejected tokens have a code, are counted, and append nothing.

use std::fs::File;
use std::time::Duration;

use leasehold_fence::file::{Checkpoint, FencedLog, LogReader};
use leasehold_fence::{CounterSnapshot, Error, FenceRefusal};
use rustix::fs::{FlockOperation, flock};

use crate::fixture::TestLog;
use crate::invalid_tokens::mistakes;
use crate::support::{fence_id, number, token};

#[test]
fn a_stale_append_is_rejected_with_its_number_and_the_mark() {
    let fixture = TestLog::new();
    let (mut old, mut new) = (fixture.open(), fixture.open());
    old.claim(token(33)).expect("the first holder claims");
    old.append(token(33), b"one").expect("and appends");
    new.claim(token(34)).expect("its successor claims, through another handle");

    let late = old.append(token(33), b"late").expect_err("a stale token");
    assert_eq!(late.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(late.code(), "STALE_TOKEN");
    new.append(token(34), b"two").expect("the successor appends");
    new.append(token(34), b"two").expect("an equal token is admitted");
    let entry = |n, bytes: &[u8]| (n, bytes.to_vec());
    assert_eq!(fixture.read(), [entry(33, b"one"), entry(34, b"two"), entry(34, b"two")]);
    assert_eq!(
        old.counters().snapshot(),
        CounterSnapshot { claims: 1, admitted: 1, stale: 1, ..CounterSnapshot::default() }
    );
}

#[test]
fn invalid_tokens_are_rejected_with_their_code_and_append_nothing() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.claim(token(10)).expect("claimed");
    let before = fixture.bytes();
    for (text, code, reason) in mistakes() {
        let before_counters = log.counters().snapshot();
        for refused in [log.claim(&text), log.append(&text, b"no")] {
            let error = refused.expect_err(reason);
            assert_eq!((error.code(), error.refusal().map(FenceRefusal::reason)), (code, Some(reason)));
        }
        let sum = |c: CounterSnapshot| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(sum(log.counters().snapshot()), sum(before_counters) + 2, "{reason} is counted");
    }
    assert_eq!(fixture.bytes(), before);
    assert_eq!(log.mark().expect("there"), Some(number(10)));
}

#[test]
fn an_entry_above_the_size_limit_is_rejected() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    let largest = vec![7; leasehold_core::limits::LOG_ENTRY_BYTES];
    log.append(token(1), &largest).expect("at the limit");
    let mut larger = largest.clone();
    larger.push(7);
    assert_eq!(log.append(token(1), &larger).expect_err("beyond").code(), "INVALID_ARGUMENT");
    log.append(token(1), b"").expect("an empty entry");
    assert_eq!(fixture.read(), [(1, largest), (1, Vec::new())]);
}

#[test]
fn a_repeated_claim_appends_nothing() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.claim(token(5)).expect("claimed");
    let once = fixture.bytes();
    log.claim(token(5)).expect("a retry");
    assert_eq!(fixture.bytes(), once);
}

#[test]
fn creating_an_existing_log_is_an_error() {
    let fixture = TestLog::new();
    fixture.open().append(token(5), b"kept").expect("appended");
    let before = fixture.bytes();
    let again = FencedLog::create(&fixture.file(), &fence_id()).expect_err("it exists");
    assert_eq!(again.code(), "CONFLICT");
    assert_eq!(fixture.bytes(), before);
    let left = std::fs::read_dir(fixture.dir.path()).expect("the directory").count();
    assert_eq!(left, 1, "no temporary file remains");
}

#[test]
fn a_locked_log_blocks_claims_and_appends_and_the_blocker_is_reported() {
    for lock in [FlockOperation::LockExclusive, FlockOperation::LockShared] {
        let fixture = TestLog::new();
        let mut log = fixture.open().with_claim_timeout(Duration::ZERO);
        let other = File::open(fixture.file()).expect("a handle like that of another process");
        flock(&other, lock).expect("locked");
        let before = fixture.bytes();
        for blocked in [log.claim(token(5)), log.append(token(5), b"no")] {
            let error = blocked.expect_err("locked");
            assert_eq!(error.code(), "UNAVAILABLE");
            let Error::Blocked { blockers, .. } = &error else { panic!("{error}") };
            assert!(blockers.is_empty() || *blockers == [std::process::id()], "{error}");
        }
        assert_eq!(fixture.bytes(), before);
        drop(other);
        log.append(token(5), b"yes").expect("unlocked");
        assert_eq!(fixture.numbers(), [5]);
    }
}

#[test]
fn a_checkpoint_that_no_reader_made_is_an_error() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.append(token(34), b"first").expect("appended");
    let mut reader = LogReader::open(&fixture.file(), &fence_id()).expect("opened");
    reader.next().expect("it can be read").expect("an entry");
    let made = reader.checkpoint();
    let above_all = Checkpoint { mark: 1 << 63, ..made };
    let error = LogReader::resume(&fixture.file(), &fence_id(), above_all).expect_err("not a number");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    let other_log = Checkpoint { log: made.log ^ 1, ..made };
    assert_eq!(LogReader::resume(&fixture.file(), &fence_id(), other_log).expect_err("another log").code(), "CONFLICT");
    let in_header = Checkpoint { offset: 3, ..made };
    let error = LogReader::resume(&fixture.file(), &fence_id(), in_header).expect_err("in the header");
    assert_eq!(error.code(), "INVALID_ARGUMENT");
    for wrong in [
        Checkpoint { offset: u64::MAX, ..made },
        Checkpoint { offset: made.offset + 1, ..made },
        Checkpoint { offset: 41, index: 0, ..made },
    ] {
        let mut reader = LogReader::resume(&fixture.file(), &fence_id(), wrong).expect("opened");
        assert_eq!(reader.next().expect_err("there is no entry").code(), "CORRUPT", "{wrong:?}");
    }
}
