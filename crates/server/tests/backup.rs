//! Backup while serving, and restore: higher tokens, nothing renewable, a quarantine, and never half of it (T5).

mod http_client;
mod journal_support;
mod snapshot_support;

use std::path::{Path, PathBuf};

use http_client::{field, http, on_a_free_port};
use journal_support::simulated_disk::{Power, record};
use journal_support::{depth, small, small_in};
use leasehold_core::command::{Answer, Command, LeaseRef};
use leasehold_core::grantor::OpenTenureError;
use leasehold_core::lease::EndReason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::WallClock;
use leasehold_core::token::Number;
use leasehold_server::backup::{
    self, BackupChunks, BackupFormatError, RestoreError, RestoreOptions, restore, restore_onto,
};
use leasehold_server::journal::file::{Directory, FileJournal};
use leasehold_server::journal::memory::Memory;
use leasehold_server::journal::{Journal, JournalLocation, OpenError};
use leasehold_server::recovery::Backlog;
use leasehold_server::server::start;
use leasehold_server::snapshotter::Snapshotter;
use proptest::prelude::*;
use snapshot_support::{Folded, WALL, World, at, keep, meter, now};

/// A backup of a cluster in which somebody holds `kept` under this token, taken so many milliseconds after [`WALL`].
fn backed_up(ms: u64) -> (Vec<u8>, Number) {
    let memory = Memory::new();
    let journal = now(memory.open(&mut Folded::default())).expect("memory is well").journal;
    let mut world = World::open(Folded::default().recovered, journal);
    let number = world.acquire(None, "kept", "w");
    world.work(None, 0..30);
    let mut keeper = Snapshotter::new(world.journal.snapshots(), keep(0), Backlog::default(), meter());
    let taken = now(keeper.snapshot()).expect("memory is well");
    (BackupChunks::of(taken, WallClock(WALL + ms)).flatten().collect(), number)
}

fn open_on(power: &Power) -> Result<(FileJournal<Power>, Folded), OpenError> {
    let mut folded = Folded::default();
    FileJournal::open_on(power.clone(), &small(), &mut folded).map(|opened| (opened.journal, folded))
}

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let file = folder.join("a.backup");
    std::fs::write(&file, bytes).expect("a temporary file");
    file
}

#[test]
fn a_restored_cluster_gives_higher_tokens_renews_nothing_and_is_quarantined() {
    let (bytes, held) = backed_up(1_000);
    let backup = backup::decode(&bytes).expect("it is whole");
    let power = Power::new();
    let restored =
        restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(2_000)).expect("the disk is empty");
    assert_eq!(restored.quarantine_ms, 600_000);
    assert_eq!(restored.position, backup.header.position + 1);
    assert!(restored.floor > backup.header.counter && restored.incarnation != backup.header.incarnation);
    let (journal, folded) = open_on(&power).expect("it serves");
    assert_eq!(journal.next(), restored.position + 1);
    let mut world = World::open(folded.recovered, journal);
    let status = world.grantor.status();
    assert_eq!((status.incarnation, status.held), (restored.incarnation, 0));
    assert_eq!(status.quarantine, Some((600_000, false)), "the time left is told");
    let refused = world.turn(None, Command::Release(LeaseRef::by_name("kept", held)));
    assert!(matches!(refused, Ok(Answer::Refused(Refusal::Lost(EndReason::Restored)))), "{refused:?}");
    world.turn(None, Command::WaiveQuarantine { comment: "a test" }).expect("the disk is well");
    assert!(world.acquire(None, "kept", "w").get() > restored.floor);
}

#[test]
fn the_same_backup_restored_again_gives_still_higher_tokens() {
    let (bytes, _) = backed_up(0);
    let backup = backup::decode(&bytes).expect("it is whole");
    let mut highest = backup.header.counter;
    for ms in [1_000, 2_000, 3_000] {
        let power = Power::new();
        restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(ms)).expect("the disk is empty");
        let (journal, folded) = open_on(&power).expect("it serves");
        let mut world = World::open(folded.recovered, journal);
        world.ms = ms;
        world.turn(None, Command::WaiveQuarantine { comment: "a test" }).expect("the disk is well");
        let number = world.acquire(None, "kept", "w").get();
        assert!(number > highest, "{number} after {highest}");
        highest = number;
    }
}

