//! Rejected tokens change nothing; admitted writes replace the content only.

use std::os::unix::fs::PermissionsExt;

use leasehold_fence::{ApplyOnce, FenceRefusal};

use crate::fixture::TestFile;
use crate::invalid_tokens::mistakes;
use crate::support::{number, token};

#[test]
fn a_stale_write_is_rejected_with_the_mark_and_changes_nothing() {
    let fixture = TestFile::new();
    let (old, new) = (fixture.open(), fixture.open());
    old.claim(token(33)).expect("claimed");
    old.write(token(33), b"old").expect("current");
    new.claim(token(34)).expect("a successor");
    assert_eq!(fixture.content(), "old", "a claim changes nothing but the mark");
    let error = old.write(token(33), b"late").expect_err("a stale token");
    assert_eq!(error.refusal(), Some(&FenceRefusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(fixture.content(), "old");
    new.write(token(34), b"new").expect("current");
    assert_eq!((fixture.content().as_str(), new.mark().expect("a mark")), ("new", Some(number(34))));
    assert_eq!(new.read().expect("whole"), (b"new".to_vec(), Some(number(34))));
    assert_eq!((old.counters().snapshot().stale, new.counters().snapshot().claims), (1, 1));
}

#[test]
fn invalid_tokens_change_neither_mark_nor_content() {
    let fixture = TestFile::new();
    let file = fixture.open();
    file.write(token(40), b"kept").expect("current");
    for (text, code, reason) in mistakes() {
        for error in [file.claim(&text).expect_err(reason), file.write(&text, b"no").expect_err(reason)] {
            assert_eq!((error.code(), error.refusal().expect(reason).reason()), (code, reason), "{text}");
        }
    }
    assert_eq!((fixture.content().as_str(), file.mark().expect("a mark")), ("kept", Some(number(40))));
}

#[test]
fn an_update_gets_the_old_content_and_keeps_the_permissions() {
    let fixture = TestFile::new();
    std::fs::set_permissions(fixture.file(), PermissionsExt::from_mode(0o640)).expect("set");
    let file = fixture.open();
    for word in ["one", "two"] {
        file.update(token(33), |old| [old, word.as_bytes()].concat()).expect("current");
    }
    assert_eq!(fixture.content(), "onetwo");
    let mode = std::fs::metadata(fixture.file()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(fixture.names(), ["leader.conf"]);
}

#[test]
fn a_numbered_write_is_applied_once() {
    let fixture = TestFile::new();
    let file = fixture.open();
    assert_eq!(file.write_once(token(33), 1, "first").expect("written"), ApplyOnce::Applied);
    let duplicate = file.write_once(token(33), 1, "late duplicate").expect("a duplicate is no failure");
    assert_eq!((duplicate, fixture.content()), (ApplyOnce::AlreadyApplied { last: 1 }, "first".to_owned()));
}

#[test]
fn an_open_reader_continues_to_read_the_old_content() {
    use std::io::Read;
    let fixture = TestFile::new();
    let file = fixture.open();
    file.write(token(33), b"before").expect("current");
    let mut reader = std::fs::File::open(fixture.file()).expect("opened");
    file.write(token(33), b"after, and longer").expect("current");
    let mut read = String::new();
    reader.read_to_string(&mut read).expect("it can be read");
    assert_eq!((read.as_str(), fixture.content().as_str()), ("before", "after, and longer"));
}

#[test]
fn a_symbolic_link_stays_a_link() {
    let fixture = TestFile::new();
    let link = fixture.dir.path().join("current");
    std::os::unix::fs::symlink(fixture.file(), &link).expect("linked");
    let file = leasehold_fence::file::FencedFile::open(&link, &crate::support::fence_id());
    file.expect("opened").write(token(33), b"new").expect("current");
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fixture.content(), "new");
}
