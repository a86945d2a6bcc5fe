//! Backup of a running server, and restore: higher tokens, no renewable lease, a quarantine, all or nothing (T5).

mod http_client;
mod journal_support;
mod snapshot_support;

use std::path::{Path, PathBuf};

use http_client::{field, free_port_config, http};
use journal_support::simulated_disk::{SimulatedDisk, record};
use journal_support::{small_directory, small_segments};
use leasehold_core::command::{Answer, Command, LeaseRef};
use leasehold_core::grantor::OpenTenureError;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::WallClock;
use leasehold_core::token::{Number, plausible_max};
use leasehold_server::backup::{
    self, BackupChunks, BackupFormatError, RestoreError, RestoreOptions, restore, restore_onto,
};
use leasehold_server::journal::file::{Directory, FileJournal};
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{Journal, JournalLocation, OpenError};
use leasehold_server::recovery::Backlog;
use leasehold_server::server::start;
use leasehold_server::snapshotter::Snapshotter;
use leasehold_testkit::depth::depth;
use proptest::prelude::*;
use snapshot_support::{GrantorHarness, ReplayedState, WALL, at, poll_ready, snapshot_config, snapshot_metrics};

/// A backup of a cluster in which `kept` is held with the returned token, taken this many milliseconds after [`WALL`].
fn make_backup(ms: u64) -> (Vec<u8>, Number) {
    let memory = Memory::new();
    let journal = poll_ready(memory.open(&mut ReplayedState::default())).expect("the memory journal works").journal;
    let mut harness = GrantorHarness::open(ReplayedState::default().recovered, journal);
    let number = harness.acquire(None, "kept", "w");
    harness.acquire_and_release(None, 0..30);
    let mut snapshotter =
        Snapshotter::new(harness.journal.snapshots(), snapshot_config(0), Backlog::default(), snapshot_metrics());
    let snapshot = poll_ready(snapshotter.snapshot()).expect("the memory journal works");
    (BackupChunks::of(snapshot, WallClock(WALL + ms)).flatten().collect(), number)
}

fn open_on(disk: &SimulatedDisk) -> Result<(FileJournal<SimulatedDisk>, ReplayedState), OpenError> {
    let mut replayed = ReplayedState::default();
    FileJournal::open_on(disk.clone(), &small_segments(), &mut replayed).map(|opened| (opened.journal, replayed))
}

fn write_backup(folder: &Path, bytes: &[u8]) -> PathBuf {
    let file = folder.join("a.backup");
    std::fs::write(&file, bytes).expect("a temporary file");
    file
}

#[test]
fn a_restored_cluster_issues_higher_tokens_renews_no_lease_and_is_quarantined() {
    let (bytes, held) = make_backup(1_000);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let disk = SimulatedDisk::new();
    let restored = restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(2_000))
        .expect("the disk is empty");
    assert_eq!(restored.quarantine_ms, 600_000);
    assert_eq!(restored.position, backup.header.position + 1);
    assert!(restored.floor > backup.header.counter && restored.incarnation != backup.header.incarnation);
    let (journal, replayed) = open_on(&disk).expect("the restored journal opens");
    assert_eq!(journal.next(), restored.position + 1);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let status = harness.grantor.status();
    assert_eq!((status.incarnation, status.held), (restored.incarnation, 0));
    assert_eq!(status.quarantine, Some((600_000, false)), "the remaining quarantine is reported");
    let refused = harness.turn(None, Command::Release(LeaseRef::by_name("kept", held)));
    assert!(matches!(refused, Ok(Answer::Refused(Refusal::Lost(EndReason::Restored)))), "{refused:?}");
    harness.turn(None, Command::WaiveQuarantine { comment: "a test" }).expect("the disk works");
    assert!(harness.acquire(None, "kept", "w").get() > restored.floor);
}

#[test]
fn restoring_the_same_backup_again_issues_still_higher_tokens() {
    let (bytes, _) = make_backup(0);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let mut highest = backup.header.counter;
    for ms in [1_000, 2_000, 3_000] {
        let disk = SimulatedDisk::new();
        restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(ms)).expect("the disk is empty");
        let (journal, replayed) = open_on(&disk).expect("the restored journal opens");
        let mut harness = GrantorHarness::open(replayed.recovered, journal);
        harness.ms = ms;
        harness.turn(None, Command::WaiveQuarantine { comment: "a test" }).expect("the disk works");
        let number = harness.acquire(None, "kept", "w").get();
        assert!(number > highest, "{number} after {highest}");
        highest = number;
    }
}

