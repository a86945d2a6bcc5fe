//! The snapshotter bounds the log during appends, and no crash or full disk loses state.

mod journal_support;
mod snapshot_support;

use std::sync::atomic::{AtomicUsize, Ordering};

use journal_support::simulated_disk::{DiskImage, SimulatedDisk, record};
use journal_support::{small_directory, small_segments};
use leasehold_server::journal::file::{Directory, FileJournal};
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{Journal, JournalError, JournalLocation, SnapshotStore};
use leasehold_server::recovery::Backlog;
use leasehold_server::snapshotter::{SnapshotConfig, SnapshotError, Snapshotter, start};
use leasehold_testkit::depth::depth;
use snapshot_support::{GrantorHarness, ReplayedState, poll_ready, snapshot_config, snapshot_metrics};

fn open_in(directory: &Directory) -> (FileJournal<leasehold_server::journal::file::LocalDisk>, ReplayedState) {
    let mut replayed = ReplayedState::default();
    let opened = poll_ready(directory.open(&mut replayed)).expect("the directory opens");
    (opened.journal, replayed)
}

fn open_on(disk: &SimulatedDisk) -> (FileJournal<SimulatedDisk>, ReplayedState) {
    let mut replayed = ReplayedState::default();
    let opened = FileJournal::open_on(disk.clone(), &small_segments(), &mut replayed);
    (opened.unwrap_or_else(|error| panic!("{error}")).journal, replayed)
}

fn new_snapshotter<J: Journal>(journal: &J) -> Snapshotter<J::Snapshots> {
    Snapshotter::new(journal.snapshots(), snapshot_config(0), Backlog::default(), snapshot_metrics())
}

#[test]
fn the_log_is_trimmed_during_appends_and_a_reopen_recovers_the_same_state() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = small_directory(folder.path().join("data"));
    let (journal, replayed) = open_in(&directory);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let snapshotter = start(Snapshotter::new(
        harness.journal.snapshots(),
        snapshot_config(8 << 10),
        Backlog::default(),
        snapshot_metrics(),
    ));
    let handle = snapshotter.handle().clone();
    harness.acquire_and_release(Some(&handle), 0..300);
    // The background thread takes the first snapshot, even on a slow machine.
    while poll_ready(harness.journal.snapshots().newest()).expect("the snapshot is readable").is_none() {
        std::thread::yield_now();
    }
    harness.acquire_and_release(Some(&handle), 300..600);
    snapshotter.stop();
    let (state, next) = (harness.grantor.state_hash(), harness.journal.next());
    drop((harness, handle));
    let (journal, replayed) = open_in(&directory);
    assert_eq!(journal.next(), next);
    assert_eq!(replayed.recovered.state_hash(), state, "equal records produce equal state (V1)");
    assert!(replayed.snapshot.is_some_and(|sequence| sequence > 1), "the replay starts from a snapshot");
}

#[test]
fn a_long_replay_at_startup_triggers_a_snapshot_without_any_append() {
    let memory = Memory::new();
    let journal = poll_ready(memory.open(&mut ReplayedState::default())).expect("the memory journal works").journal;
    let mut harness = GrantorHarness::open(ReplayedState::default().recovered, journal);
    harness.acquire_and_release(None, 0..50);
    drop(harness);
    let mut replayed = ReplayedState::default();
    let journal = poll_ready(memory.open(&mut replayed)).expect("the memory journal works").journal;
    let backlog = Backlog { snapshot: 0, bytes: replayed.bytes, batches: replayed.batches };
    let ten_batches = SnapshotConfig { log_batches: 10, ..snapshot_config(u64::MAX) };
    let snapshotter = start(Snapshotter::new(journal.snapshots(), ten_batches, backlog, snapshot_metrics()));
    while poll_ready(journal.snapshots().newest()).expect("the snapshot is readable").is_none() {
        std::thread::yield_now();
    }
    assert_eq!(snapshotter.handle().backlog_bytes(), 0);
    snapshotter.stop();
}

#[test]
fn the_log_is_trimmed_only_up_to_the_older_of_two_snapshots() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = new_snapshotter(&harness.journal);
    let mut older = 0;
    for round in 0..6 {
        harness.acquire_and_release(None, round * 40..(round + 1) * 40);
        let newest = poll_ready(snapshotter.snapshot()).expect("the disk works").sequence;
        assert_eq!(newest + 1, harness.journal.next());
        // Every batch after the older snapshot is still readable.
        poll_ready(harness.journal.snapshots().tail(older + 1, &mut |_, _| std::ops::ControlFlow::Continue(())))
            .expect("the batches are stored");
        older = newest;
    }
    let segments = disk.contents().into_keys().filter(|name| name.starts_with("segment-")).collect::<Vec<_>>();
    assert!(!segments.contains(&"segment-00000000000000000001".to_owned()), "{segments:?}");
}

