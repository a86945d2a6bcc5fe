//! What must hold when holders are processes.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_fence::Error;
use leasehold_fence::file::{Log, Reader, Replace};
use leasehold_fence::sqlite::{Fence, install};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::child::Child;
use crate::part::Target;
use crate::replace;
use crate::support::{CLUSTER, name, token};

pub const ALL: [(&str, fn()); 8] = [
    ("a_stopped_holder_that_writes_after_its_successor_is_refused", late),
    ("a_process_stopped_inside_its_transaction_is_named_and_its_end_lets_the_claim_in", stopped_inside),
    ("a_process_killed_inside_its_transaction_leaves_neither_mark_nor_row", killed_inside),
    ("kill_9_in_the_middle_of_writes_keeps_every_acknowledged_one_and_the_mark", killed_while_writing),
    ("racing_processes_never_write_below_the_mark", racing),
    ("a_process_stopped_inside_its_replace_is_named_and_its_end_lets_the_claim_in", replace::stopped_inside),
    ("a_writer_killed_before_any_of_its_system_calls_leaves_the_old_file_or_the_new_one", replace::killed_anywhere),
    ("readers_always_see_a_whole_file_while_its_writers_are_killed", replace::whole),
];

const TARGETS: [&str; 3] = ["sqlite", "file", "replace"];

pub struct World {
    kind: &'static str,
    dir: TempDir,
}

impl World {
    pub fn new(kind: &'static str) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let world = Self { kind, dir };
        if kind == "file" {
            Log::create(&world.path(), CLUSTER, name(), 0).expect("created");
            return world;
        }
        if kind == "replace" {
            Replace::create(&world.path(), CLUSTER, name(), 0, b"").expect("created");
            return world;
        }
        let mut db = Connection::open(world.path()).expect("a database");
        db.pragma_update(None, "journal_mode", "wal").expect("wal");
        db.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT")
            .expect("a table");
        install(&mut db).expect("installed");
        let fence = Fence::new(CLUSTER, name(), 0);
        fence.arm(&mut db).expect("armed");
        fence.protect(&mut db, "written").expect("the table itself refuses who was not admitted");
        world
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join(self.kind)
    }

    pub fn open(&self) -> Target {
        Target::open(self.kind, &self.path())
    }

    pub fn start(&self, part: &str, number: u64) -> Child {
        Child::start(part, self.kind, &self.path(), number)
    }

    /// Everything that landed, in order.
    pub fn written(&self) -> Vec<(u64, String)> {
        if self.kind == "file" {
            let mut reader = Reader::open(&self.path(), CLUSTER, name(), 0).expect("readable");
            let all = std::iter::from_fn(|| reader.next().expect("whole"));
            return all.map(|e| (e.number.get(), String::from_utf8(e.bytes).expect("text"))).collect();
        }
        if self.kind == "replace" {
            return lines(&std::fs::read_to_string(self.path()).expect("readable"));
        }
        let db = Connection::open(self.path()).expect("opens");
        let mut all = db.prepare("SELECT number, what FROM written ORDER BY place").expect("the table");
        let rows = all.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).expect("readable");
        rows.map(|row| row.expect("a row")).map(|(n, what)| (u64::try_from(n).expect("a number"), what)).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.written().into_iter().map(|(number, _)| number).collect()
    }
}

/// The lines of a replaced file, each whole.
pub fn lines(content: &str) -> Vec<(u64, String)> {
    assert!(content.is_empty() || content.ends_with('\n'), "a half line: {content:?}");
    let pairs = content.lines().map(|line| line.split_once(' ').expect("a number and what was written"));
    pairs.map(|(number, what)| (number.parse().expect("a number"), what.to_owned())).collect()
}

fn late() {
    for kind in TARGETS {
        let world = World::new(kind);
        let mut old = world.start("late", 33);
        assert_eq!(old.says().as_deref(), Some("written"), "{kind}: it claimed");
        old.order("first");
        assert_eq!(old.says().as_deref(), Some("written"));
        old.stop();
        old.order("late"); // it lies in the pipe of one who is stopped

        let mut new = world.open();
        new.claim(34).expect("the successor claims");
        new.write(34, "second").expect("and writes");
        old.go_on();
        let answer = old.says().expect("it tells what came of it");
        assert!(
            answer.starts_with("STALE_TOKEN") && answer.contains("33") && answer.contains("34"),
            "{kind}: {answer}"
        );
        assert_eq!(world.numbers(), [33, 34], "{kind}");
    }
}