#[test]
fn a_clock_behind_the_backup_needs_a_floor_above_the_known_counter() {
    let (bytes, _) = make_backup(60_000);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let try_restore = |floor: Option<u64>| {
        let options = RestoreOptions { floor: floor.and_then(Number::new), ..RestoreOptions::default() };
        restore_onto(&SimulatedDisk::new(), &small_segments(), &backup, &options, at(50_000))
    };
    let clock_behind = OpenTenureError::ClockBehind { backup: WallClock(WALL + 60_000) };
    assert_eq!(try_restore(None), Err(RestoreError::Tenure(clock_behind)));
    let known = backup.header.counter;
    assert_eq!(try_restore(Some(known)), Err(RestoreError::Tenure(OpenTenureError::FloorTooLow { known })));
    assert!(try_restore(Some(known + 1)).expect("the floor is above the counter").floor > known);
}

#[test]
fn a_floor_that_no_fence_would_accept_is_refused_before_any_write() {
    let (bytes, _) = make_backup(60_000);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let now = at(90_000);
    let disk = SimulatedDisk::new();
    let try_restore = |options: RestoreOptions| restore_onto(&disk, &small_segments(), &backup, &options, now);
    let highest = plausible_max(now.wall);
    let month = plausible_max(WallClock(now.wall.0 + 30 * 24 * 3_600_000));
    for number in [i64::MAX as u64, month, highest] {
        let floor = Number::new(number).expect("a number below 2^63");
        let by_mark = RestoreOptions { marks: vec![(backup.header.cluster, floor)], ..RestoreOptions::default() };
        for options in [RestoreOptions { floor: Some(floor), ..RestoreOptions::default() }, by_mark] {
            let error = try_restore(options).expect_err("no fence accepts a higher number");
            assert_eq!(
                (error.code(), error.clone()),
                ("TOKEN_IMPLAUSIBLE", RestoreError::Implausible { floor, max: highest })
            );
            assert!(disk.contents().is_empty(), "nothing was written");
        }
    }
    let floor = Number::new(highest - 1);
    let restored = try_restore(RestoreOptions { floor, ..RestoreOptions::default() }).expect("one number is left");
    assert!(restored.floor >= highest - 1);
}

#[test]
fn a_truncated_or_damaged_backup_is_refused_before_any_write() {
    let (bytes, _) = make_backup(0);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data = folder.path().join("data");
    let assert_refused = |bytes: &[u8], case: &str| {
        let file = write_backup(folder.path(), bytes);
        match restore(&file, &small_directory(&data), &RestoreOptions::default()) {
            Err(error @ (RestoreError::Corrupt { .. } | RestoreError::Newer { .. })) => {
                assert!(error.to_string().contains("a.backup"), "{case}: {error}");
            }
            other => panic!("{case}: {other:?}"),
        }
        assert!(!data.exists(), "{case}: nothing was written");
    };
    for cut in [0, 1, backup::HEADER_BYTES - 1, backup::HEADER_BYTES, bytes.len() / 2, bytes.len() - 1] {
        assert_refused(&bytes[..cut], &format!("truncated at {cut}"));
    }
    for at in (0..bytes.len()).step_by(depth(97, 13, 1)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        assert_refused(&flipped, &format!("flipped at {at}"));
    }
    assert_refused(&[&bytes[..], b"more"].concat(), "trailing bytes");
    restore(&write_backup(folder.path(), &bytes), &small_directory(&data), &RestoreOptions::default())
        .expect("the intact backup is restored");
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_unchanged() {
    let (bytes, _) = make_backup(0);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = write_backup(folder.path(), &bytes);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a temporary directory");
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("the test owns the directory");
    std::fs::write(data.join("notes.txt"), "mine").expect("the test owns the directory");
    let refused = restore(&file, &small_directory(&data), &RestoreOptions::default());
    assert_eq!(refused, Err(RestoreError::NotEmpty { path: data.clone(), found: "notes.txt".to_owned() }));
    assert_eq!(std::fs::read_dir(&data).expect("the directory exists").count(), 1);
    std::fs::remove_file(data.join("notes.txt")).expect("the test owns the directory");
    restore(&file, &small_directory(&data), &RestoreOptions::default()).expect("an empty directory is accepted");
    let second_restore = restore(&file, &small_directory(&data), &RestoreOptions::default());
    assert!(matches!(second_restore, Err(RestoreError::NotEmpty { .. })), "{second_restore:?}");
    assert!(restore(&folder.path().join("none"), &small_directory(&data), &RestoreOptions::default()).is_err());
}

#[test]
fn a_crash_at_any_step_of_a_restore_leaves_an_empty_a_refused_or_a_restored_journal() {
    let (bytes, _) = make_backup(0);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let disk = SimulatedDisk::new();
    let images = record(&disk, || {
        restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(1_000))
            .expect("the disk is empty");
    });
    let (mut empty, mut refused, mut restored) = (0, 0, 0);
    let mut check = |disk: &SimulatedDisk, context: &str| match open_on(disk) {
        Err(error) => {
            assert!(["CONFIG", "CORRUPT"].contains(&error.code()), "{context}: {error}");
            refused += 1;
        }
        Ok((_, replayed)) => match replayed.recovered.info() {
            // As before the restore: the disk is empty, and a new cluster would start.
            None => empty += 1,
            Some(info) => {
                assert_ne!(info.incarnation, backup.header.incarnation, "{context}");
                assert!(info.counter > backup.header.counter, "{context}");
                restored += 1;
            }
        },
    };
    for (step, image) in images.iter().enumerate() {
        check(&SimulatedDisk::from(image.clone()), &format!("killed at step {step}"));
        for (pick, crash) in image.crashes(depth(16, 128, 4_096)).iter().enumerate() {
            check(crash, &format!("power lost at step {step}, state {pick}"));
        }
    }
    assert!(empty > 0 && refused > 0 && restored > 0, "{empty}, {refused}, {restored}");
    // The disk looks empty only until the restore has written its marker.
    assert!(empty < 10, "{empty}");
}

