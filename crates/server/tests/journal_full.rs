//! What happens when the disk of a data directory is full. Alone here, because it starts processes, and a new process has the
//! locks of this one until it has become its program.

mod journal_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use journal_support::{append, now, save, small_in};
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions, LocalDisk};
use leasehold_server::journal::{DiskSpace, Journal, JournalError, JournalLocation, OpenError};

fn open(place: &Directory) -> Result<(FileJournal<LocalDisk>, RecordedReplay), OpenError> {
    let mut told = RecordedReplay::default();
    now(place.open(&mut told)).map(|opened| (opened.journal, told))
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
    if !rustix::process::geteuid().is_root() {
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
        let options = FileOptions { segment_bytes: 64 << 10, background, ..FileOptions::default() };
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
            if journal.disk_space().expect("full is no failure") != DiskSpace::Plenty && reserve.is_none() {
                reserve = Some(kept);
            }
            match append(&mut journal, &[1; 2_000]) {
                Ok(()) => kept += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault, JournalError::Full);
        let after = kept - reserve.expect("the reserve is told before it is used up");
        assert!(after >= (48 << 10) / 2_016 - 1, "{after} batches of the reserve");
        assert_eq!(save(&journal, 1, &[7; 100_000]), Err(JournalError::Full));
        drop(journal);
        let (mut journal, told) = open(&place).expect("a full disk can be opened");
        assert_eq!(told.batches.len(), kept);
        assert_eq!(append(&mut journal, &[1; 2_000]), Err(JournalError::Full));
        fs::remove_file(&ballast).expect("removed");
        while journal.disk_space() != Ok(DiskSpace::Plenty) {
            std::thread::yield_now();
        }
        append(&mut journal, &[1; 2_000]).expect("space came back");
        save(&journal, 2, &[7; 50_000]).expect("space came back");
        drop(journal);
        assert_eq!(open(&place).expect("whole").1.batches.len(), kept - 1);
        assert!(path.join(format!("segment-{:020}", 3)).exists(), "two segments were used up");
        fs::remove_dir_all(&path).expect("removed");
    }
    println!("the small disk was full");
}
