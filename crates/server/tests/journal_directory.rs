//! What a data directory must be, and who may have it.
//!
//! No test here starts a process: until a new process has become its program it has this one's locks too, and a directory that
//! was let go would still be in use.

mod journal_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use journal_support::{append, now, save, small_in};
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions, LocalDisk};
use leasehold_server::journal::{AppendOutcome, DiskSpace, Journal, JournalLocation, OpenError, SnapshotStore};

fn open(place: &Directory) -> Result<(FileJournal<LocalDisk>, RecordedReplay), OpenError> {
    let mut told = RecordedReplay::default();
    now(place.open(&mut told)).map(|opened| (opened.journal, told))
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_directory_is_created_for_its_user_alone() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("data");
    let (mut journal, _) = open(&small_in(&path)).expect("created");
    append(&mut journal, b"one").expect("room");
    assert_eq!(fs::metadata(&path).expect("created").mode() & 0o7777, 0o700);
    for entry in fs::read_dir(&path).expect("readable") {
        let entry = entry.expect("readable");
        assert_eq!(entry.metadata().expect("readable").mode() & 0o077, 0, "{:?}", entry.path());
    }
    assert_eq!(fs::read_to_string(path.join("pid")).expect("there").trim(), std::process::id().to_string());
}

#[test]
fn a_directory_that_cannot_be_trusted_is_refused_and_the_next_step_named() {
    let above = tempfile::tempdir().expect("a directory");
    let refused = |path: &Path, step: &str| {
        let error = open(&small_in(path)).expect_err("refused");
        assert_eq!(error.code(), "CONFIG", "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().expect("text")) || text.contains("/sys"), "{text}");
        assert!(text.contains(step), "{text}");
        error
    };

    let path = above.path().join("missing/data");
    assert_eq!(refused(&path, "create it first"), OpenError::ParentMissing { path });

    let path = above.path().join("file");
    fs::write(&path, b"").expect("written");
    assert_eq!(refused(&path, "choose another path"), OpenError::NotADirectory { path: path.clone() });
    let below = path.join("data");
    assert_eq!(open(&small_in(&below)).err(), Some(OpenError::NotADirectory { path: below }));

    let path = Path::new("/sys/leasehold-data");
    assert_eq!(refused(path, "owner"), OpenError::NotWritable { path: "/sys".into() });

    let path = above.path().join("open");
    for mode in [0o777, 0o750, 0o701] {
        fs::create_dir_all(&path).expect("created");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
        assert_eq!(refused(&path, "chmod 700"), OpenError::TooOpen { path: path.clone(), mode });
    }

    let path = above.path().join("data");
    drop(open(&small_in(&path)).expect("created"));
    let link = above.path().join("link");
    symlink(&path, &link).expect("linked");
    assert_eq!(refused(&link, "use its target"), OpenError::Symlink { path: link.clone() });
    assert_eq!(open(&small_in(link.join(""))).err(), Some(OpenError::Symlink { path: link }), "a slash hides nothing");

    let owned = if root() {
        chown(&path, Some(12_345), None).expect("root may");
        path
    } else {
        "/usr".into()
    };
    assert!(matches!(refused(&owned, "change the owner"), OpenError::OwnedByOther { .. }));
}

#[test]
fn a_linked_file_is_refused() {
    let above = tempfile::tempdir().expect("a directory");
    let path = above.path().join("data");
    let place = small_in(&path);
    let (mut journal, _) = open(&place).expect("created");
    append(&mut journal, b"one").expect("room");
    save(&journal, 1, b"state").expect("room");
    drop(journal);
    for name in ["journal", "spare", &format!("segment-{:020}", 1), &format!("snapshot-{:020}", 1)] {
        let (file, away) = (path.join(name), above.path().join("away"));
        fs::rename(&file, &away).expect("moved");
        symlink(&away, &file).expect("linked");
        assert_eq!(open(&place).err(), Some(OpenError::Symlink { path: file.clone() }));
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("created");
        assert_eq!(open(&place).err().map(|error| error.code()), Some("STORAGE_FAILED"), "a directory is no {name}");
        fs::remove_dir(&file).expect("removed");
        fs::rename(&away, &file).expect("moved back");
    }
    assert_eq!(open(&place).expect("whole again").1.snapshot, Some((1, b"state".to_vec())));
}

#[test]
fn a_directory_in_use_is_refused_naming_the_process() {
    let above = tempfile::tempdir().expect("a directory");
    let place = small_in(above.path().join("data"));
    let (journal, _) = open(&place).expect("created");
    let owed = OpenError::InUse { path: place.path.clone(), pid: Some(std::process::id()) };
    assert_eq!(open(&place).err(), Some(owed.clone()));
    // Who may still write a snapshot still has it.
    let snapshots = journal.snapshots();
    drop(journal);
    assert_eq!(open(&place).err(), Some(owed.clone()));
    drop(snapshots);
    let (_journal, _) = open(&place).expect("free again");
    // Not the file with the number is the lock.
    fs::remove_file(place.path.join("pid")).expect("removed");
    assert_eq!(open(&place).err(), Some(OpenError::InUse { path: place.path.clone(), pid: None }));
}

#[test]
fn a_copied_directory_is_refused_until_told() {
    let above = tempfile::tempdir().expect("a directory");
    let place = small_in(above.path().join("data"));
    let (mut journal, _) = open(&place).expect("created");
    append(&mut journal, b"one").expect("room");
    drop(journal);
    let copy = above.path().join("copy");
    fs::create_dir(&copy).expect("created");
    fs::set_permissions(&copy, Permissions::from_mode(0o700)).expect("it is ours");
    for entry in fs::read_dir(&place.path).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
    }
    let mut place = small_in(&copy);
    let before = fs::read(copy.join("journal")).expect("readable");
    assert_eq!(open(&place).err(), Some(OpenError::Copied { path: copy.clone(), what: "inode" }));
    assert_eq!(fs::read(copy.join("journal")).expect("readable"), before, "a refused directory is untouched");
    place.options.accept_copy = true;
    assert_eq!(open(&place).expect("told").1.batches, [(1, b"one".to_vec())]);
    place.options.accept_copy = false;
    open(&place).expect("it is at home here now");
}

