//! The keeper: the log stays short while appends go on, and whatever stops it loses nothing.

mod journal_support;
mod snapshot_support;

use journal_support::simulated_disk::{Power, World as Disk, record};
use journal_support::{depth, small, small_in};
use leasehold_server::journal::file::{Directory, FileJournal};
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{Journal, JournalError, JournalLocation, SnapshotStore};
use leasehold_server::recovery::Backlog;
use leasehold_server::snapshotter::{SnapshotConfig, SnapshotError, Snapshotter, start};
use snapshot_support::{Folded, World, keep, meter, now};

fn open_in(directory: &Directory) -> (FileJournal<leasehold_server::journal::file::LocalDisk>, Folded) {
    let mut folded = Folded::default();
    let opened = now(directory.open(&mut folded)).expect("the directory is well");
    (opened.journal, folded)
}

fn open_on(power: &Power) -> (FileJournal<Power>, Folded) {
    let mut folded = Folded::default();
    let opened = FileJournal::open_on(power.clone(), &small(), &mut folded);
    (opened.unwrap_or_else(|error| panic!("{error}")).journal, folded)
}

fn keeper<J: Journal>(journal: &J) -> Snapshotter<J::Snapshots> {
    Snapshotter::new(journal.snapshots(), keep(0), Backlog::default(), meter())
}

#[test]
fn the_log_stays_short_while_appends_run_and_the_state_is_the_same_after_a_reopen() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let directory = small_in(folder.path().join("data"));
    let (journal, folded) = open_in(&directory);
    let mut world = World::open(folded.recovered, journal);
    let keeper = start(world.journal.snapshots(), keep(8 << 10), Backlog::default(), meter());
    let keeping = keeper.handle().clone();
    world.work(Some(&keeping), 0..300);
    // The first snapshot comes by itself, however slow this machine is.
    while now(world.journal.snapshots().newest()).expect("it can be read").is_none() {
        std::thread::yield_now();
    }
    world.work(Some(&keeping), 300..600);
    keeper.stop();
    let (state, next) = (world.grantor.state_hash(), world.journal.next());
    drop((world, keeping));
    let (journal, folded) = open_in(&directory);
    assert_eq!(journal.next(), next);
    assert_eq!(folded.recovered.state_hash(), state, "the same records give the same state (V1)");
    assert!(folded.snapshot.is_some_and(|sequence| sequence > 1), "an open begins at a snapshot");
}

#[test]
fn a_start_that_replayed_too_much_is_followed_by_a_snapshot_although_nothing_is_appended() {
    let memory = Memory::new();
    let journal = now(memory.open(&mut Folded::default())).expect("memory is well").journal;
    let mut world = World::open(Folded::default().recovered, journal);
    world.work(None, 0..50);
    drop(world);
    let mut folded = Folded::default();
    let journal = now(memory.open(&mut folded)).expect("memory is well").journal;
    let behind = Backlog { snapshot: 0, bytes: folded.bytes, batches: folded.batches };
    let few = SnapshotConfig { log_batches: 10, ..keep(u64::MAX) };
    let keeper = start(journal.snapshots(), few, behind, meter());
    while now(journal.snapshots().newest()).expect("it can be read").is_none() {
        std::thread::yield_now();
    }
    assert_eq!(keeper.handle().backlog_bytes(), 0);
    keeper.stop();
}

#[test]
fn the_log_is_cut_only_behind_the_older_of_two_snapshots() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeper = keeper(&world.journal);
    let mut older = 0;
    for round in 0..6 {
        world.work(None, round * 40..(round + 1) * 40);
        let newest = now(keeper.snapshot()).expect("the disk is well").sequence;
        assert_eq!(newest + 1, world.journal.next());
        // Whatever follows the older one is still told.
        now(world.journal.snapshots().tail(older + 1, &mut |_, _| std::ops::ControlFlow::Continue(()))).expect("kept");
        older = newest;
    }
    let segments = power.contents().into_keys().filter(|name| name.starts_with("segment-")).collect::<Vec<_>>();
    assert!(!segments.contains(&"segment-00000000000000000001".to_owned()), "{segments:?}");
}

#[test]
fn a_newest_snapshot_that_is_damaged_meanwhile_costs_nothing() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeper = keeper(&world.journal);
    world.work(None, 0..40);
    now(keeper.snapshot()).expect("the disk is well");
    world.work(None, 40..80);
    let newest = now(keeper.snapshot()).expect("the disk is well").sequence;
    power.tamper(&format!("snapshot-{newest:020}"), |bytes| bytes[100] ^= 1);
    world.work(None, 80..120);
    let again = now(keeper.snapshot()).expect("the log since the older snapshot tells the same");
    assert_eq!(again.sequence + 1, world.journal.next());
    let state = world.grantor.state_hash();
    drop((world, keeper));
    let (_, folded) = open_on(&power);
    assert_eq!((folded.recovered.state_hash(), folded.batches), (state, 0));
}

#[test]
fn a_kill_at_any_point_of_saving_and_trimming_loses_nothing() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeps = keeper(&world.journal);
    for round in 0..2 {
        world.work(None, round * 30..(round + 1) * 30);
        now(keeps.snapshot()).expect("the disk is well");
    }
    world.work(None, 60..90);
    let (state, next) = (world.grantor.state_hash(), world.journal.next());
    let worlds = record(&power, || drop(now(keeps.snapshot()).expect("the disk is well")));
    drop((world, keeps));
    assert!(worlds.len() > 5, "a snapshot is written, named, and the log is cut");
    let mut states = 0;
    let check = |power: &Power, context: &str| {
        let (journal, folded) = open_on(power);
        assert_eq!(journal.next(), next, "{context}");
        assert_eq!(folded.recovered.state_hash(), state, "{context}");
        // And the keeper can go on from there.
        now(keeper(&journal).snapshot()).unwrap_or_else(|reason| panic!("{context}: {reason}"));
    };
    for (step, world) in worlds.iter().enumerate() {
        check(&Power::from(world.clone()), &format!("killed at step {step}"));
        for (pick, crash) in Disk::crashes(world, depth(16, 128, 4_096)).iter().enumerate() {
            check(crash, &format!("no power at step {step}, state {pick}"));
            states += 1;
        }
    }
    assert!(states > worlds.len());
}

#[test]
fn a_failed_sync_of_the_keeper_is_final_for_the_turns_too() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeper = keeper(&world.journal);
    world.work(None, 0..10);
    power.fail_sync(0);
    assert!(matches!(now(keeper.snapshot()), Err(SnapshotError::Journal(JournalError::Failed { .. }))));
    let acquire = leasehold_core::command::Acquire::exclusive("late", "w", 1_000);
    let refused = world.turn(None, leasehold_core::command::Command::Acquire(acquire));
    assert!(matches!(refused, Err(JournalError::Failed { .. })), "{refused:?}");
}

#[test]
fn a_full_disk_stops_the_snapshot_and_nothing_else() {
    let power = Power::new();
    let (journal, folded) = open_on(&power);
    let mut world = World::open(folded.recovered, journal);
    let mut keeper = keeper(&world.journal);
    world.work(None, 0..10);
    power.limit(Some(power.used()));
    assert_eq!(now(keeper.snapshot()).unwrap_err(), SnapshotError::Journal(JournalError::Full));
    world.work(None, 10..11);
    power.limit(None);
    now(keeper.snapshot()).expect("there is room again");
    let state = world.grantor.state_hash();
    drop((world, keeper));
    assert_eq!(open_on(&power).1.recovered.state_hash(), state);
}
