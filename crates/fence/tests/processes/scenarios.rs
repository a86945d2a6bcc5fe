//! The tests, and the targets they use.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_fence::Error;
use leasehold_fence::file::{FencedFile, FencedLog, LogReader};
use leasehold_fence::sqlite::{Fence, install};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::child::Child;
use crate::child_main::Target;
use crate::killed_file_writers;
use crate::support::{fence_id, token};

pub const ALL: [(&str, fn()); 8] = [
    ("a_stopped_holder_that_writes_after_its_successor_is_rejected", stale_after_stop),
    ("a_process_stopped_in_a_transaction_is_reported_and_blocks_the_claim_until_it_ends", stopped_in_transaction),
    ("a_process_killed_in_a_transaction_leaves_neither_mark_nor_row", killed_in_transaction),
    ("acknowledged_writes_and_the_mark_survive_sigkill", killed_while_writing),
    ("concurrent_processes_never_write_below_the_mark", concurrent_processes),
    (
        "a_process_stopped_in_a_replace_is_reported_and_blocks_the_claim_until_it_ends",
        killed_file_writers::stopped_in_replace,
    ),
    (
        "a_writer_killed_before_any_system_call_leaves_the_old_or_the_new_file",
        killed_file_writers::killed_before_any_system_call,
    ),
    ("readers_get_complete_files_while_writers_are_killed", killed_file_writers::readers_get_complete_files),
];

const TARGETS: [&str; 3] = ["sqlite", "log", "file"];

pub struct Fixture {
    kind: &'static str,
    dir: TempDir,
}

impl Fixture {
    pub fn new(kind: &'static str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let fixture = Self { kind, dir };
        if kind == "log" {
            FencedLog::create(&fixture.path(), &fence_id()).expect("created");
            return fixture;
        }
        if kind == "file" {
            FencedFile::create(&fixture.path(), &fence_id(), b"").expect("created");
            return fixture;
        }
        let mut db = Connection::open(fixture.path()).expect("a database");
        db.pragma_update(None, "journal_mode", "wal").expect("wal");
        db.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT")
            .expect("a table");
        install(&mut db).expect("installed");
        let fence = Fence::new(&fence_id());
        fence.arm(&mut db).expect("armed");
        fence.protect(&mut db, "written").expect("the table is protected");
        fixture
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(self.kind)
    }

    pub fn open(&self) -> Target {
        Target::open(self.kind, &self.path())
    }

    pub fn start(&self, role: &str, number: u64) -> Child {
        Child::start(role, self.kind, &self.path(), number)
    }

    /// All stored writes, in order.
    pub fn written(&self) -> Vec<(u64, String)> {
        if self.kind == "log" {
            let mut reader = LogReader::open(&self.path(), &fence_id()).expect("it can be read");
            let all = std::iter::from_fn(|| reader.next().expect("whole"));
            return all.map(|e| (e.number.get(), String::from_utf8(e.bytes).expect("text"))).collect();
        }
        if self.kind == "file" {
            return lines(&std::fs::read_to_string(self.path()).expect("it can be read"));
        }
        let db = Connection::open(self.path()).expect("opens");
        let mut all = db.prepare("SELECT number, what FROM written ORDER BY place").expect("the table");
        let rows = all.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).expect("it can be read");
        rows.map(|row| row.expect("a row")).map(|(n, what)| (u64::try_from(n).expect("a number"), what)).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.written().into_iter().map(|(number, _)| number).collect()
    }
}

/// The lines of a fenced file.
pub fn lines(content: &str) -> Vec<(u64, String)> {
    assert!(content.is_empty() || content.ends_with('\n'), "an incomplete line: {content:?}");
    let pairs = content.lines().map(|line| line.split_once(' ').expect("a number and what was written"));
    pairs.map(|(number, what)| (number.parse().expect("a number"), what.to_owned())).collect()
}

fn stale_after_stop() {
    for kind in TARGETS {
        let fixture = Fixture::new(kind);
        let mut old = fixture.start("on_command", 33);
        assert_eq!(old.next_line().as_deref(), Some("written"), "{kind}: the claim");
        old.send("first");
        assert_eq!(old.next_line().as_deref(), Some("written"));
        old.stop();
        old.send("late"); // the command waits in the pipe of the stopped process

        let mut new = fixture.open();
        new.claim(34).expect("the successor's claim");
        new.write(34, "second").expect("its write");
        old.resume();
        let result = old.next_line().expect("a result");
        assert!(
            result.starts_with("STALE_TOKEN") && result.contains("33") && result.contains("34"),
            "{kind}: {result}"
        );
        assert_eq!(fixture.numbers(), [33, 34], "{kind}");
    }
}

