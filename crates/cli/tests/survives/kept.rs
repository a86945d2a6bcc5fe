//! Kills while the past is gathered: snapshots, cuts of the log and the audit trail come in between, and everything that was
//! told stands in all of them, once (A1, V1, L3).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{Corrupt, Recovered};
use leasehold_server::journal::file::{Directory, Options};
use leasehold_server::journal::{Place, Replay};
use leasehold_wire::v1;

use crate::chance::Chance;
use crate::crash::{Doom, SEED};
use crate::crowd::Crowd;
use crate::history::History;
use crate::link::{connect, within};
use crate::server::{Server, Start, alone, depth};

/// So little that every life takes snapshots, rotates and cuts. The trail keeps everything.
const TINY: &str = "--segment-bytes 32KiB --log-bytes 8KiB";
const SEGMENT: u64 = 32 << 10;

#[test]
fn everything_acked_stands_in_the_trail_and_in_both_snapshots_once() {
    let _alone = alone();
    let above = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(live_and_die(&above.path().join("data"), Chance::new(SEED ^ 1)));
}

async fn live_and_die(data: &Path, mut chance: Chance) {
    let mut crowd = Crowd::new(&mut chance, true);
    let kills = depth(20, 80, 1_500);
    let tiny = Start { args: TINY, ..Start::default() };
    // What is put in its place and what is taken away waits a moment, so that kills come in between.
    let slow = Start {
        under: "strace -D -f -qq -o /dev/null -e trace=renameat,unlinkat \
                -e inject=renameat:delay_enter=3000 -e inject=unlinkat:delay_enter=3000",
        args: TINY,
    };
    let mut folded = 0;
    for kill in 0..kills {
        println!("kill {kill}");
        match chance.below(8) {
            0 => Server::start_and_kill(data, TINY, std::time::Duration::from_millis(chance.below(90))),
            1 => crowd.live(data, &tiny, Some(Doom::Returning(chance.below(40)))).await,
            2..5 => crowd.live(data, &slow, Some(Doom::Working(20 + chance.below(150)))).await,
            _ => crowd.live(data, &tiny, Some(Doom::Working(20 + chance.below(150)))).await,
        }
        folded += usize::from(both_snapshots_tell_the_same(data).await);
        if kill % 10 == 9 {
            the_trail_tells_everything(data, &tiny, &crowd.history).await;
        }
    }
    crowd.live(data, &tiny, None).await;
    assert!(both_snapshots_tell_the_same(data).await, "there are two by now");
    let entries = the_trail_tells_everything(data, &tiny, &crowd.history).await;
    crowd.has_done_something(kills);
    let (segments, parts) = (numbers(data, "segment-"), numbers(data, "trail-"));
    println!(
        "{entries} entries in {} parts; the log begins at segment {}; folded {folded} times",
        parts.len(),
        segments[0]
    );
    assert!(segments[0] > 1, "nothing was ever cut");
    assert!(folded * 2 > kills, "two snapshots were seldom there");
}

/// The numbers of the files of a kind, in order.
fn numbers(data: &Path, kind: &str) -> Vec<u64> {
    let names = fs::read_dir(data).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix(kind)?.parse().ok();
    let mut numbers: Vec<u64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The trail is whole, has no gap, and has one entry for each grant and each end that somebody was told.
async fn the_trail_tells_everything(data: &Path, start: &Start, history: &History) -> u64 {
    let server = start.at(data).unwrap_or_else(|said| panic!("not started: {said}"));
    let mut calls = connect(&server.address).await.expect("it serves");
    let verified = within(calls.verify_trail(v1::VerifyTrailRequest {})).await.expect("it can be read").into_inner();
    assert!(verified.whole && verified.first == 1, "{verified:?}");
    let (mut granted, mut ended) = (BTreeMap::new(), BTreeMap::new());
    let (mut after, mut position) = (0, 0);
    loop {
        let ask = v1::TrailRequest { after, oldest_first: true, ..Default::default() };
        let page = within(calls.trail(ask)).await.expect("it can be read").into_inner();
        for entry in &page.entries {
            assert_eq!(entry.entry, after + 1, "entries follow on each other");
            after = entry.entry;
            assert_ne!(entry.kind, "gap", "{}", entry.text);
            assert!(entry.position >= position, "positions rise");
            position = entry.position;
            let number = entry.token_number.unwrap_or_default();
            let told = match entry.kind.as_str() {
                "granted" => granted.insert(number, entry.resource.clone()),
                "ended" => ended.insert(number, v1::Reason::try_from(entry.reason).map(word).unwrap_or_default()),
                _ => None,
            };
            assert_eq!(told, None, "told twice: {}", entry.text);
        }
        if after == page.last {
            break;
        }
    }
    for (number, resource) in history.grants() {
        assert_eq!(granted.get(&number), Some(&resource), "the grant {number} was acked (A1)");
    }
    for (number, reason) in history.ends() {
        assert_eq!(ended.get(&number), Some(&reason.to_owned()), "the end of {number} was acked (A1)");
    }
    server.stop();
    after
}

fn word(reason: v1::Reason) -> String {
    reason.as_str_name().trim_start_matches("REASON_").to_lowercase()
}

/// Whether there are two snapshots to tell it: the state is the same from either of them and the log behind it (V1).
async fn both_snapshots_tell_the_same(data: &Path) -> bool {
    let [.., older, newest] = numbers(data, "snapshot-")[..] else { return false };
    let beside = tempfile::tempdir_in(data.parent().expect("it is somewhere")).expect("a directory");
    let [whole, damaged] = ["whole", "damaged"].map(|name| copy(data, &beside.path().join(name)));
    let path = damaged.join(format!("snapshot-{newest:020}"));
    let mut bytes = fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, bytes).expect("it can be written");
    let (from_newest, from_older) = (Told::of(&whole).await, Told::of(&damaged).await);
    assert_eq!((from_newest.began, from_older.began), (newest, older));
    assert_eq!(from_newest.next, from_older.next);
    assert!(from_newest.state.snapshot() == from_older.state.snapshot(), "batch {} (V1)", from_newest.next - 1);
    true
}

fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir(to).expect("a directory");
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("it can be copied");
    }
    to.to_owned()
}

/// A state as an open tells it.
struct Told {
    state: Recovered,
    began: u64,
    next: u64,
}

impl Told {
    async fn of(path: &Path) -> Self {
        let options = Options { segment_bytes: SEGMENT, accept_copy: true, background: false };
        let mut told = Self { state: Recovered::empty(1), began: 0, next: 0 };
        let place = Directory { path: path.to_owned(), options };
        let opened = place.open(&mut told).await.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        drop(opened);
        told
    }
}

impl Replay for Told {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        (self.began, self.next) = (sequence, sequence + 1);
        self.state = Recovered::from_snapshot(bytes, 1)?;
        Ok(())
    }

    fn batch(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        self.next = sequence + 1;
        self.state.apply(bytes)
    }
}
