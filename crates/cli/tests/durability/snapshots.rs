//! Kills during snapshots, log truncation and audit writes: everything acknowledged is stored exactly once (A1, V1, L3).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{CorruptionError, RecoveredGrantor};
use leasehold_server::journal::file::{Directory, FileOptions};
use leasehold_server::journal::{JournalLocation, Replay};
use leasehold_server::snapshot_file::SnapshotFile;
use leasehold_testkit::depth::depth;
use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;

use crate::clients::Clients;
use crate::crash::{CrashPoint, SEED};
use crate::history::History;
use crate::server::{Server, Start, exclusive_run};
use crate::transport::{connect, within};

/// Small enough that every run takes snapshots, rotates segments and truncates. The audit trail keeps everything.
const SMALL_LIMITS: &str = "--segment-bytes 32KiB --snapshot-after-bytes 8KiB";
const SEGMENT: u64 = 32 << 10;

#[test]
fn everything_acknowledged_is_in_the_audit_trail_and_both_snapshots_once() {
    let _exclusive = exclusive_run();
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run_and_crash(&dir.path().join("data"), SplitMix64::new(SEED ^ 1)));
}

async fn run_and_crash(data: &Path, mut rng: SplitMix64) {
    let mut clients = Clients::new(&mut rng, true);
    let kills = depth(20, 80, 1_500);
    let small = Start { args: SMALL_LIMITS, ..Start::default() };
    // Delays renames and deletions, so that kills happen in between.
    let slow = Start {
        under: "strace -D -f --seccomp-bpf -qq -o /dev/null -e trace=renameat,unlinkat \
                -e inject=renameat:delay_enter=3000 -e inject=unlinkat:delay_enter=3000",
        args: SMALL_LIMITS,
    };
    let mut compared = 0;
    for kill in 0..kills {
        println!("kill {kill}");
        match rng.below(8) {
            0 => Server::start_and_kill(data, SMALL_LIMITS, std::time::Duration::from_millis(rng.below(90))),
            1 => clients.run_server(data, &small, Some(CrashPoint::Reconnecting(rng.below(40)))).await,
            2..5 => clients.run_server(data, &slow, Some(CrashPoint::Working(20 + rng.below(150)))).await,
            _ => clients.run_server(data, &small, Some(CrashPoint::Working(20 + rng.below(150)))).await,
        }
        compared += usize::from(both_snapshots_give_the_same_state(data).await);
        if kill % 10 == 9 {
            check_audit_trail(data, &small, &clients.history).await;
        }
    }
    clients.run_server(data, &small, None).await;
    assert!(both_snapshots_give_the_same_state(data).await, "there are two snapshots");
    let entries = check_audit_trail(data, &small, &clients.history).await;
    clients.assert_progress(kills);
    let (segments, parts) = (numbers(data, "segment-"), numbers(data, "trail-"));
    println!(
        "{entries} entries in {} files; the log starts at segment {}; snapshots compared {compared} times",
        parts.len(),
        segments[0]
    );
    assert!(segments[0] > 1, "the log was never truncated");
    assert!(compared * 2 > kills, "there were rarely two snapshots");
}

/// The sorted numbers of the files with a name prefix.
fn numbers(data: &Path, kind: &str) -> Vec<u64> {
    let names = fs::read_dir(data).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix(kind)?.parse().ok();
    let mut numbers: Vec<u64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Checks that the audit trail is intact, has no gap, and has one entry for each acknowledged grant and end.
async fn check_audit_trail(data: &Path, start: &Start, history: &History) -> u64 {
    let server = start.at(data).unwrap_or_else(|log| panic!("not started: {log}"));
    let mut calls = connect(&server.address).await.expect("the server responds");
    let verified =
        within(calls.verify_audit(v1::VerifyAuditRequest {})).await.expect("the entry is readable").into_inner();
    assert!(verified.intact && verified.first == 1, "{verified:?}");
    let (mut granted, mut ended) = (BTreeMap::new(), BTreeMap::new());
    let (mut after, mut position) = (0, 0);
    loop {
        let request = v1::AuditRequest { after, oldest_first: true, ..Default::default() };
        let page = within(calls.audit(request)).await.expect("the entry is readable").into_inner();
        for entry in &page.entries {
            assert_eq!(entry.entry, after + 1, "entry numbers are consecutive");
            after = entry.entry;
            assert_ne!(entry.kind, "gap", "{}", entry.text);
            assert!(entry.position >= position, "positions increase");
            position = entry.position;
            let number = entry.token_number.unwrap_or_default();
            let duplicate = match entry.kind.as_str() {
                "granted" => granted.insert(number, entry.resource.clone()),
                "ended" => ended.insert(number, v1::EndReason::try_from(entry.reason).map(word).unwrap_or_default()),
                _ => None,
            };
            assert_eq!(duplicate, None, "recorded twice: {}", entry.text);
        }
        if after == page.last {
            break;
        }
    }
    for (number, resource) in history.grants() {
        assert_eq!(granted.get(&number), Some(&resource), "the grant {number} was acknowledged (A1)");
    }
    for (number, reason) in history.ends() {
        assert_eq!(ended.get(&number), Some(&reason.to_owned()), "the end of {number} was acknowledged (A1)");
    }
    server.stop();
    after
}

fn word(reason: v1::EndReason) -> String {
    reason.as_str_name().trim_start_matches("END_REASON_").to_lowercase()
}

/// Checks that both snapshots with their logs give the same state (V1). False if there are not two.
async fn both_snapshots_give_the_same_state(data: &Path) -> bool {
    let [.., older, newest] = numbers(data, "snapshot-")[..] else { return false };
    let copies = tempfile::tempdir_in(data.parent().expect("a parent directory")).expect("a directory");
    let [whole, damaged] = ["whole", "damaged"].map(|name| copy(data, &copies.path().join(name)));
    let path = damaged.join(format!("snapshot-{newest:020}"));
    let mut bytes = fs::read(&path).expect("the file exists");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).expect("the file is writable");
    let (from_newest, from_older) = (ReplayedState::open(&whole).await, ReplayedState::open(&damaged).await);
    assert_eq!((from_newest.start, from_older.start), (newest, older));
    assert_eq!(from_newest.next, from_older.next);
    assert!(from_newest.state.snapshot() == from_older.state.snapshot(), "batch {} (V1)", from_newest.next - 1);
    true
}

fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir(to).expect("a directory");
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("the directory belongs to us");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        // The socket of the server.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        fs::copy(entry.path(), to.join(entry.file_name())).expect("the file can be copied");
    }
    to.to_owned()
}

/// The state that opening a journal replays.
struct ReplayedState {
    state: RecoveredGrantor,
    start: u64,
    next: u64,
}

impl ReplayedState {
    async fn open(path: &Path) -> Self {
        let options = FileOptions { segment_bytes: SEGMENT, accept_copy: true, background: false };
        let mut state = Self { state: RecoveredGrantor::empty(1), start: 0, next: 0 };
        let location = Directory { path: path.to_owned(), options };
        let opened = location.open(&mut state).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        drop(opened);
        state
    }
}

impl Replay for ReplayedState {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        (self.start, self.next) = (sequence, sequence + 1);
        self.state = RecoveredGrantor::from_snapshot(SnapshotFile::decode(bytes, sequence)?.state, 1)?;
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.next = sequence + 1;
        self.state.apply(bytes)
    }
}
