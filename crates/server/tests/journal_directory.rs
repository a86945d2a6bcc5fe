//! What a data directory must be, who may have it, and what happens when its disk is full.

mod journal_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use journal_support::{append, now, save, small_in};
use leasehold_server::journal::conformance::Told;
use leasehold_server::journal::file::{Directory, FileJournal, LocalDisk, Options};
use leasehold_server::journal::{Fault, Journal, Kept, OpenError, Place, Room, Shelf};

fn open(place: &Directory) -> Result<(FileJournal<LocalDisk>, Told), OpenError> {
    let mut told = Told::default();
    now(place.open(&mut told)).map(|opened| (opened.journal, told))
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn segment(path: &Path, number: usize) -> std::path::PathBuf {
    path.join(format!("segment-{number:020}"))
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
    assert_eq!(refused(&path, "create that first"), OpenError::ParentMissing { path });

    let path = above.path().join("file");
    fs::write(&path, b"").expect("written");
    assert_eq!(refused(&path, "name another"), OpenError::NotADirectory { path: path.clone() });
    let below = path.join("data");
    assert_eq!(open(&small_in(&below)).err(), Some(OpenError::NotADirectory { path: below }));

    let path = Path::new("/sys/leasehold-data");
    assert_eq!(refused(path, "change its owner"), OpenError::NotWritable { path: "/sys".into() });

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
    assert_eq!(refused(&link, "points to"), OpenError::Symlink { path: link.clone() });
    assert_eq!(open(&small_in(link.join(""))).err(), Some(OpenError::Symlink { path: link }), "a slash hides nothing");

    let owned = if root() {
        chown(&path, Some(12_345), None).expect("root may");
        path
    } else {
        "/usr".into()
    };
    assert!(matches!(refused(&owned, "change its owner"), OpenError::OwnedByOther { .. }));
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
    let shelf = journal.shelf();
    drop(journal);
    assert_eq!(open(&place).err(), Some(owed.clone()));
    drop(shelf);
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
    let copied = Command::new("cp").arg("-a").args([&place.path, &copy]).status().expect("cp runs");
    assert!(copied.success());
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
    let options = Options { segment_bytes: 64 << 10, ..Options::default() };
    let place = Directory { path: above.path().join("data"), options };
    let (mut journal, _) = open(&place).expect("created");
    append(&mut journal, &[1; 1_000]).expect("room");
    let shelf = journal.shelf();
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
                let next = now(shelf.tail(from, &mut listen)).expect("all is there");
                if next > from {
                    assert_eq!(now(shelf.save(next - 1, &[next as u8; 5_000])), Ok(Kept::Durable));
                    assert_eq!(now(shelf.trim(next - 1)), Ok(Kept::Durable));
                    saved += 1;
                }
                from = next;
            }
            saved
        });
        for sequence in 2..=last {
            assert_eq!(journal.room(), Ok(Room::Plenty));
            append(&mut journal, &[sequence as u8; 1_000]).expect("room");
        }
        assert!(beside.join().expect("no assertion failed") >= 1);
    });
    drop((journal, shelf));
    let (journal, told) = open(&place).expect("opened again");
    assert_eq!(journal.next(), last + 1);
    assert_eq!(told.snapshot.expect("saved").0, last);
    assert_eq!(told.batches, []);
}

/// Set for the copy of this test that runs with mounts of its own.
const SMALL_DISK: &str = "LEASEHOLD_SMALL_DISK";

/// Runs itself again where a mount is seen by nobody else, and fills a small disk there.
#[test]
fn a_full_disk_ends_what_is_held_and_recovers_when_space_comes_back() {
    if let Some(path) = std::env::var_os(SMALL_DISK) {
        return fill_a_small_disk(Path::new(&path));
    }
    let above = tempfile::tempdir().expect("a directory");
    let mut again = Command::new("unshare");
    if !root() {
        again.arg("--map-root-user");
    }
    let name = "a_full_disk_ends_what_is_held_and_recovers_when_space_comes_back";
    again.arg("--mount").arg(std::env::current_exe().expect("this program")).args(["--exact", name, "--nocapture"]);
    let output = again.env(SMALL_DISK, above.path()).output().expect("unshare runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("the small disk was full"), "{text}");
}

fn fill_a_small_disk(above: &Path) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(above).status();
    assert!(mounted.expect("mount runs").success());
    let mut place = small_in(above.join("data"));
    place.options.segment_bytes = 1 << 20;
    let error = open(&place).expect_err("more than there is");
    assert_eq!(error.code(), "STORAGE_FULL", "{error}");
    assert!(!place.path.join("spare.tmp").exists() && !place.path.join("spare").exists());
    place.options.segment_bytes = 4_096;
    drop(open(&place).expect("and now it fits"));
    fs::remove_dir_all(&place.path).expect("removed");
    for background in [false, true] {
        let path = above.join(format!("data-{background}"));
        let options = Options { segment_bytes: 64 << 10, background, ..Options::default() };
        let place = Directory { path: path.clone(), options };
        let (mut journal, _) = open(&place).expect("room for that");
        append(&mut journal, &[1; 2_000]).expect("room");
        while !path.join("spare").exists() {
            std::thread::yield_now();
        }
        let ballast = above.join("ballast");
        // Writes until no byte is free; the error is the point.
        fs::write(&ballast, vec![1; 400 << 10]).expect_err("more than there is");
        let (mut kept, mut reserve) = (1, None);
        let fault = loop {
            if journal.room().expect("full is no failure") != Room::Plenty && reserve.is_none() {
                reserve = Some(kept);
            }
            match append(&mut journal, &[1; 2_000]) {
                Ok(()) => kept += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault, Fault::Full);
        let after = kept - reserve.expect("the reserve is told before it is used up");
        assert!(after >= (48 << 10) / 2_016 - 1, "{after} batches of the reserve");
        assert_eq!(save(&journal, 1, &[7; 100_000]), Err(Fault::Full));
        drop(journal);
        let (mut journal, told) = open(&place).expect("a full disk can be opened");
        assert_eq!(told.batches.len(), kept);
        assert_eq!(append(&mut journal, &[1; 2_000]), Err(Fault::Full));
        fs::remove_file(&ballast).expect("removed");
        while journal.room() != Ok(Room::Plenty) {
            std::thread::yield_now();
        }
        append(&mut journal, &[1; 2_000]).expect("space came back");
        save(&journal, 2, &[7; 50_000]).expect("space came back");
        drop(journal);
        assert_eq!(open(&place).expect("whole").1.batches.len(), kept - 1);
        assert!(segment(&path, 3).exists(), "two segments were used up");
        fs::remove_dir_all(&path).expect("removed");
    }
    println!("the small disk was full");
}
