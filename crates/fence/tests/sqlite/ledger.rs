//! The guarded table of these tests: what was written, under which token, in the order of arrival.

use std::path::PathBuf;

use leasehold_fence::sqlite::{Fence, install};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

use crate::support::{CLUSTER, name};

pub struct Ledger {
    pub dir: TempDir,
    pub fence: Fence,
    pub journal: &'static str,
}

impl Ledger {
    /// An armed fence in a new database.
    pub fn new() -> Self {
        Self::with_journal("wal")
    }

    pub fn with_journal(journal: &'static str) -> Self {
        let ledger = Self { dir: directory(), fence: Fence::new(CLUSTER, name(), 0), journal };
        let mut db = ledger.open();
        db.execute_batch("CREATE TABLE written (place INTEGER PRIMARY KEY, number INTEGER NOT NULL, what TEXT) STRICT")
            .expect("a new database takes a table");
        install(&mut db).expect("the fence is installed");
        ledger.fence.arm(&mut db).expect("the fence is armed");
        ledger
    }

    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ledger.db")
    }

    /// One more connection, as another process would have it.
    pub fn open(&self) -> Connection {
        let db = Connection::open(self.file()).expect("the database opens");
        db.pragma_update(None, "journal_mode", self.journal).expect("the journal mode is taken");
        db.pragma_update(None, "synchronous", "EXTRA").expect("synchronous is taken");
        db
    }

    /// The numbers under which something was written, in order.
    pub fn written(&self) -> Vec<u64> {
        let db = self.open();
        let mut all = db.prepare("SELECT number FROM written ORDER BY place").expect("the table is there");
        let rows = all.query_map([], |row| row.get::<_, i64>(0)).expect("it can be read");
        rows.map(|n| u64::try_from(n.expect("a row")).expect("a number")).collect()
    }

    pub fn mark(&self) -> Option<u64> {
        self.fence.mark(&self.open()).expect("the mark is there").map(|mark| mark.get())
    }
}

/// Puts a row beside the data, as a holder's work.
pub fn put(tx: &Transaction<'_>, number: u64) -> rusqlite::Result<()> {
    put_raw(tx, number)
}

pub fn put_raw(db: &Connection, number: u64) -> rusqlite::Result<()> {
    let number = i64::try_from(number).expect("small numbers");
    db.execute("INSERT INTO written (number) VALUES (?1)", [number]).map(|_| ())
}

/// In memory where the machine has such a place: these tests ask for order, not for power cuts.
pub fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory for the test")
}