fn stopped_in_transaction() {
    let fixture = Fixture::new("sqlite");
    let mut old = fixture.start("in_transaction", 33);
    assert_eq!(old.next_line().as_deref(), Some("in progress"));
    old.stop();

    let Target::Sqlite(fence, mut db) = fixture.open() else { unreachable!("the fixture is SQLite") };
    let impatient = fence.clone().with_claim_timeout(Duration::from_millis(50));
    match impatient.claim(&mut db, token(34)) {
        // The kernel's list of locks can contain another device number than the file; then no process is reported.
        Err(Error::Blocked { blockers, .. }) => {
            assert!(blockers == [old.id()] || blockers.is_empty(), "{blockers:?}, not {}", old.id())
        }
        other => panic!("the claim passed a write in flight: {other:?}"),
    }
    assert!(fixture.numbers().is_empty());
    old.resume();
    old.send("commit");
    assert_eq!(old.next_line().as_deref(), Some("committed"), "no claim between check and commit");
    fence.claim(&mut db, token(34)).expect("the successor's claim");
    assert_eq!(fixture.numbers(), [33]);
}

fn killed_in_transaction() {
    let fixture = Fixture::new("sqlite");
    let mut old = fixture.start("in_transaction", 33);
    assert_eq!(old.next_line().as_deref(), Some("in progress"));
    old.kill();
    let Target::Sqlite(fence, mut db) = fixture.open() else { unreachable!("the fixture is SQLite") };
    assert_eq!(fence.mark(&db).expect("there"), None, "the mark was rolled back with the row");
    assert!(fixture.numbers().is_empty());
    fence.claim(&mut db, token(32)).expect("the mark is fresh");
}

/// Number of kills, by the depth of the test run.
pub fn rounds() -> u64 {
    if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 }
}

fn killed_while_writing() {
    let rounds = rounds();
    for kind in TARGETS {
        let fixture = Fixture::new(kind);
        let mut stored_before = 0;
        for round in 1..=rounds {
            let mut holder = fixture.start("busy", round);
            // The number of writes differs between rounds, and the kill comes at a random point of a write.
            for count in 0..(round * 7) % 23 {
                assert_eq!(holder.next_line(), Some(count.to_string()), "{kind}");
            }
            let unread = holder.kill();
            let acked = (round * 7) % 23 + unread.len() as u64;
            let written = fixture.written();
            let own = written[stored_before..].iter().map(|(number, what)| (*number, what.clone()));
            let own: Vec<_> = own.collect();
            let expected: Vec<_> = (0..own.len()).map(|count| (round, format!("{round}:{count}"))).collect();
            assert_eq!(own, expected, "{kind}: complete, in order, and only of this holder");
            let stored = own.len() as u64;
            assert!(stored == acked || stored == acked + 1, "{kind}: {acked} acknowledged, {stored} stored");
            stored_before = written.len();

            if stored > 0 && round > 1 {
                let before = fixture.open().write(round - 1, "late").expect_err("an earlier holder");
                assert_eq!(before.code(), "STALE_TOKEN", "{kind}: the mark survived");
            }
        }
        assert!(fixture.numbers().is_sorted());
    }
}

fn concurrent_processes() {
    for kind in TARGETS {
        let fixture = Fixture::new(kind);
        let mut children: Vec<_> = (0..4).map(|offset| fixture.start("racing", offset)).collect();
        for child in &mut children {
            assert_eq!(child.next_line().as_deref(), Some("ready"));
        }
        for child in &mut children {
            child.send("go");
        }
        let mut acked: Vec<u64> = Vec::new();
        for mut child in children {
            acked.extend(std::iter::from_fn(|| child.next_line()).map(|line| line.parse::<u64>().expect("a number")));
        }
        let written = fixture.numbers();
        assert!(written.is_sorted(), "{kind}: {written:?}");
        acked.sort_unstable();
        assert_eq!(written, acked, "{kind}: exactly the acknowledged writes are stored");
        assert!(!written.is_empty());
    }
}
