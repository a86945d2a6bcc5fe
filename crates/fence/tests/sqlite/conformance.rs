//! The conformance suite against database files in every journal mode.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{
    AppliedEntry, BOUNDED_CLAIM, FenceWriter, INVALID_TOKENS, LIST_MARKS, LOST_MARK, RACE, RISING, SEAL_STAYS, SEALED,
    SEALED_TEXTS, SEQUENCES, STALE, STALE_DETAIL, STRICT, StuckHolder, Subject, UNARMED, check, fence_id, race,
};
use leasehold_fence::sqlite::{Fence, install, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use crate::fixture::directory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Checked,
    /// The table is protected.
    Protected,
    /// Without the fence.
    Unfenced,
}

struct SqliteTarget {
    mode: Mode,
    journal: &'static str,
    dir: Mutex<TempDir>,
}

struct SqliteWriter {
    mode: Mode,
    fence: Fence,
    db: Connection,
}

const TIMEOUT: Duration = Duration::from_secs(120);
const SHORT_TIMEOUT: Duration = Duration::from_millis(50);

fn put(tx: &Connection, token: &str, value: &str) -> rusqlite::Result<usize> {
    let number: i64 = token[57..76].parse().expect("an admitted token has a number");
    tx.execute("INSERT INTO written (number, what) VALUES (?1, ?2)", (number, value))
}

impl SqliteTarget {
    fn new(mode: Mode, journal: &'static str) -> Self {
        Self { mode, journal, dir: Mutex::new(directory()) }
    }

    fn file(&self) -> PathBuf {
        self.dir.lock().expect("not poisoned").path().join("base")
    }

    fn open(&self) -> SqliteWriter {
        let db = Connection::open(self.file()).expect("it opens");
        db.pragma_update(None, "journal_mode", self.journal).expect("the journal");
        db.pragma_update(None, "synchronous", "EXTRA").expect("synchronous");
        db.busy_timeout(TIMEOUT).expect("set");
        SqliteWriter { mode: self.mode, fence: Fence::new(&fence_id()).with_claim_timeout(TIMEOUT), db }
    }
}

impl Subject for SqliteTarget {
    type Writer = SqliteWriter;

    async fn fresh(&self) {
        assert!(self.unarmed().await);
        let mut writer = self.open();
        writer.fence.arm(&mut writer.db).expect("armed");
        if self.mode == Mode::Protected {
            writer.fence.protect(&mut writer.db, "written").expect("protected");
        }
    }

    async fn unarmed(&self) -> bool {
        *self.dir.lock().expect("not poisoned") = directory();
        let SqliteWriter { mut db, .. } = self.open();
        let table = "CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT";
        db.execute_batch(table).expect("a table");
        install(&mut db).expect("installed");
        true
    }

    async fn writer(&self) -> SqliteWriter {
        self.open()
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let SqliteWriter { db, .. } = self.open();
        let mut statement = db.prepare("SELECT number, what FROM written ORDER BY place").expect("the table");
        let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).expect("readable");
        rows.map(|row| row.expect("a row"))
            .map(|(n, value)| (u64::try_from(n).ok().and_then(Number::new).expect("a number"), value))
            .map(|(number, value)| AppliedEntry { number, value })
            .collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        let SqliteWriter { fence, db, .. } = self.open();
        fence.mark(&db)
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        let SqliteWriter { fence, mut db, .. } = self.open();
        fence.declare_lost(&mut db).map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        let SqliteWriter { fence, mut db, .. } = self.open();
        fence.rearm(&mut db, floor).map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        let SqliteWriter { fence, mut db, .. } = self.open();
        fence.strict(&mut db, enabled).map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        let SqliteWriter { fence, mut db, .. } = self.open();
        fence.adopt(&mut db, incarnation).map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        let SqliteWriter { fence, mut db, .. } = self.open();
        fence.seal(&mut db).map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<SqliteWriter> {
        let writer = self.open();
        Some(SqliteWriter { fence: writer.fence.clone().with_seal_verifier(verifier), ..writer })
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&self.open().db).map(Some)
    }

    async fn stuck_holder(&self, token: &str, value: &str) -> Option<StuckHolder<SqliteWriter>> {
        let mut successor = self.open();
        successor.fence = successor.fence.with_claim_timeout(SHORT_TIMEOUT);
        let SqliteWriter { fence, db, .. } = self.open();
        // Begun with SQL, because a `Transaction` would borrow the connection.
        db.execute_batch("BEGIN IMMEDIATE").expect("begun");
        fence.admit(&db, token).expect("admitted");
        put(&db, token, value).expect("written");
        fence.end_admission(&db).expect("ended");
        let goes_on = Box::pin(async move { Ok(db.execute_batch("COMMIT")?) });
        // The kernel does not always list the lock holders.
        Some(StuckHolder { blocker: None, max_claim_time: TIMEOUT, successor, resume: goes_on })
    }
}

impl FenceWriter for SqliteWriter {
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

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let once = self.fence.admit_once(&tx, token, sequence)?;
        if once == ApplyOnce::Applied {
            put(&tx, token, value)?;
        }
        self.fence.end_admission(&tx)?;
        tx.commit()?;
        Ok(Some(once))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_fence_conforms_in_every_journal_mode_with_and_without_protected_tables() {
    for mode in [Mode::Checked, Mode::Protected] {
        for journal in ["wal", "delete", "truncate"] {
            let target = SqliteTarget::new(mode, journal);
            let satisfied = check(&target).await.unwrap_or_else(|violation| panic!("{mode:?} {journal}: {violation}"));
            let all = [
                RISING,
                STALE,
                STALE_DETAIL,
                INVALID_TOKENS,
                SEALED_TEXTS,
                SEALED,
                SEAL_STAYS,
                UNARMED,
                LOST_MARK,
                LIST_MARKS,
                STRICT,
                SEQUENCES,
                BOUNDED_CLAIM,
                RACE,
            ];
            assert_eq!(satisfied, all, "{mode:?} {journal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn applied_tokens_never_fall_in_a_race_of_ten_thousand_operations_and_do_fall_without_the_fence() {
    let target = SqliteTarget::new(Mode::Protected, "wal");
    let raced = race(&target, 4, 10_000, 7).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((raced.operations, raced.undecided), (10_000, 0), "{raced:?}");
    assert!(raced.refused > 0, "zombies were among them: {raced:?}");
    let corrupted =
        race(&SqliteTarget::new(Mode::Unfenced, "wal"), 4, 2_000, 7).await.expect_err("nothing stops the zombies");
    assert_eq!(corrupted.obligation, RACE, "{corrupted}");
}