fn stopped_inside() {
    let world = World::new("sqlite");
    let mut old = world.start("inside", 33);
    assert_eq!(old.says().as_deref(), Some("inside"));
    old.stop();

    let Target::Sqlite(fence, mut db) = world.open() else { unreachable!("it is SQLite's world") };
    let hasty = fence.clone().patience(Duration::from_millis(50));
    match hasty.claim(&mut db, &token(34)) {
        // Where the kernel's list of locks names another device than the file does, nobody can be named.
        Err(Error::Blocked { by, .. }) => assert!(by == [old.id()] || by.is_empty(), "{by:?}, not {}", old.id()),
        other => panic!("the claim passed a write in flight: {other:?}"),
    }
    assert!(world.numbers().is_empty());
    old.go_on();
    old.order("commit");
    assert_eq!(old.says().as_deref(), Some("committed"), "nobody came between its check and its commit");
    fence.claim(&mut db, &token(34)).expect("and now the successor gets in");
    assert_eq!(world.numbers(), [33]);
}

fn killed_inside() {
    let world = World::new("sqlite");
    let mut old = world.start("inside", 33);
    assert_eq!(old.says().as_deref(), Some("inside"));
    old.kill();
    let Target::Sqlite(fence, mut db) = world.open() else { unreachable!("it is SQLite's world") };
    assert_eq!(fence.mark(&db).expect("there"), None, "the mark went with the row");
    assert!(world.numbers().is_empty());
    fence.claim(&mut db, &token(32)).expect("nobody was there");
}

/// How many are killed: in all of `./test`, and in the deep one.
pub fn rounds() -> u64 {
    if std::env::var("LEASEHOLD_DEPTH").is_ok_and(|depth| depth == "deep") { 100 } else { 10 }
}

fn killed_while_writing() {
    let rounds = rounds();
    for kind in TARGETS {
        let world = World::new(kind);
        let mut kept = 0;
        for round in 1..=rounds {
            let mut holder = world.start("busy", round);
            // How far it comes differs from round to round, and the kill comes at no chosen point of a write.
            for count in 0..(round * 7) % 23 {
                assert_eq!(holder.says(), Some(count.to_string()), "{kind}");
            }
            let unread = holder.kill();
            let acked = (round * 7) % 23 + unread.len() as u64;
            let written = world.written();
            let own = written[kept..].iter().map(|(number, what)| (*number, what.clone()));
            let own: Vec<_> = own.collect();
            let expected: Vec<_> = (0..own.len()).map(|count| (round, format!("{round}:{count}"))).collect();
            assert_eq!(own, expected, "{kind}: whole, in order, and only this holder's");
            let landed = own.len() as u64;
            assert!(landed == acked || landed == acked + 1, "{kind}: {acked} acknowledged, {landed} kept");
            kept = written.len();

            if landed > 0 && round > 1 {
                let before = world.open().write(round - 1, "late").expect_err("a holder of before");
                assert_eq!(before.code(), "STALE_TOKEN", "{kind}: the mark is there too");
            }
        }
        assert!(world.numbers().is_sorted());
    }
}

fn racing() {
    for kind in TARGETS {
        let world = World::new(kind);
        let mut children: Vec<_> = (0..4).map(|offset| world.start("racing", offset)).collect();
        for child in &mut children {
            assert_eq!(child.says().as_deref(), Some("ready"));
        }
        for child in &mut children {
            child.order("go");
        }
        let mut acked: Vec<u64> = Vec::new();
        for mut child in children {
            acked.extend(std::iter::from_fn(|| child.says()).map(|line| line.parse::<u64>().expect("a number")));
        }
        let written = world.numbers();
        assert!(written.is_sorted(), "{kind}: {written:?}");
        acked.sort_unstable();
        assert_eq!(written, acked, "{kind}: what was acknowledged landed, and nothing else");
        assert!(!written.is_empty());
    }
}
