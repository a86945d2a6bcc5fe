//! What is shown by mistake is refused with its code, counted, and appends nothing.

use std::fs::File;
use std::time::Duration;

use leasehold_fence::file::Log;
use leasehold_fence::{Counted, Error, Refusal};
use rustix::fs::{FlockOperation, flock};

use crate::events::Events;
use crate::mistakes::mistakes;
use crate::support::{CLUSTER, name, number, token};

#[test]
fn a_late_append_is_refused_with_what_it_showed_and_what_stands() {
    let events = Events::new();
    let (mut old, mut new) = (events.open(), events.open());
    old.claim(&token(33)).expect("the first holder claims");
    old.append(&token(33), b"one").expect("and appends");
    new.claim(&token(34)).expect("its successor claims, through another handle");

    let late = old.append(&token(33), b"late").expect_err("the zombie is refused");
    assert_eq!(late.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(late.code(), "STALE_TOKEN");
    new.append(&token(34), b"two").expect("the successor appends");
    new.append(&token(34), b"two").expect("an equal token passes again");
    let entry = |n, bytes: &[u8]| (n, bytes.to_vec());
    assert_eq!(events.read(), [entry(33, b"one"), entry(34, b"two"), entry(34, b"two")]);
    assert_eq!(old.counters().read(), Counted { claims: 1, admitted: 1, stale: 1, ..Counted::default() });
}

#[test]
fn every_mistake_is_refused_with_its_code_and_appends_nothing() {
    let events = Events::new();
    let mut log = events.open();
    log.claim(&token(10)).expect("claimed");
    let before = events.bytes();
    for (text, code, why) in mistakes() {
        let counted = log.counters().read();
        for refused in [log.claim(&text), log.append(&text, b"no")] {
            let error = refused.expect_err(why);
            assert_eq!((error.code(), error.refusal().map(Refusal::why)), (code, Some(why)));
        }
        let sum = |c: Counted| c.stale + c.invalid + c.foreign + c.implausible + c.lost;
        assert_eq!(sum(log.counters().read()), sum(counted) + 2, "{why} is counted");
    }
    assert_eq!(events.bytes(), before);
    assert_eq!(log.mark().expect("there"), Some(number(10)));
}

#[test]
fn an_entry_beyond_the_limit_is_refused_and_one_at_the_limit_is_kept() {
    let events = Events::new();
    let mut log = events.open();
    let largest = vec![7; leasehold_core::limits::LOG_ENTRY_BYTES];
    log.append(&token(1), &largest).expect("at the limit");
    let mut larger = largest.clone();
    larger.push(7);
    assert_eq!(log.append(&token(1), &larger).expect_err("beyond").code(), "INVALID_ARGUMENT");
    log.append(&token(1), b"").expect("empty is something too");
    assert_eq!(events.read(), [(1, largest), (1, Vec::new())]);
}

#[test]
fn a_claim_shown_twice_leaves_one_entry() {
    let events = Events::new();
    let mut log = events.open();
    log.claim(&token(5)).expect("claimed");
    let once = events.bytes();
    log.claim(&token(5)).expect("a retry");
    assert_eq!(events.bytes(), once);
}

#[test]
fn a_log_that_is_there_is_not_made_again() {
    let events = Events::new();
    events.open().append(&token(5), b"kept").expect("appended");
    let before = events.bytes();
    let again = Log::create(&events.file(), CLUSTER, name(), 0).expect_err("it is there");
    assert_eq!(again.code(), "CONFLICT");
    assert_eq!(events.bytes(), before);
    let left = std::fs::read_dir(events.dir.path()).expect("the directory").count();
    assert_eq!(left, 1, "no draft is left beside it");
}

#[test]
fn nobody_claims_or_appends_beside_one_who_is_inside_and_who_it_is_is_told() {
    for inside in [FlockOperation::LockExclusive, FlockOperation::LockShared] {
        let events = Events::new();
        let mut log = events.open().patience(Duration::ZERO);
        let other = File::open(events.file()).expect("as another process has it");
        flock(&other, inside).expect("locked");
        let before = events.bytes();
        for blocked in [log.claim(&token(5)), log.append(&token(5), b"no")] {
            let error = blocked.expect_err("somebody is inside");
            assert_eq!(error.code(), "UNAVAILABLE");
            let Error::Blocked { by, .. } = &error else { panic!("{error}") };
            assert!(by.is_empty() || *by == [std::process::id()], "{error}");
        }
        assert_eq!(events.bytes(), before);
        drop(other);
        log.append(&token(5), b"yes").expect("nobody is inside");
        assert_eq!(events.numbers(), [5]);
    }
}