#[test]
fn leftovers_of_a_kill_are_cleared_away_and_strangers_left_alone() {
    let above = tempfile::tempdir().expect("a directory");
    let place = small_in(above.path().join("data"));
    drop(open(&place).expect("created"));
    let drafts = ["spare.tmp".to_owned(), format!("snapshot-{:020}.tmp", 3), "journal.tmp".to_owned()];
    for draft in &drafts {
        fs::write(place.path.join(draft), b"half").expect("written");
    }
    fs::write(place.path.join("notes.txt.tmp"), b"mine").expect("written");
    open(&place).expect("opened");
    for draft in &drafts {
        assert!(!place.path.join(draft).exists(), "{draft}");
    }
    assert!(place.path.join("notes.txt.tmp").exists());
}

#[test]
fn snapshots_trims_and_reads_go_on_beside_appends() {
    let above = tempfile::tempdir().expect("a directory");
    let options = FileOptions { segment_bytes: 64 << 10, ..FileOptions::default() };
    let place = Directory { path: above.path().join("data"), options };
    let (mut journal, _) = open(&place).expect("created");
    append(&mut journal, &[1; 1_000]).expect("room");
    let snapshots = journal.snapshots();
    let last = 1_500;
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut from = 1;
            let mut saved = 0;
            while from <= last {
                let mut expected = from;
                let mut listen = |sequence: u64, bytes: &[u8]| {
                    assert_eq!((sequence, bytes), (expected, &[sequence as u8; 1_000][..]));
                    expected += 1;
                    std::ops::ControlFlow::Continue(())
                };
                let next = now(snapshots.tail(from, &mut listen)).expect("all is there");
                if next > from {
                    assert_eq!(now(snapshots.save(next - 1, &[next as u8; 5_000])), Ok(AppendOutcome::Durable));
                    assert_eq!(now(snapshots.trim(next - 1)), Ok(AppendOutcome::Durable));
                    saved += 1;
                }
                from = next;
            }
            saved
        });
        for sequence in 2..=last {
            assert_eq!(journal.disk_space(), Ok(DiskSpace::Plenty));
            append(&mut journal, &[sequence as u8; 1_000]).expect("room");
        }
        assert!(beside.join().expect("no assertion failed") >= 1);
    });
    drop((journal, snapshots));
    let (journal, told) = open(&place).expect("opened again");
    assert_eq!(journal.next(), last + 1);
    assert_eq!(told.snapshot.expect("saved").0, last);
    assert_eq!(told.batches, []);
}
