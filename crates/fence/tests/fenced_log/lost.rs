//! A missing, emptied, copied or foreign log rejects every token. It is never re-created silently.

use leasehold_core::token::Cluster;
use leasehold_fence::file::FencedLog;
use leasehold_fence::{Error, FenceRefusal, MarkLoss};

use crate::fixture::TestLog;
use crate::support::{CLUSTER, RESOURCE, fence_id, id_of, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> MarkLoss {
    match result {
        Err(Error::Refused(FenceRefusal::MarkLost(loss))) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn opening_a_missing_log_does_not_create_it() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    std::fs::remove_file(fixture.file()).expect("removed");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Missing);
    assert_eq!(lost(log.append(token(5), b"into nowhere")), MarkLoss::Missing);
    assert!(!fixture.file().exists());
}

#[test]
fn an_open_log_rejects_appends_after_its_file_was_replaced() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.claim(token(9)).expect("claimed");
    std::fs::remove_file(fixture.file()).expect("removed");
    FencedLog::create(&fixture.file(), &fence_id()).expect("another one");
    assert_eq!(lost(log.append(token(9), b"late")), MarkLoss::Moved);
    assert_eq!(fixture.read(), []);
}

#[test]
fn a_copy_rejects_tokens_until_it_is_re_armed_above_its_mark() {
    let fixture = TestLog::new();
    fixture.open().append(token(20), b"kept").expect("appended");
    let copy = fixture.dir.path().join("copy");
    std::fs::copy(fixture.file(), &copy).expect("a backup");
    std::fs::rename(&copy, fixture.file()).expect("put back");

    let mut log = fixture.open();
    assert_eq!(lost(log.mark()), MarkLoss::Moved);
    assert_eq!(lost(log.claim(token(21))), MarkLoss::Moved);
    assert_eq!(log.rearm(number(19)).expect_err("below the mark").code(), "CONFLICT");
    assert_eq!(lost(log.append(token(21), b"no")), MarkLoss::Moved);
    assert_eq!(lost(log.strict(true)), MarkLoss::Moved, "strictness does not arm it");
    assert_eq!(lost(log.adopt(leasehold_core::token::Incarnation(9))), MarkLoss::Moved);
    assert_eq!(lost(log.append(token(21), b"no")), MarkLoss::Moved);
    log.rearm(number(30)).expect("armed from a floor");
    assert_eq!(log.claim(token(29)).expect_err("an earlier holder").code(), "STALE_TOKEN");
    log.append(token(31), b"after").expect("a later holder");
    assert_eq!(fixture.numbers(), [20, 31]);
    assert_eq!(fixture.open().mark().expect("armed, for other handles too"), Some(number(31)));
}

#[test]
fn an_emptied_log_rejects_new_and_existing_handles() {
    let fixture = TestLog::new();
    let mut log = fixture.open();
    log.claim(token(9)).expect("claimed");
    fixture.overwrite(b"");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Unreadable);
    assert_eq!(log.append(token(9), b"late").expect_err("shorter than it was").code(), "CORRUPT");
    fixture.overwrite(b"something else entirely, and longer than a header would be");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Unreadable);
}

#[test]
fn a_log_of_another_cluster_resource_or_slot_is_foreign() {
    let fixture = TestLog::new();
    for opened in [
        FencedLog::open(&fixture.file(), &id_of(Cluster(*b"another!"), RESOURCE)),
        FencedLog::open(&fixture.file(), &id_of(CLUSTER, "jobs/other")),
        FencedLog::open(&fixture.file(), &fence_id().with_slot(1)),
    ] {
        let error = opened.expect_err("a foreign log");
        assert_eq!((error.refusal(), error.code()), (Some(&FenceRefusal::ForeignMark), "WRONG_CLUSTER"));
    }
}

#[test]
fn a_newer_version_is_an_error_and_left_unchanged() {
    let fixture = TestLog::new();
    let mut bytes = fixture.bytes();
    bytes[7] = 2;
    fixture.overwrite(&bytes);
    let error = fixture.try_open().expect_err("newer");
    assert!(matches!(error, Error::Version { found: 2, supported: 1 }), "{error}");
    assert_eq!(fixture.bytes(), bytes);
}
