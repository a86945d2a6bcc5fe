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
    let another = FencedLog::open(&fixture.file(), &id_of(Cluster(*b"another!"), RESOURCE)).expect_err("a foreign log");
    assert_eq!((another.refusal(), another.code()), (Some(&FenceRefusal::ForeignMark), "WRONG_CLUSTER"));
    for opened in [
        FencedLog::open(&fixture.file(), &id_of(CLUSTER, "jobs/other")),
        FencedLog::open(&fixture.file(), &fence_id().with_slot(1)),
    ] {
        let error = opened.expect_err("a foreign log");
        assert_eq!(error.code(), "CONFLICT");
        assert!(error.to_string().contains("another resource or slot"), "{error}");
    }
}

#[test]
fn a_newer_version_is_an_error_and_left_unchanged() {
    let fixture = TestLog::new();
    let mut bytes = fixture.bytes();
    bytes[7] = 3;
    fixture.overwrite(&bytes);
    let error = fixture.try_open().expect_err("newer");
    assert!(matches!(error, Error::Version { found: 3, supported: 2 }), "{error}");
    assert_eq!(fixture.bytes(), bytes);
}

/// On a disk: only there inode numbers are reused.
#[test]
fn a_restored_copy_is_lost_even_if_it_has_the_inode_number_of_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("events.log");
    FencedLog::create(&path, &fence_id()).expect("created");
    let backup = std::fs::read(&path).expect("a backup");
    let mut log = FencedLog::open(&path, &fence_id()).expect("opened");
    log.append(token(9), b"kept").expect("appended");
    drop(log);
    for _ in 0..100 {
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, &backup).expect("restored");
        let mut log = FencedLog::open(&path, &fence_id()).expect("opened");
        assert_eq!(lost(log.append(token(5), b"zombie")), MarkLoss::Moved);
    }
}

#[test]
fn a_log_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = TestLog::new();
    let mode = || std::fs::metadata(fixture.file()).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    for (before, after) in [(0o644, 0o600), (0o664, 0o660), (0o640, 0o640)] {
        std::fs::set_permissions(fixture.file(), std::fs::Permissions::from_mode(before)).expect("set");
        fixture.open();
        assert_eq!(mode(), after, "{before:o}");
    }
}

/// Written by an earlier version of this crate.
#[test]
fn a_log_of_version_1_is_readable_and_stays_of_its_version() {
    let fixture = TestLog::new();
    let identity = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(fixture.file()).expect("a file"));
    let version_1 = |salt: u64, index: u64, kind: u8, number: u64, payload: &[u8]| {
        let mut bytes = [&(payload.len() as u32).to_le_bytes()[..], &[0; 4], &[kind], &index.to_le_bytes()].concat();
        bytes.extend([&number.to_le_bytes()[..], &7_u32.to_le_bytes(), &0_u64.to_le_bytes(), payload].concat());
        let sum = crc32fast::hash(&[&salt.to_le_bytes()[..], &bytes[..4], &bytes[8..]].concat());
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let mut header = fixture.bytes()[..40].to_vec();
    header[7] = 1;
    let sum = crc32fast::hash(&header[..36]);
    header[36..].copy_from_slice(&sum.to_le_bytes());
    let salt = u64::from_le_bytes(header[28..36].try_into().expect("8 bytes"));
    let armed = version_1(salt, 0, 3, 0, &identity.to_le_bytes());
    let entry = version_1(salt, 1, 2, 20, b"old");
    fixture.overwrite(&[header, armed, entry].concat());

    let mut log = fixture.open();
    assert_eq!(log.mark().expect("readable"), Some(number(20)));
    assert_eq!(log.append(token(19), b"late").expect_err("stale").code(), "STALE_TOKEN");
    log.append(token(21), b"new").expect("appended");
    log.strict(true).expect("armed again, in the old form");
    let bytes = fixture.bytes();
    assert_eq!(bytes[7], 1);
    assert_eq!(&bytes[bytes.len() - 8..], identity.to_le_bytes(), "an earlier version can read it");
    assert_eq!(fixture.numbers(), [20, 21]);
}
