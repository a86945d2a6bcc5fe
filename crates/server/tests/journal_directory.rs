//! Requirements of a data directory: owner, permissions, lock, identity.
//!
//! No test here starts a process: between fork and exec a child shares this process's locks, and a released directory would still
//! be in use.

mod journal_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use journal_support::{append, poll_ready, save, small_directory};
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions, LocalDisk};
use leasehold_server::journal::{
    AppendOutcome, DiskSpace, Journal, JournalError, JournalLocation, OpenError, SnapshotStore,
};

fn open(location: &Directory) -> Result<(FileJournal<LocalDisk>, RecordedReplay), OpenError> {
    let mut replay = RecordedReplay::default();
    poll_ready(location.open(&mut replay)).map(|opened| (opened.journal, replay))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_new_directory_is_accessible_only_to_its_user() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let path = parent.path().join("data");
    let (mut journal, _) = open(&small_directory(&path)).expect("the directory is created");
    append(&mut journal, b"one").expect("the disk has space");
    assert_eq!(fs::metadata(&path).expect("the directory is created").mode() & 0o7777, 0o700);
    for entry in fs::read_dir(&path).expect("the file is readable") {
        let entry = entry.expect("the file is readable");
        assert_eq!(entry.metadata().expect("the file is readable").mode() & 0o077, 0, "{:?}", entry.path());
    }
    assert_eq!(
        fs::read_to_string(path.join("pid")).expect("the pid file exists").trim(),
        std::process::id().to_string()
    );
}

#[test]
fn an_unsafe_directory_is_refused_with_a_next_step() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let refused = |path: &Path, step: &str| {
        let error = open(&small_directory(path)).expect_err("the open is refused");
        assert_eq!(error.code(), "CONFIG", "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().expect("the path is UTF-8")) || text.contains("/sys"), "{text}");
        assert!(text.contains(step), "{text}");
        error
    };

    let path = parent.path().join("missing/data");
    assert_eq!(refused(&path, "create it first"), OpenError::ParentMissing { path });

    let path = parent.path().join("file");
    fs::write(&path, b"").expect("the file is written");
    assert_eq!(refused(&path, "choose another path"), OpenError::NotADirectory { path: path.clone() });
    let below = path.join("data");
    assert_eq!(open(&small_directory(&below)).err(), Some(OpenError::NotADirectory { path: below }));

    let path = Path::new("/sys/leasehold-data");
    assert_eq!(refused(path, "owner"), OpenError::NotWritable { path: "/sys".into() });

    let path = parent.path().join("open");
    for mode in [0o777, 0o750, 0o701] {
        fs::create_dir_all(&path).expect("the directory is created");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the mode is changed");
        assert_eq!(refused(&path, "chmod 700"), OpenError::TooOpen { path: path.clone(), mode });
    }

    let path = parent.path().join("data");
    drop(open(&small_directory(&path)).expect("the directory is created"));
    let link = parent.path().join("link");
    symlink(&path, &link).expect("the link is created");
    assert_eq!(refused(&link, "use its target"), OpenError::Symlink { path: link.clone() });
    assert_eq!(
        open(&small_directory(link.join(""))).err(),
        Some(OpenError::Symlink { path: link }),
        "a trailing slash does not hide the link"
    );

    let owned = if is_root() {
        chown(&path, Some(12_345), None).expect("root may change the owner");
        path
    } else {
        "/usr".into()
    };
    assert!(matches!(refused(&owned, "change the owner"), OpenError::OwnedByOther { .. }));
}

#[test]
fn a_symlinked_file_is_refused() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let path = parent.path().join("data");
    let location = small_directory(&path);
    let (mut journal, _) = open(&location).expect("the directory is created");
    append(&mut journal, b"one").expect("the disk has space");
    save(&journal, 1, b"state").expect("the disk has space");
    drop(journal);
    for name in ["journal", "spare", &format!("segment-{:020}", 1), &format!("snapshot-{:020}", 1)] {
        let (file, away) = (path.join(name), parent.path().join("away"));
        fs::rename(&file, &away).expect("the file is moved");
        symlink(&away, &file).expect("the link is created");
        assert_eq!(open(&location).err(), Some(OpenError::Symlink { path: file.clone() }));
        fs::remove_file(&file).expect("the file is removed");
        fs::create_dir(&file).expect("the directory is created");
        assert_eq!(
            open(&location).err().map(|error| error.code()),
            Some("STORAGE_FAILED"),
            "a directory in place of {name}"
        );
        fs::remove_dir(&file).expect("the file is removed");
        fs::rename(&away, &file).expect("the file is moved back");
    }
    assert_eq!(open(&location).expect("the journal is intact again").1.snapshot, Some((1, b"state".to_vec())));
}

