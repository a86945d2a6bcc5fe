//! A log that is gone, emptied, copied or another's refuses; it never starts anew by itself.

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::file::Log;
use leasehold_fence::{Error, Lost, Refusal};

use crate::events::Events;
use crate::support::{CLUSTER, name, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> Lost {
    match result {
        Err(Error::Refused(Refusal::Lost(how))) => how,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn a_log_that_is_not_there_is_not_made_by_opening_it() {
    let events = Events::new();
    let mut log = events.open();
    std::fs::remove_file(events.file()).expect("removed");
    assert_eq!(lost(events.try_open()), Lost::Missing);
    assert_eq!(lost(log.append(&token(5), b"into nowhere")), Lost::Missing);
    assert!(!events.file().exists());
}

#[test]
fn a_log_that_was_put_in_the_place_of_another_refuses_who_had_the_other_open() {
    let events = Events::new();
    let mut log = events.open();
    log.claim(&token(9)).expect("claimed");
    std::fs::remove_file(events.file()).expect("removed");
    Log::create(&events.file(), CLUSTER, name(), 0).expect("another one");
    assert_eq!(lost(log.append(&token(9), b"late")), Lost::Moved);
    assert_eq!(events.read(), []);
}

#[test]
fn a_copy_refuses_until_it_is_armed_above_all_that_it_has_seen() {
    let events = Events::new();
    events.open().append(&token(20), b"kept").expect("appended");
    let draft = events.dir.path().join("copy");
    std::fs::copy(events.file(), &draft).expect("a backup");
    std::fs::rename(&draft, events.file()).expect("put back");

    let mut log = events.open();
    assert_eq!(lost(log.mark()), Lost::Moved);
    assert_eq!(lost(log.claim(&token(21))), Lost::Moved);
    assert_eq!(log.rearm(number(19)).expect_err("lower than what was seen").code(), "CONFLICT");
    assert_eq!(lost(log.append(&token(21), b"no")), Lost::Moved);
    assert_eq!(lost(log.strict(true)), Lost::Moved, "whom it follows does not arm it");
    assert_eq!(lost(log.adopt(leasehold_core::token::Incarnation(9))), Lost::Moved);
    assert_eq!(lost(log.append(&token(21), b"no")), Lost::Moved);
    log.rearm(number(30)).expect("armed from a floor");
    assert_eq!(log.claim(&token(29)).expect_err("a holder of before").code(), "STALE_TOKEN");
    log.append(&token(31), b"after").expect("a holder of after");
    assert_eq!(events.numbers(), [20, 31]);
    assert_eq!(events.open().mark().expect("armed, for everybody"), Some(number(31)));
}

#[test]
fn an_emptied_log_refuses_whoever_opens_it_and_whoever_has_it_open() {
    let events = Events::new();
    let mut log = events.open();
    log.claim(&token(9)).expect("claimed");
    events.overwrite(b"");
    assert_eq!(lost(events.try_open()), Lost::Unreadable);
    assert_eq!(log.append(&token(9), b"late").expect_err("shorter than it was").code(), "CORRUPT");
    events.overwrite(b"something else entirely, and longer than a header would be");
    assert_eq!(lost(events.try_open()), Lost::Unreadable);
}

#[test]
fn a_log_of_another_cluster_resource_or_slot_refuses() {
    let events = Events::new();
    let other = Name::parse("jobs/other").expect("a name");
    for opened in [
        Log::open(&events.file(), Cluster(*b"another!"), name(), 0),
        Log::open(&events.file(), CLUSTER, other, 0),
        Log::open(&events.file(), CLUSTER, name(), 1),
    ] {
        let error = opened.expect_err("not its log");
        assert_eq!((error.refusal(), error.code()), (Some(&Refusal::ForeignMark), "WRONG_CLUSTER"));
    }
}

#[test]
fn a_newer_version_is_refused_and_left_as_it_is() {
    let events = Events::new();
    let mut bytes = events.bytes();
    bytes[7] = 2;
    events.overwrite(&bytes);
    let error = events.try_open().expect_err("newer");
    assert!(matches!(error, Error::Version { have: 2, want: 1 }), "{error}");
    assert_eq!(events.bytes(), bytes);
}
