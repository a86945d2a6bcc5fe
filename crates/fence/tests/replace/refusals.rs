//! What is refused, and what a refusal leaves as it was.

use std::os::unix::fs::PermissionsExt;

use leasehold_fence::Refusal;

use crate::leader::Leader;
use crate::mistakes::mistakes;
use crate::support::{number, token};

#[test]
fn a_holder_that_was_overtaken_is_told_what_stands_and_the_file_stays() {
    let leader = Leader::new();
    let (old, new) = (leader.open(), leader.open());
    old.claim(&token(33)).expect("claimed");
    old.write(&token(33), b"old").expect("current");
    new.claim(&token(34)).expect("a successor");
    assert_eq!(leader.content(), "old", "a claim changes nothing but the mark");
    let error = old.write(&token(33), b"late").expect_err("a zombie");
    assert_eq!(error.refusal(), Some(&Refusal::Stale { presented: number(33), mark: number(34) }));
    assert_eq!(leader.content(), "old");
    new.write(&token(34), b"new").expect("current");
    assert_eq!((leader.content().as_str(), new.mark().expect("kept")), ("new", Some(number(34))));
    assert_eq!(new.read().expect("whole"), (b"new".to_vec(), Some(number(34))));
    assert_eq!((old.counters().read().stale, new.counters().read().claims), (1, 1));
}

#[test]
fn what_is_shown_by_mistake_moves_neither_mark_nor_content() {
    let leader = Leader::new();
    let file = leader.open();
    file.write(&token(40), b"kept").expect("current");
    for (shown, code, why) in mistakes() {
        for error in [file.claim(&shown).expect_err(why), file.write(&shown, b"no").expect_err(why)] {
            assert_eq!((error.code(), error.refusal().expect(why).why()), (code, why), "{shown}");
        }
    }
    assert_eq!((leader.content().as_str(), file.mark().expect("kept")), ("kept", Some(number(40))));
}

#[test]
fn a_new_content_is_made_from_the_old_one_and_keeps_its_permissions() {
    let leader = Leader::new();
    std::fs::set_permissions(leader.file(), PermissionsExt::from_mode(0o640)).expect("set");
    let file = leader.open();
    for word in ["one", "two"] {
        file.update(&token(33), |old| [old, word.as_bytes()].concat()).expect("current");
    }
    assert_eq!(leader.content(), "onetwo");
    let mode = std::fs::metadata(leader.file()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(leader.names(), ["leader.conf"]);
}

#[test]
fn who_has_the_file_open_goes_on_reading_the_one_it_opened() {
    use std::io::Read;
    let leader = Leader::new();
    let file = leader.open();
    file.write(&token(33), b"before").expect("current");
    let mut reader = std::fs::File::open(leader.file()).expect("opened");
    file.write(&token(33), b"after, and longer").expect("current");
    let mut read = String::new();
    reader.read_to_string(&mut read).expect("readable");
    assert_eq!((read.as_str(), leader.content().as_str()), ("before", "after, and longer"));
}

#[test]
fn a_link_to_the_file_stays_a_link() {
    let leader = Leader::new();
    let link = leader.dir.path().join("current");
    std::os::unix::fs::symlink(leader.file(), &link).expect("linked");
    let file = leasehold_fence::file::Replace::open(&link, crate::support::CLUSTER, crate::support::name(), 0);
    file.expect("opened").write(&token(33), b"new").expect("current");
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(leader.content(), "new");
}