#[test]
fn a_clock_behind_the_backup_needs_a_floor_and_a_floor_must_be_above_what_is_known() {
    let (bytes, _) = backed_up(60_000);
    let backup = backup::decode(&bytes).expect("it is whole");
    let try_it = |floor: Option<u64>| {
        let asked = RestoreOptions { floor: floor.and_then(Number::new), ..RestoreOptions::default() };
        restore_onto(&Power::new(), &small(), &backup, &asked, at(50_000))
    };
    let behind = OpenTenureError::ClockBehind { backup: WallClock(WALL + 60_000) };
    assert_eq!(try_it(None), Err(RestoreError::Tenure(behind)));
    let known = backup.header.counter;
    assert_eq!(try_it(Some(known)), Err(RestoreError::Tenure(OpenTenureError::FloorTooLow { known })));
    assert!(try_it(Some(known + 1)).expect("a floor above all covers it").floor > known);
}

#[test]
fn a_cut_or_flipped_backup_is_refused_before_anything_is_touched() {
    let (bytes, _) = backed_up(0);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data = folder.path().join("data");
    let refused = |bytes: &[u8], what: &str| {
        let file = write(folder.path(), bytes);
        match restore(&file, &small_in(&data), &RestoreOptions::default()) {
            Err(error @ (RestoreError::Corrupt { .. } | RestoreError::Newer { .. })) => {
                assert!(error.to_string().contains("a.backup"), "{what}: {error}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert!(!data.exists(), "{what}: nothing was touched");
    };
    for cut in [0, 1, backup::HEADER_BYTES - 1, backup::HEADER_BYTES, bytes.len() / 2, bytes.len() - 1] {
        refused(&bytes[..cut], &format!("cut at {cut}"));
    }
    for at in (0..bytes.len()).step_by(depth(97, 13, 1)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        refused(&flipped, &format!("flipped at {at}"));
    }
    refused(&[&bytes[..], b"more"].concat(), "longer");
    restore(&write(folder.path(), &bytes), &small_in(&data), &RestoreOptions::default())
        .expect("the whole one is restored");
}

#[test]
fn a_directory_with_anything_in_it_is_refused_and_left_as_it_was() {
    let (bytes, _) = backed_up(0);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = write(folder.path(), &bytes);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a temporary directory");
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("our own");
    std::fs::write(data.join("notes.txt"), "mine").expect("our own");
    let refused = restore(&file, &small_in(&data), &RestoreOptions::default());
    assert_eq!(refused, Err(RestoreError::NotEmpty { path: data.clone(), found: "notes.txt".to_owned() }));
    assert_eq!(std::fs::read_dir(&data).expect("still there").count(), 1);
    std::fs::remove_file(data.join("notes.txt")).expect("our own");
    restore(&file, &small_in(&data), &RestoreOptions::default()).expect("an empty directory is taken");
    let again = restore(&file, &small_in(&data), &RestoreOptions::default());
    assert!(matches!(again, Err(RestoreError::NotEmpty { .. })), "{again:?}");
    assert!(restore(&folder.path().join("none"), &small_in(&data), &RestoreOptions::default()).is_err());
}

#[test]
fn a_crash_anywhere_in_a_restore_leaves_nothing_that_serves_as_if_it_had_not_been() {
    let (bytes, _) = backed_up(0);
    let backup = backup::decode(&bytes).expect("it is whole");
    let power = Power::new();
    let worlds = record(&power, || {
        restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(1_000)).expect("the disk is empty");
    });
    let (mut untouched, mut refused, mut restored) = (0, 0, 0);
    let mut check = |power: &Power, context: &str| match open_on(power) {
        Err(error) => {
            assert!(["CONFIG", "CORRUPT"].contains(&error.code()), "{context}: {error}");
            refused += 1;
        }
        Ok((_, folded)) => match folded.recovered.info() {
            // As before the command: nothing was there, and a new cluster would begin.
            None => untouched += 1,
            Some(about) => {
                assert_ne!(about.incarnation, backup.header.incarnation, "{context}");
                assert!(about.counter > backup.header.counter, "{context}");
                restored += 1;
            }
        },
    };
    for (step, world) in worlds.iter().enumerate() {
        check(&Power::from(world.clone()), &format!("killed at step {step}"));
        for (pick, crash) in world.crashes(depth(16, 128, 4_096)).iter().enumerate() {
            check(crash, &format!("no power at step {step}, state {pick}"));
        }
    }
    assert!(untouched > 0 && refused > 0 && restored > 0, "{untouched}, {refused}, {restored}");
    // Only before the mark is there does a directory look untouched.
    assert!(untouched < 10, "{untouched}");
}

#[test]
fn a_full_disk_breaks_a_restore_off_and_leaves_the_disk_empty() {
    let (bytes, _) = backed_up(0);
    let backup = backup::decode(&bytes).expect("it is whole");
    let power = Power::new();
    power.limit(Some(4_100));
    let full = restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(1_000));
    assert!(matches!(full, Err(RestoreError::Journal(OpenError::Full { .. }))), "{full:?}");
    assert_eq!(power.contents().into_keys().collect::<Vec<_>>(), Vec::<String>::new());
    power.limit(None);
    restore_onto(&power, &small(), &backup, &RestoreOptions::default(), at(1_000)).expect("there is room again");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_backup_and_panic_nobody(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(backup::decode(&bytes).is_err());
        let mut framed = b"LHBACKUP\x01\0\0\0\0\0\0\0".to_vec();
        framed.extend(&bytes);
        let damaged = matches!(backup::decode(&framed), Err(BackupFormatError::Corrupt { .. }));
        prop_assert!(damaged);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_whole_and_holds_all_that_was_told_before_it() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let running = start(small_in(folder.path().join("data")), on_a_free_port()).await.expect("it starts");
    let at = running.address;
    let (status, grant) = http(at, "POST", "/v1/leases/before:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await;
    assert_eq!(status, 200, "{grant}");
    let load = tokio::spawn(async move {
        for turn in 0.. {
            let (status, told) =
                http(at, "POST", &format!("/v1/leases/load/{turn}:acquire"), r#"{"holder":"w2","ttl":"60s"}"#).await;
            assert_eq!(status, 200, "{told}");
        }
    });
    let mut last = 0;
    for round in 0..5 {
        // Whatever the load comes to meanwhile, there is something new.
        let new = format!("/v1/leases/new/{round}:acquire");
        assert_eq!(http(at, "POST", &new, r#"{"holder":"w3","ttl":"60s"}"#).await.0, 200);
        let bytes = http_client::download(at, "/v1/backup").await;
        let backup = backup::decode(&bytes).expect("it is whole, whatever happens beside it");
        assert!(backup.header.position > last, "a later backup holds more");
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
    assert!(load.await.is_err_and(|ended| ended.is_cancelled()), "every acquire beside the backups was granted");
    running.stop().await;
    let last = start(Directory::new(folder.path().join("restored-4")), on_a_free_port()).await.expect("it serves");
    let (_, status) = http(last.address, "GET", "/v1/status", "").await;
    assert!(status.contains("\"quarantine_ms\":") && !status.contains("\"quarantine_ms\":null"), "{status}");
    let (code, told) = http(last.address, "POST", "/v1/leases/x:acquire", r#"{"holder":"w1","ttl":"60s"}"#).await;
    assert_eq!((code, field(&told, "code")), (503, "QUARANTINED".to_owned()), "{told}");
    let token = field(&grant, "token");
    let shown = format!(r#"{{"token":"{token}"}}"#);
    let (code, told) = http(last.address, "POST", "/v1/leases/before:renew", &shown).await;
    assert_eq!((code, field(&told, "reason")), (410, "restored".to_owned()), "{told}");
    last.stop().await;
}