#[test]
fn a_directory_in_use_is_refused_with_the_process_id() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let location = small_directory(parent.path().join("data"));
    let (journal, _) = open(&location).expect("the directory is created");
    let in_use = OpenError::InUse { path: location.path.clone(), pid: Some(std::process::id()) };
    assert_eq!(open(&location).err(), Some(in_use.clone()));
    // The snapshot store can still write, so it keeps the lock.
    let snapshots = journal.snapshots();
    drop(journal);
    assert_eq!(open(&location).err(), Some(in_use.clone()));
    drop(snapshots);
    let (_journal, _) = open(&location).expect("the lock is free again");
    // The pid file is not the lock.
    fs::remove_file(location.path.join("pid")).expect("the file is removed");
    assert_eq!(open(&location).err(), Some(OpenError::InUse { path: location.path.clone(), pid: None }));
}

#[test]
fn a_copied_directory_is_refused_unless_the_copy_is_accepted() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let location = small_directory(parent.path().join("data"));
    let (mut journal, _) = open(&location).expect("the directory is created");
    append(&mut journal, b"one").expect("the disk has space");
    drop(journal);
    let copy = parent.path().join("copy");
    fs::create_dir(&copy).expect("the directory is created");
    fs::set_permissions(&copy, Permissions::from_mode(0o700)).expect("permissions can be changed");
    for entry in fs::read_dir(&location.path).expect("the file is readable") {
        let entry = entry.expect("the file is readable");
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("the file is copied");
    }
    let mut location = small_directory(&copy);
    let before = fs::read(copy.join("journal")).expect("the file is readable");
    assert_eq!(open(&location).err(), Some(OpenError::Copied { path: copy.clone(), what: "inode" }));
    assert_eq!(
        fs::read(copy.join("journal")).expect("the file is readable"),
        before,
        "a refused directory is untouched"
    );
    location.options.accept_copy = true;
    assert_eq!(open(&location).expect("the copy is accepted").1.batches, [(1, b"one".to_vec())]);
    location.options.accept_copy = false;
    open(&location).expect("the new identity is recorded");
}

#[test]
fn temporary_files_of_a_killed_process_are_removed_and_foreign_files_kept() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let location = small_directory(parent.path().join("data"));
    drop(open(&location).expect("the directory is created"));
    let drafts = ["spare.tmp".to_owned(), format!("snapshot-{:020}.tmp", 3), "journal.tmp".to_owned()];
    for draft in &drafts {
        fs::write(location.path.join(draft), b"half").expect("the file is written");
    }
    fs::write(location.path.join("notes.txt.tmp"), b"mine").expect("the file is written");
    open(&location).expect("the journal opens");
    for draft in &drafts {
        assert!(!location.path.join(draft).exists(), "{draft}");
    }
    assert!(location.path.join("notes.txt.tmp").exists());
}

#[test]
fn snapshots_trims_and_reads_run_concurrently_with_appends() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let options = FileOptions { segment_bytes: 64 << 10, ..FileOptions::default() };
    let location = Directory { path: parent.path().join("data"), options };
    let (mut journal, _) = open(&location).expect("the directory is created");
    append(&mut journal, &[1; 1_000]).expect("the disk has space");
    let snapshots = journal.snapshots();
    let last = 1_500;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut from = 1;
            let mut saved = 0;
            while from <= last {
                let mut expected = from;
                let mut visit = |sequence: u64, bytes: &[u8]| {
                    assert_eq!((sequence, bytes), (expected, &[sequence as u8; 1_000][..]));
                    expected += 1;
                    std::ops::ControlFlow::Continue(())
                };
                let next = poll_ready(snapshots.tail(from, &mut visit)).expect("every batch is stored");
                if next > from {
                    assert_eq!(poll_ready(snapshots.save(next - 1, &[next as u8; 5_000])), Ok(AppendOutcome::Durable));
                    assert_eq!(poll_ready(snapshots.trim(next - 1)), Ok(AppendOutcome::Durable));
                    saved += 1;
                }
                from = next;
            }
            saved
        });
        for sequence in 2..=last {
            assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
            append(&mut journal, &[sequence as u8; 1_000]).expect("the disk has space");
        }
        assert!(reader.join().expect("the reader does not panic") >= 1);
    });
    drop((journal, snapshots));
    let (journal, replay) = open(&location).expect("the journal reopens");
    assert_eq!(journal.next(), last + 1);
    assert_eq!(replay.snapshot.expect("a snapshot was saved").0, last);
    assert_eq!(replay.batches, []);
}

const SEGMENT: &str = "segment-00000000000000000001";

/// Appends two batches, copies the directory's files to `old`, and appends a third.
fn with_older_copy(data: &Path, old: &Path) -> FileJournal<LocalDisk> {
    let (mut journal, _) = open(&small_directory(data)).expect("the directory is created");
    append(&mut journal, b"one").expect("the disk has space");
    append(&mut journal, b"two").expect("the disk has space");
    fs::create_dir(old).expect("the directory is created");
    for name in ["journal", SEGMENT] {
        fs::copy(data.join(name), old.join(name)).expect("the file is copied");
    }
    append(&mut journal, b"three").expect("the disk has space");
    journal
}

