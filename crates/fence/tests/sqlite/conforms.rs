//! The suite that every target passes, here in files of the test's own.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    Applied, BOUNDED, CLUSTER, Inside, LOST, MISSING, MISTAKES, RACE, RISING, SEQUENCES, STALE, STRICT, SURVEY,
    Subject, TOLD, Writer, check, name, race,
};
use leasehold_fence::sqlite::{Fence, install, survey};
use leasehold_fence::{Error, Kept, Once};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use crate::ledger::directory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Checked,
    Forced,
    /// Past the fence.
    Unfenced,
}

struct Base {
    mode: Mode,
    journal: &'static str,
    dir: Mutex<TempDir>,
}

struct Way {
    mode: Mode,
    fence: Fence,
    db: Connection,
}

const PATIENCE: Duration = Duration::from_secs(120);
const HASTY: Duration = Duration::from_millis(50);

fn put(tx: &Connection, token: &str, value: &str) -> rusqlite::Result<usize> {
    let number: i64 = token[57..76].parse().expect("an admitted token has a number");
    tx.execute("INSERT INTO written (number, what) VALUES (?1, ?2)", (number, value))
}

impl Base {
    fn new(mode: Mode, journal: &'static str) -> Self {
        Self { mode, journal, dir: Mutex::new(directory()) }
    }

    fn file(&self) -> PathBuf {
        self.dir.lock().expect("nobody panics").path().join("base")
    }

    fn open(&self) -> Way {
        let db = Connection::open(self.file()).expect("it opens");
        db.pragma_update(None, "journal_mode", self.journal).expect("the journal");
        db.pragma_update(None, "synchronous", "EXTRA").expect("synchronous");
        db.busy_timeout(PATIENCE).expect("its own patience");
        Way { mode: self.mode, fence: Fence::new(CLUSTER, name(), 0).patience(PATIENCE), db }
    }
}

impl Subject for Base {
    type Writer = Way;

    async fn fresh(&self) {
        assert!(self.unarmed().await);
        let mut way = self.open();
        way.fence.arm(&mut way.db).expect("armed");
        if self.mode == Mode::Forced {
            way.fence.protect(&mut way.db, "written").expect("protected");
        }
    }

    async fn unarmed(&self) -> bool {
        *self.dir.lock().expect("nobody panics") = directory();
        let Way { mut db, .. } = self.open();
        let table = "CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT";
        db.execute_batch(table).expect("a table");
        install(&mut db).expect("installed");
        true
    }

    async fn writer(&self) -> Way {
        self.open()
    }

    async fn applied(&self) -> Vec<Applied> {
        let Way { db, .. } = self.open();
        let mut all = db.prepare("SELECT number, what FROM written ORDER BY place").expect("the table");
        let rows = all.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).expect("readable");
        rows.map(|row| row.expect("a row"))
            .map(|(n, value)| (u64::try_from(n).ok().and_then(Number::new).expect("a number"), value))
            .map(|(number, value)| Applied { number, value })
            .collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        let Way { fence, db, .. } = self.open();
        fence.mark(&db)
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        let Way { fence, mut db, .. } = self.open();
        fence.declare_lost(&mut db).map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        let Way { fence, mut db, .. } = self.open();
        fence.rearm(&mut db, floor).map(|()| true)
    }

    async fn make_strict(&self) -> Result<bool, Error> {
        let Way { fence, mut db, .. } = self.open();
        fence.strict(&mut db, true).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        let Way { fence, mut db, .. } = self.open();
        fence.adopt(&mut db, incarnation).map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(&self.open().db).map(Some)
    }

    async fn occupied(&self, token: &str, value: &str) -> Option<Inside<Way>> {
        let mut successor = self.open();
        successor.fence = successor.fence.patience(HASTY);
        let Way { fence, db, .. } = self.open();
        // Open on the connection itself, which can then be kept: a transaction borrows it.
        db.execute_batch("BEGIN IMMEDIATE").expect("begun");
        fence.admit(&db, token).expect("admitted");
        put(&db, token, value).expect("written");
        fence.leave(&db).expect("left");
        let goes_on = Box::pin(async move { Ok(db.execute_batch("COMMIT")?) });
        // The kernel does not always tell who has a lock.
        Some(Inside { who: None, bound: PATIENCE, successor, goes_on })
    }
}

impl Writer for Way {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.fence.claim(&mut self.db, token)
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        if self.mode == Mode::Unfenced {
            put(&self.db, token, value)?;
            return Ok(());
        }
        self.fence.write(&mut self.db, token, |tx| put(tx, token, value)).map(|_| ())
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let once = self.fence.admit_once(&tx, token, sequence)?;
        if once == Once::Applied {
            put(&tx, token, value)?;
        }
        self.fence.leave(&tx)?;
        tx.commit()?;
        Ok(Some(once))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_conforms_in_every_journal_mode_checked_and_forced() {
    for mode in [Mode::Checked, Mode::Forced] {
        for journal in ["wal", "delete", "truncate"] {
            let base = Base::new(mode, journal);
            let held = check(&base).await.unwrap_or_else(|violation| panic!("{mode:?} {journal}: {violation}"));
            let all = [RISING, STALE, TOLD, MISTAKES, MISSING, LOST, SURVEY, STRICT, SEQUENCES, BOUNDED, RACE];
            assert_eq!(held, all, "{mode:?} {journal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_racing_operations_never_fall_and_without_the_fence_they_do() {
    let forced = Base::new(Mode::Forced, "wal");
    let raced = race(&forced, 4, 10_000, 7).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((raced.operations, raced.undecided), (10_000, 0), "{raced:?}");
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    let corrupted = race(&Base::new(Mode::Unfenced, "wal"), 4, 2_000, 7).await.expect_err("nothing stops the zombies");
    assert_eq!(corrupted.obligation, RACE, "{corrupted}");
}
