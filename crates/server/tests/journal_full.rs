//! A full disk, on a small tmpfs.
//!
//! In its own test binary because it starts processes: between fork and exec a child shares this process's locks.

mod journal_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use journal_support::{append, poll_ready, save, small_directory};
use leasehold_server::journal::conformance::RecordedReplay;
use leasehold_server::journal::file::{Directory, FileJournal, FileOptions, LocalDisk};
use leasehold_server::journal::{DiskSpace, Journal, JournalError, JournalLocation, OpenError};

fn open(location: &Directory) -> Result<(FileJournal<LocalDisk>, RecordedReplay), OpenError> {
    let mut replay = RecordedReplay::default();
    poll_ready(location.open(&mut replay)).map(|opened| (opened.journal, replay))
}

/// Set for the copy of this test that runs in its own mount namespace.
const SMALL_DISK: &str = "LEASEHOLD_SMALL_DISK";

/// Runs itself again in a mount namespace, and fills a small disk there.
#[test]
fn a_full_disk_refuses_appends_and_recovers_when_space_is_freed() {
    if let Some(path) = std::env::var_os(SMALL_DISK) {
        return fill_a_small_disk(Path::new(&path));
    }
    let parent = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let name = "a_full_disk_refuses_appends_and_recovers_when_space_is_freed";
    command.arg("--mount").arg(std::env::current_exe().expect("this program")).args(["--exact", name, "--nocapture"]);
    let output = command.env(SMALL_DISK, parent.path()).output().expect("unshare runs");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("the small disk was full"), "{text}");
}

fn fill_a_small_disk(parent: &Path) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(parent).status();
    assert!(mounted.expect("mount runs").success());
    let mut location = small_directory(parent.join("data"));
    location.options.segment_bytes = 1 << 20;
    let error = open(&location).expect_err("a segment is larger than the disk");
    assert_eq!(error.code(), "STORAGE_FULL", "{error}");
    assert!(!location.path.join("spare.tmp").exists() && !location.path.join("spare").exists());
    location.options.segment_bytes = 4_096;
    drop(open(&location).expect("a small segment fits"));
    fs::remove_dir_all(&location.path).expect("the file is removed");
    for background in [false, true] {
        let path = parent.join(format!("data-{background}"));
        let options = FileOptions { segment_bytes: 64 << 10, background, ..FileOptions::default() };
        let location = Directory { path: path.clone(), options };
        let (mut journal, _) = open(&location).expect("the segments fit");
        append(&mut journal, &[1; 2_000]).expect("the disk has space");
        while !path.join("spare").exists() {
            std::thread::yield_now();
        }
        let ballast = parent.join("ballast");
        // Writes until no byte is free, and must fail.
        fs::write(&ballast, vec![1; 400 << 10]).expect_err("the file is larger than the free space");
        let (mut stored, mut reserve_from) = (1, None);
        let fault = loop {
            if journal.disk_space().expect("a full disk is not a failed disk") != DiskSpace::Plenty
                && reserve_from.is_none()
            {
                reserve_from = Some(stored);
            }
            match append(&mut journal, &[1; 2_000]) {
                Ok(()) => stored += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault, JournalError::Full);
        let after = stored - reserve_from.expect("the low space is reported before the reserve is used up");
        assert!(after >= (48 << 10) / 2_016 - 1, "{after} batches of the reserve");
        assert_eq!(save(&journal, 1, &[7; 100_000]), Err(JournalError::Full));
        drop(journal);
        let (mut journal, replay) = open(&location).expect("a full disk can be opened");
        assert_eq!(replay.batches.len(), stored);
        assert_eq!(append(&mut journal, &[1; 2_000]), Err(JournalError::Full));
        fs::remove_file(&ballast).expect("the file is removed");
        while journal.disk_space() != Ok(DiskSpace::Plenty) {
            std::thread::yield_now();
        }
        append(&mut journal, &[1; 2_000]).expect("space was freed");
        save(&journal, 2, &[7; 50_000]).expect("space was freed");
        drop(journal);
        assert_eq!(open(&location).expect("the journal is intact").1.batches.len(), stored - 1);
        assert!(path.join(format!("segment-{:020}", 3)).exists(), "the log has a third segment");
        fs::remove_dir_all(&path).expect("the file is removed");
    }
    println!("the small disk was full");
}
