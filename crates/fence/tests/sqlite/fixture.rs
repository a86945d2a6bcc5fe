//! Fixture: a database with an armed fence and a table that records the token number of each write, in order.

use std::path::PathBuf;

use leasehold_fence::sqlite::{Fence, install};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

use crate::support::fence_id;

pub struct Database {
    pub dir: TempDir,
    pub fence: Fence,
    pub journal: &'static str,
}

impl Database {
    /// Creates a database with an armed fence.
    pub fn new() -> Self {
        Self::with_journal("wal")
    }

    pub fn with_journal(journal: &'static str) -> Self {
        let base = Self { dir: directory(), fence: Fence::new(&fence_id()), journal };
        let mut db = base.open();
        db.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT")
            .expect("a new database takes a table");
        install(&mut db).expect("the fence is installed");
        base.fence.arm(&mut db).expect("the fence is armed");
        base
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("fixture.db")
    }

    /// Opens another connection.
    pub fn open(&self) -> Connection {
        let db = Connection::open(self.file()).expect("the database opens");
        db.pragma_update(None, "journal_mode", self.journal).expect("the journal mode is taken");
        db.pragma_update(None, "synchronous", "EXTRA").expect("synchronous is taken");
        db
    }

    /// Token numbers of all writes, in order.
    pub fn written(&self) -> Vec<u64> {
        let db = self.open();
        let mut statement = db.prepare("SELECT number FROM written ORDER BY place").expect("the table is there");
        let rows = statement.query_map([], |row| row.get::<_, i64>(0)).expect("it can be read");
        rows.map(|n| u64::try_from(n.expect("a row")).expect("a number")).collect()
    }

    pub fn mark(&self) -> Option<u64> {
        self.fence.mark(&self.open()).expect("the mark is there").map(|mark| mark.get())
    }
}

/// Writes one row in a transaction.
pub fn put(tx: &Transaction<'_>, number: u64) -> rusqlite::Result<()> {
    put_raw(tx, number)
}

pub fn put_raw(db: &Connection, number: u64) -> rusqlite::Result<()> {
    let number = i64::try_from(number).expect("small numbers");
    db.execute("INSERT INTO written (number) VALUES (?1)", [number]).map(|_| ())
}

/// Temporary directory, in memory if possible: these tests do not simulate power failures.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test")
}