#[test]
fn a_full_disk_aborts_a_restore_and_leaves_the_disk_empty() {
    let (bytes, _) = make_backup(0);
    let backup = backup::decode(&bytes).expect("the backup is intact");
    let disk = SimulatedDisk::new();
    disk.limit(Some(4_100));
    let full = restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(1_000));
    assert!(matches!(full, Err(RestoreError::Journal(OpenError::Full { .. }))), "{full:?}");
    assert_eq!(disk.contents().into_keys().collect::<Vec<_>>(), Vec::<String>::new());
    disk.limit(None);
    restore_onto(&disk, &small_segments(), &backup, &RestoreOptions::default(), at(1_000))
        .expect("the disk has space again");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(backup::decode(&bytes).is_err());
        let mut framed = b"LHBACKUP\x01\0\0\0\0\0\0\0".to_vec();
        framed.extend(&bytes);
        let corrupt = matches!(backup::decode(&framed), Err(BackupFormatError::Corrupt { .. }));
        prop_assert!(corrupt);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_intact_and_contains_every_change_acknowledged_before() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let server =
        start(small_directory(folder.path().join("data")), free_port_config()).await.expect("the server starts");
    let address = server.address;
    let (status, grant) = http(address, "POST", "/v1/leases/before:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{grant}");
    let load = tokio::spawn(async move {
        for turn in 0.. {
            let (status, reply) =
                http(address, "POST", &format!("/v1/leases/load/{turn}:acquire"), r#"{"holder":"w2","ttl":"60s"}"#)
                    .await;
            assert_eq!(status, 200, "{reply}");
        }
    });
    let mut last = 0;
    for round in 0..5 {
        // Each round makes at least one new change, however slow the load is.
        let new = format!("/v1/leases/new/{round}:acquire");
        assert_eq!(http(address, "POST", &new, r#"{"holder":"w3","ttl":"60s"}"#).await.0, 200);
        let bytes = http_client::download(address, "/v1/backup").await;
        let backup = backup::decode(&bytes).expect("the backup is intact during the load");
        assert!(backup.header.position > last, "a later backup contains more");
        last = backup.header.position;
        let number: u64 = field(&grant, "token_number").parse().expect("a number");
        assert!(backup.header.counter >= number);
        let file = folder.path().join("a.backup");
        std::fs::write(&file, &bytes).expect("a temporary file");
        let into = Directory::new(folder.path().join(format!("restored-{round}")));
        let restored = restore(&file, &into, &RestoreOptions::default()).expect("an empty directory");
        assert!(restored.floor >= number);
    }
    load.abort();
    assert!(load.await.is_err_and(|ended| ended.is_cancelled()), "every acquire during the backups was granted");
    server.stop().await;
    let last = start(Directory::new(folder.path().join("restored-4")), free_port_config())
        .await
        .expect("the restored journal opens");
    let (_, status) = http(last.address, "GET", "/v1/status", "").await;
    assert!(status.contains("\"quarantine_ms\":") && !status.contains("\"quarantine_ms\":null"), "{status}");
    let (code, reply) = http(last.address, "POST", "/v1/leases/x:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await;
    assert_eq!((code, field(&reply, "code")), (503, "QUARANTINED".to_owned()), "{reply}");
    let token = field(&grant, "token");
    let body = format!(r#"{{"token":"{token}"}}"#);
    let (code, reply) = http(last.address, "POST", "/v1/leases/before:renew", &body).await;
    assert_eq!((code, field(&reply, "reason")), (410, "restored".to_owned()), "{reply}");
    last.stop().await;
}
