//! A file that is gone, bare, copied or another's refuses; it never starts anew by itself.

use std::path::Path;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::file::{Log, Replace, survey};
use leasehold_fence::{Error, Lost, Mark, Refusal};

use crate::leader::Leader;
use crate::support::{CLUSTER, name, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> Lost {
    match result {
        Err(Error::Refused(Refusal::Lost(how))) => how,
        other => panic!("not lost: {other:?}"),
    }
}

/// A copy with its attributes, as a backup makes one.
fn copied(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copied");
    let mut mark = [0; 4096];
    let length = rustix::fs::getxattr(from, "user.leasehold.mark", &mut mark).expect("it keeps a mark");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(to, "user.leasehold.mark", &mark[..length], flags).expect("copied too");
}

#[test]
fn a_file_that_is_not_there_is_not_made_by_writing_to_it() {
    let leader = Leader::new();
    let file = leader.open();
    std::fs::remove_file(leader.file()).expect("removed");
    assert_eq!(lost(leader.try_open()), Lost::Missing);
    assert_eq!(lost(file.claim(&token(5))), Lost::Missing);
    assert_eq!(lost(file.write(&token(5), b"into nowhere")), Lost::Missing);
    assert!(leader.names().is_empty());
}

#[test]
fn a_file_without_a_mark_refuses_until_it_is_armed_and_keeps_its_content() {
    let leader = Leader::nowhere();
    std::fs::write(leader.file(), "made by hand").expect("written");
    assert_eq!(lost(leader.try_open()), Lost::Missing);
    let exists = Replace::create(&leader.file(), CLUSTER, name(), 0, b"").expect_err("it is there");
    assert_eq!(exists.code(), "CONFLICT");
    Replace::arm(&leader.file(), CLUSTER, name(), 0, number(30)).expect("armed");
    assert_eq!(leader.content(), "made by hand");
    assert_eq!(leader.open().claim(&token(29)).expect_err("a holder of before").code(), "STALE_TOKEN");
    leader.open().write(&token(31), b"after").expect("a holder of after");
    let again = Replace::arm(&leader.file(), CLUSTER, name(), 0, number(50)).expect_err("it keeps a mark");
    assert_eq!(again.code(), "CONFLICT");
    assert_eq!(leader.names(), ["leader.conf"]);
}

#[test]
fn a_copy_refuses_until_it_is_armed_above_all_that_it_has_seen() {
    let leader = Leader::new();
    leader.open().write(&token(20), b"kept").expect("current");
    let backup = leader.dir.path().join("backup");
    copied(&leader.file(), &backup);
    leader.open().write(&token(25), b"newer").expect("current");
    std::fs::rename(&backup, leader.file()).expect("put back");

    let file = leader.open();
    assert_eq!(lost(file.mark()), Lost::Moved);
    assert_eq!(lost(file.claim(&token(26))), Lost::Moved);
    assert_eq!(lost(file.write(&token(26), b"no")), Lost::Moved);
    assert_eq!(file.rearm(number(19)).expect_err("below what was seen").code(), "CONFLICT");
    file.rearm(number(30)).expect("armed from a floor");
    assert_eq!(leader.content(), "kept");
    assert_eq!(file.claim(&token(29)).expect_err("a holder of before").code(), "STALE_TOKEN");
    file.write(&token(31), b"after").expect("a holder of after");
}

#[test]
fn a_mark_that_makes_no_sense_or_is_of_a_newer_version_refuses_and_is_left_as_it_is() {
    let leader = Leader::new();
    let flags = rustix::fs::XattrFlags::empty();
    let put = |text: &str| rustix::fs::setxattr(leader.file(), "user.leasehold.mark", text.as_bytes(), flags);
    put("something else").expect("put");
    assert_eq!(lost(leader.try_open()), Lost::Unreadable);
    put("leasehold-mark 2\nwho knows\n").expect("put");
    assert!(matches!(leader.try_open(), Err(Error::Version { have: 2, want: 1 })));
    let mut found = [0; 64];
    let length = rustix::fs::getxattr(leader.file(), "user.leasehold.mark", &mut found).expect("still there");
    assert_eq!(&found[..length], b"leasehold-mark 2\nwho knows\n");
}

#[test]
fn a_file_of_another_cluster_resource_or_slot_refuses() {
    let leader = Leader::new();
    let other = Name::parse("jobs/other").expect("a name");
    for opened in [
        Replace::open(&leader.file(), Cluster(*b"another!"), name(), 0),
        Replace::open(&leader.file(), CLUSTER, other, 0),
        Replace::open(&leader.file(), CLUSTER, name(), 1),
    ] {
        assert_eq!(opened.expect_err("not its file").refusal(), Some(&Refusal::ForeignMark));
    }
}

#[test]
fn what_writers_that_died_left_is_never_read_and_goes_with_the_next_claim() {
    let leader = Leader::new();
    leader.open().write(&token(33), b"whole").expect("current");
    for draft in ["leader.conf.leasehold-draft-1-00", "leader.conf.leasehold-draft-2-ff"] {
        std::fs::write(leader.dir.path().join(draft), "half").expect("left");
    }
    std::fs::write(leader.dir.path().join("leader.conf.bak"), "mine").expect("written");
    assert_eq!(survey(leader.dir.path()).expect("surveyed").len(), 1);
    leader.open().claim(&token(34)).expect("a successor");
    assert_eq!(
        (leader.content().as_str(), leader.names()),
        ("whole", vec!["leader.conf".into(), "leader.conf.bak".into()])
    );
}

#[test]
fn a_survey_of_a_folder_tells_the_marks_of_replaced_files_and_of_logs() {
    let leader = Leader::new();
    leader.open().claim(&token(33)).expect("claimed");
    let path = leader.dir.path().join("events.log");
    Log::create(&path, CLUSTER, name(), 2).expect("created");
    let kept = survey(leader.dir.path()).expect("surveyed");
    assert_eq!(
        kept.iter().map(|one| (one.slot, one.mark)).collect::<Vec<_>>(),
        [(2, Mark::Fresh), (0, Mark::Armed(number(33)))]
    );
    assert_eq!(kept[1].name.as_deref(), Some("jobs/settle"));
    assert_eq!((kept[0].cluster, &kept[0].resource), (CLUSTER, &kept[1].resource));
    assert_eq!(survey(&path).expect("surveyed").len(), 1);
}