/// What is appended to a lost, replaced or changed file would be lost, so nothing more is acknowledged, and the next open refuses a
/// log without the batches that were.
#[test]
fn a_journal_whose_files_are_lost_or_changed_while_it_is_open_fails_and_is_refused_at_the_next_open() {
    type Damage = fn(&Path, &Path) -> std::io::Result<()>;
    let cases: [(&str, Damage); 10] = [
        ("segment truncated", |data, _| fs::File::options().write(true).open(data.join(SEGMENT))?.set_len(100)),
        ("segment truncated and extended", |data, _| {
            let file = fs::File::options().write(true).open(data.join(SEGMENT))?;
            file.set_len(100)?;
            file.set_len(4_096)
        }),
        ("segment overwritten with an older copy", |data, old| {
            fs::File::options().write(true).open(data.join(SEGMENT))?.write_all_at(&fs::read(old.join(SEGMENT))?, 0)
        }),
        ("segment replaced by an older copy", |data, old| fs::rename(old.join(SEGMENT), data.join(SEGMENT))),
        ("segment moved away", |data, old| fs::rename(data.join(SEGMENT), old.join("moved"))),
        ("segment deleted", |data, _| fs::remove_file(data.join(SEGMENT))),
        ("identity deleted", |data, _| fs::remove_file(data.join("journal"))),
        ("identity moved away", |data, old| fs::rename(data.join("journal"), old.join("moved"))),
        ("identity and segment replaced by older copies", |data, old| {
            fs::rename(old.join("journal"), data.join("journal"))?;
            fs::rename(old.join(SEGMENT), data.join(SEGMENT))
        }),
        ("identity truncated, and segment too", |data, _| {
            fs::File::options().write(true).open(data.join("journal"))?.set_len(0)?;
            fs::File::options().write(true).open(data.join(SEGMENT))?.set_len(100)
        }),
    ];
    for (what, damage) in cases {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (data, old) = (parent.path().join("data"), parent.path().join("old"));
        let mut journal = with_older_copy(&data, &old);
        damage(&data, &old).expect("the file can be changed");
        let failed = append(&mut journal, b"four");
        assert!(
            matches!(&failed, Err(JournalError::Failed { reason }) if reason.contains("while it was in use")),
            "{what}: {failed:?}"
        );
        assert!(matches!(append(&mut journal, b"four"), Err(JournalError::Failed { .. })), "{what}: it stays failed");
        journal.close();
        drop(journal);
        let refused = open(&small_directory(&data)).map(|(_, replay)| replay.batches);
        assert_eq!(refused.as_ref().err().map(OpenError::code), Some("CORRUPT"), "{what}: {refused:?}");
    }
}

/// The next segment is still being written when the directory is deleted: the reason is the deletion, not the missing file.
#[test]
fn a_directory_deleted_during_the_preallocation_is_reported_as_deleted() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let path = parent.path().join("data");
    let options = FileOptions { segment_bytes: 64 << 20, ..FileOptions::default() };
    let (mut journal, _) = open(&Directory { path: path.clone(), options }).expect("the directory is created");
    fs::remove_dir_all(&path).expect("the directory is removed");
    let failed = (0..6_000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        journal.disk_space().err()
    });
    let failed = failed.expect("the preallocation ends");
    assert!(
        matches!(&failed, JournalError::Failed { reason } if reason.contains("deleted or moved while it was in use")),
        "{failed:?}"
    );
}

/// The identity file alone is repaired with what the writer knows; the log is complete.
#[test]
fn an_identity_file_that_is_changed_while_the_journal_is_open_fails_it_and_loses_no_batch() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let (data, old) = (parent.path().join("data"), parent.path().join("old"));
    let mut journal = with_older_copy(&data, &old);
    fs::File::options().write(true).open(data.join("journal")).expect("the file opens").set_len(0).expect("truncated");
    let failed = append(&mut journal, b"four");
    assert!(matches!(&failed, Err(JournalError::Failed { reason }) if reason.contains("journal:")), "{failed:?}");
    drop(journal);
    let (_, replay) = open(&small_directory(&data)).expect("the log is complete");
    assert!(replay.batches.starts_with(&[(1, b"one".to_vec()), (2, b"two".to_vec()), (3, b"three".to_vec())]));
}

#[test]
fn a_segment_that_is_lost_before_a_rotation_fails_the_journal() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let data = parent.path().join("data");
    let (mut journal, _) = open(&small_directory(&data)).expect("the directory is created");
    append(&mut journal, &[1; 3_000]).expect("the disk has space");
    fs::rename(data.join(SEGMENT), parent.path().join("moved")).expect("the file is moved");
    let failed = append(&mut journal, &[2; 3_000]);
    assert!(matches!(&failed, Err(JournalError::Failed { reason }) if reason.contains(SEGMENT)), "{failed:?}");
}