#[test]
fn a_damaged_newest_snapshot_loses_nothing() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = new_snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..40);
    poll_ready(snapshotter.snapshot()).expect("the disk works");
    harness.acquire_and_release(None, 40..80);
    let newest = poll_ready(snapshotter.snapshot()).expect("the disk works").sequence;
    disk.tamper(&format!("snapshot-{newest:020}"), |bytes| bytes[100] ^= 1);
    harness.acquire_and_release(None, 80..120);
    let newer = poll_ready(snapshotter.snapshot()).expect("the log after the older snapshot is complete");
    assert_eq!(newer.sequence + 1, harness.journal.next());
    let state = harness.grantor.state_hash();
    drop((harness, snapshotter));
    let (_, replayed) = open_on(&disk);
    assert_eq!((replayed.recovered.state_hash(), replayed.batches), (state, 0));
}

#[test]
fn a_crash_at_any_step_of_saving_and_trimming_loses_nothing() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = new_snapshotter(&harness.journal);
    for round in 0..2 {
        harness.acquire_and_release(None, round * 30..(round + 1) * 30);
        poll_ready(snapshotter.snapshot()).expect("the disk works");
    }
    harness.acquire_and_release(None, 60..90);
    let (state, next) = (harness.grantor.state_hash(), harness.journal.next());
    let images = record(&disk, || drop(poll_ready(snapshotter.snapshot()).expect("the disk works")));
    drop((harness, snapshotter));
    assert!(images.len() > 5, "the snapshot is written and renamed, and the log trimmed");
    let mut states = 0;
    let check = |disk: &SimulatedDisk, context: &str| {
        let (journal, replayed) = open_on(disk);
        assert_eq!(journal.next(), next, "{context}");
        assert_eq!(replayed.recovered.state_hash(), state, "{context}");
        // The snapshotter works after the recovery too.
        poll_ready(new_snapshotter(&journal).snapshot()).unwrap_or_else(|error| panic!("{context}: {error}"));
    };
    for (step, image) in images.iter().enumerate() {
        check(&SimulatedDisk::from(image.clone()), &format!("killed at step {step}"));
        for (pick, crash) in DiskImage::crashes(image, depth(16, 128, 4_096)).iter().enumerate() {
            check(crash, &format!("power lost at step {step}, state {pick}"));
            states += 1;
        }
    }
    assert!(states > images.len());
}

#[test]
fn a_failed_sync_of_the_snapshotter_fails_later_appends_too() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = new_snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..10);
    disk.fail_sync(0);
    assert!(matches!(poll_ready(snapshotter.snapshot()), Err(SnapshotError::Journal(JournalError::Failed { .. }))));
    let acquire = leasehold_core::command::Acquire::exclusive("late", "w", 1_000);
    let refused = harness.turn(None, leasehold_core::command::Command::Acquire(acquire));
    assert!(matches!(refused, Err(JournalError::Failed { .. })), "{refused:?}");
}

#[test]
fn a_failed_snapshot_is_retried_after_a_pause_although_turns_notify() {
    static FAILURES: AtomicUsize = AtomicUsize::new(0);
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    harness.acquire_and_release(None, 0..10);
    disk.limit(Some(disk.used()));
    let warn = |_: &str| {
        FAILURES.fetch_add(1, Ordering::Relaxed);
    };
    let config = SnapshotConfig { warn, ..snapshot_config(0) };
    let snapshotter =
        start(Snapshotter::new(harness.journal.snapshots(), config, Backlog::default(), snapshot_metrics()));
    let handle = snapshotter.handle().clone();
    // Turns notify before, during and after the first attempt.
    while FAILURES.load(Ordering::Relaxed) == 0 {
        handle.appended(1);
    }
    (0..1_000).for_each(|_| handle.appended(1));
    // The thread works in order: after this reply it has seen every notification. The request itself fails once.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert!(runtime.block_on(handle.write_audit()).is_err(), "the disk is full");
    assert_eq!(FAILURES.load(Ordering::Relaxed), 2, "the next attempt comes after a pause of ten seconds");
    snapshotter.stop();
}

#[test]
fn a_full_disk_fails_the_snapshot_and_nothing_else() {
    let disk = SimulatedDisk::new();
    let (journal, replayed) = open_on(&disk);
    let mut harness = GrantorHarness::open(replayed.recovered, journal);
    let mut snapshotter = new_snapshotter(&harness.journal);
    harness.acquire_and_release(None, 0..10);
    disk.limit(Some(disk.used()));
    assert_eq!(poll_ready(snapshotter.snapshot()).unwrap_err(), SnapshotError::Journal(JournalError::Full));
    harness.acquire_and_release(None, 10..11);
    disk.limit(None);
    poll_ready(snapshotter.snapshot()).expect("the disk has space again");
    let state = harness.grantor.state_hash();
    drop((harness, snapshotter));
    assert_eq!(open_on(&disk).1.recovered.state_hash(), state);
}
