//! A missing, unmarked, copied or foreign file rejects every token. It is never re-created silently.

use std::path::Path;

use leasehold_core::token::Cluster;
use leasehold_fence::file::{FencedFile, FencedLog, list_marks};
use leasehold_fence::{Error, FenceRefusal, Mark, MarkLoss};

use crate::fixture::TestFile;
use crate::support::{CLUSTER, RESOURCE, fence_id, id_of, number, token};

fn lost(result: Result<impl std::fmt::Debug, Error>) -> MarkLoss {
    match result {
        Err(Error::Refused(FenceRefusal::MarkLost(loss))) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

/// Copies a file with its attributes, as a backup does.
fn copy_with_attributes(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copied");
    let mut mark = [0; 4096];
    let length = rustix::fs::getxattr(from, "user.leasehold.mark", &mut mark).expect("it has a mark");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(to, "user.leasehold.mark", &mark[..length], flags).expect("copied too");
}

#[test]
fn writing_to_a_missing_file_does_not_create_it() {
    let fixture = TestFile::new();
    let file = fixture.open();
    std::fs::remove_file(fixture.file()).expect("removed");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Missing);
    assert_eq!(lost(file.claim(token(5))), MarkLoss::Missing);
    assert_eq!(lost(file.write(token(5), b"into nowhere")), MarkLoss::Missing);
    assert!(fixture.names().is_empty());
}

#[test]
fn a_file_without_a_mark_rejects_tokens_until_it_is_armed_and_keeps_its_content() {
    let fixture = TestFile::empty();
    std::fs::write(fixture.file(), "made by hand").expect("written");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Missing);
    let exists = FencedFile::create(&fixture.file(), &fence_id(), b"").expect_err("it exists");
    assert_eq!(exists.code(), "CONFLICT");
    FencedFile::arm(&fixture.file(), &fence_id(), number(30)).expect("armed");
    assert_eq!(fixture.content(), "made by hand");
    assert_eq!(fixture.open().claim(token(29)).expect_err("an earlier holder").code(), "STALE_TOKEN");
    fixture.open().write(token(31), b"after").expect("a later holder");
    let again = FencedFile::arm(&fixture.file(), &fence_id(), number(50)).expect_err("it has a mark");
    assert_eq!(again.code(), "CONFLICT");
    assert_eq!(fixture.names(), ["leader.conf"]);
}

#[test]
fn a_copy_rejects_tokens_until_it_is_re_armed_above_its_mark() {
    let fixture = TestFile::new();
    fixture.open().write(token(20), b"kept").expect("current");
    let backup = fixture.dir.path().join("backup");
    copy_with_attributes(&fixture.file(), &backup);
    fixture.open().write(token(25), b"newer").expect("current");
    std::fs::rename(&backup, fixture.file()).expect("restored");

    let file = fixture.open();
    assert_eq!(lost(file.mark()), MarkLoss::Moved);
    assert_eq!(lost(file.claim(token(26))), MarkLoss::Moved);
    assert_eq!(lost(file.write(token(26), b"no")), MarkLoss::Moved);
    assert_eq!(file.rearm(number(19)).expect_err("below the mark").code(), "CONFLICT");
    file.rearm(number(30)).expect("armed from a floor");
    assert_eq!(fixture.content(), "kept");
    assert_eq!(file.claim(token(29)).expect_err("an earlier holder").code(), "STALE_TOKEN");
    file.write(token(31), b"after").expect("a later holder");
}

#[test]
fn an_unreadable_or_newer_mark_is_an_error_and_left_unchanged() {
    let fixture = TestFile::new();
    let flags = rustix::fs::XattrFlags::empty();
    let put = |text: &str| rustix::fs::setxattr(fixture.file(), "user.leasehold.mark", text.as_bytes(), flags);
    put("something else").expect("put");
    assert_eq!(lost(fixture.try_open()), MarkLoss::Unreadable);
    put("leasehold-mark 2\nwho knows\n").expect("put");
    assert!(matches!(fixture.try_open(), Err(Error::Version { found: 2, supported: 1 })));
    let mut found = [0; 64];
    let length = rustix::fs::getxattr(fixture.file(), "user.leasehold.mark", &mut found).expect("still there");
    assert_eq!(&found[..length], b"leasehold-mark 2\nwho knows\n");
}

#[test]
fn a_file_of_another_cluster_resource_or_slot_is_foreign() {
    let fixture = TestFile::new();
    let another = FencedFile::open(&fixture.file(), &id_of(Cluster(*b"another!"), RESOURCE));
    assert_eq!(another.expect_err("a foreign file").refusal(), Some(&FenceRefusal::ForeignMark));
    for opened in [
        FencedFile::open(&fixture.file(), &id_of(CLUSTER, "jobs/other")),
        FencedFile::open(&fixture.file(), &fence_id().with_slot(1)),
    ] {
        assert_eq!(opened.expect_err("a foreign file").code(), "CONFLICT");
    }
}

#[test]
fn temporary_files_of_dead_writers_are_ignored_and_removed_by_the_next_claim() {
    let fixture = TestFile::new();
    fixture.open().write(token(33), b"whole").expect("current");
    for temp in ["leader.conf.leasehold-draft-1-00", "leader.conf.leasehold-draft-2-ff"] {
        std::fs::write(fixture.dir.path().join(temp), "half").expect("left");
    }
    std::fs::write(fixture.dir.path().join("leader.conf.bak"), "mine").expect("written");
    assert_eq!(list_marks(fixture.dir.path()).expect("listed").len(), 1);
    fixture.open().claim(token(34)).expect("a successor");
    assert_eq!(
        (fixture.content().as_str(), fixture.names()),
        ("whole", vec!["leader.conf".into(), "leader.conf.bak".into()])
    );
}

