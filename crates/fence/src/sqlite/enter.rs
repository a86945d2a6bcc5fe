//! The way into a write transaction: within a bound, and with the name of who is inside if it is not had.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::{Fence, row};
use crate::{Error, Lost, Refusal, blocker};

/// How long a claim sleeps between two tries; SQLite wakes nobody.
const BETWEEN: Duration = Duration::from_millis(2);

impl Fence {
    /// Changes no row and takes the write lock: what is read from here on, nobody else changes before the commit. A
    /// transaction whose snapshot is already old is told to begin anew.
    pub(super) fn lock(&self, tx: &Connection) -> Result<(), Error> {
        let lock = "UPDATE main.leasehold_fence SET mark = mark WHERE resource IS NULL";
        match tx.prepare_cached(lock).and_then(|mut lock| lock.execute([])) {
            Ok(_) => Ok(()),
            Err(error) if row::no_table(&error) => Err(Refusal::Lost(Lost::Missing).into()),
            Err(error) => Err(entered(error, tx, Duration::ZERO)),
        }
    }

    /// Begins a write transaction within the bound, whatever the connection's own patience is.
    pub(super) fn enter<'db>(&self, db: &'db mut Connection) -> Result<Transaction<'db>, Error> {
        let db: &Connection = db;
        if !db.is_autocommit() {
            return Err(Error::Misplaced("a transaction is open on this connection; this needs one of its own"));
        }
        let began = Instant::now();
        // A handler of the caller's own shows as 0 here and is left in place.
        let own: u32 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        if own > 0 {
            db.busy_timeout(Duration::ZERO)?;
        }
        let tx = loop {
            match Transaction::new_unchecked(db, TransactionBehavior::Immediate) {
                Err(error) if busy(&error) && began.elapsed() < self.patience => thread::sleep(BETWEEN),
                tx => break tx,
            }
        };
        if own > 0 {
            db.busy_timeout(Duration::from_millis(own.into()))?;
        }
        tx.map_err(|error| entered(error, db, began.elapsed()))
    }
}

/// Why a write lock was not had.
fn entered(error: rusqlite::Error, db: &Connection, waited: Duration) -> Error {
    if !busy(&error) {
        return error.into();
    }
    let file = db.path().map(PathBuf::from).unwrap_or_default();
    let mut shared = file.clone().into_os_string();
    shared.push("-shm");
    Error::Blocked { waited, by: blocker::holders(&[&file, Path::new(&shared)]) }
}

fn busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