#[test]
fn list_marks_of_a_directory_returns_marks_of_files_and_logs() {
    let fixture = TestFile::new();
    fixture.open().claim(token(33)).expect("claimed");
    let path = fixture.dir.path().join("events.log");
    FencedLog::create(&path, &fence_id().with_slot(2)).expect("created");
    let marks = list_marks(fixture.dir.path()).expect("listed");
    assert_eq!(
        marks.iter().map(|one| (one.slot, one.mark)).collect::<Vec<_>>(),
        [(2, Mark::Fresh), (0, Mark::Armed(number(33)))]
    );
    assert_eq!(marks[1].name.as_deref(), Some("jobs/settle"));
    assert_eq!((marks[0].cluster, &marks[0].resource_hash), (CLUSTER, &marks[1].resource_hash));
    assert_eq!(list_marks(&path).expect("listed").len(), 1);
}

/// On a disk: only there inode numbers are reused.
#[test]
fn a_restored_copy_is_lost_even_if_it_has_the_inode_number_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, backup) = (dir.path().join("leader.conf"), dir.path().join("backup"));
    FencedFile::create(&path, &fence_id(), b"").expect("created");
    copy_with_attributes(&path, &backup);
    FencedFile::open(&path, &fence_id()).and_then(|file| file.write(token(9), b"kept")).expect("written");
    for _ in 0..100 {
        std::fs::remove_file(&path).expect("removed");
        copy_with_attributes(&backup, &path);
        let file = FencedFile::open(&path, &fence_id()).expect("opened");
        assert_eq!(lost(file.write(token(5), b"zombie")), MarkLoss::Moved);
    }
}

#[test]
fn a_new_file_is_for_its_owner_only_and_the_permissions_that_were_set_stay() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = TestFile::new();
    let mode = || std::fs::metadata(fixture.file()).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(fixture.file(), std::fs::Permissions::from_mode(0o644)).expect("readers are let in");
    fixture.open().write(token(5), b"published").expect("written");
    assert_eq!(mode(), 0o644);
}

#[test]
fn another_name_of_a_replaced_file_that_is_put_back_rejects_tokens_until_it_is_re_armed() {
    let fixture = TestFile::new();
    fixture.open().write(token(20), b"kept").expect("current");
    let other_name = fixture.dir.path().join("snapshot");
    std::fs::hard_link(fixture.file(), &other_name).expect("a backup by hard links");
    fixture.open().claim(token(25)).expect("a successor");
    std::fs::rename(&other_name, fixture.file()).expect("put back");

    let file = fixture.open();
    assert_eq!(lost(file.write(token(20), b"zombie")), MarkLoss::Moved);
    assert_eq!(lost(file.claim(token(26))), MarkLoss::Moved);
    assert_eq!(fixture.content(), "kept");
    file.rearm(number(26)).expect("armed from a floor");
    assert_eq!(file.write(token(20), b"zombie").expect_err("an earlier holder").code(), "STALE_TOKEN");
    file.write(token(26), b"after").expect("a later holder");
}

/// A zombie that was paused in its write, while an operator restored the file.
#[test]
fn a_write_in_progress_does_not_replace_a_file_that_was_restored_and_re_armed() {
    let fixture = TestFile::new();
    fixture.open().write(token(20), b"kept").expect("current");
    let backup = fixture.dir.path().join("backup");
    copy_with_attributes(&fixture.file(), &backup);
    let late = fixture.open().update(token(20), |_| {
        std::fs::rename(&backup, fixture.file()).expect("restored");
        fixture.open().rearm(number(30)).expect("re-armed");
        fixture.open().write(token(31), b"after").expect("a later holder");
        b"zombie".to_vec()
    });
    assert_eq!(lost(late), MarkLoss::Moved);
    assert_eq!((fixture.content().as_str(), fixture.names()), ("after", vec!["leader.conf".to_owned()]));
    assert_eq!(fixture.open().mark().expect("armed"), Some(number(31)));
}

#[test]
fn a_pipe_is_an_error_and_is_not_waited_for() {
    let fixture = TestFile::empty();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, fixture.file(), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = fixture.file();
    std::thread::spawn(move || {
        let opened = FencedFile::open(&path, &fence_id()).map(drop);
        let armed = FencedFile::arm(&path, &fence_id(), number(1));
        let listed = list_marks(&path).map(drop);
        sender.send([opened, armed, listed]).expect("the test waits");
    });
    for result in receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it does not wait for a writer") {
        assert_eq!(result.expect_err("a pipe").code(), "INVALID_ARGUMENT");
    }
}

/// The access control list `user::rw-, user:12345:rw-, group::---, mask::rw-, other::---`. The mode of its file is 0660.
const ACCESS_LIST: [(u16, u16, u32); 5] =
    [(0x01, 6, u32::MAX), (0x02, 6, 12345), (0x04, 0, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)];

#[test]
fn the_access_control_list_of_a_file_stays() {
    const NAME: &str = "system.posix_acl_access";
    let fixture = TestFile::new();
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in ACCESS_LIST {
        list.extend([&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    rustix::fs::setxattr(fixture.file(), NAME, &list, rustix::fs::XattrFlags::empty()).expect("set");
    fixture.open().write(token(5), b"published").expect("written");
    let mut found = [0; 256];
    let length =
        rustix::fs::getxattr(fixture.file(), NAME, &mut found).expect("the group must not get what the user has");
    assert_eq!(found[..length], list);
}
