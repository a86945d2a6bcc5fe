//! Begins write transactions within a timeout and reports the blocking processes (F8).

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::{Fence, row};
use crate::{Error, FenceRefusal, MarkLoss, lock_holders};

/// Pause between two attempts; SQLite does not notify waiters.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

impl Fence {
    /// Acquires the write lock with an update that changes no row: until the commit no other connection changes what is read.
    /// Fails with [`Error::Blocked`] if the transaction's snapshot is outdated; then it must be retried.
    pub(super) fn acquire_write_lock(&self, tx: &Connection) -> Result<(), Error> {
        let lock = "UPDATE main.leasehold_fence SET mark = mark WHERE resource IS NULL";
        match tx.prepare_cached(lock).and_then(|mut lock| lock.execute([])) {
            Ok(_) => Ok(()),
            Err(error) if row::is_table_missing(&error) => Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            Err(error) => Err(lock_error(error, tx, Duration::ZERO)),
        }
    }

    /// Begins a write transaction within the claim timeout, independent of the connection's busy timeout.
    pub(super) fn begin<'db>(&self, db: &'db mut Connection) -> Result<Transaction<'db>, Error> {
        let db: &Connection = db;
        if !db.is_autocommit() {
            return Err(Error::InvalidArgument(
                "a transaction is open on this connection; call this outside of a transaction",
            ));
        }
        let started = Instant::now();
        // A busy handler of the caller reads as 0 here and stays in place.
        let busy_timeout: u32 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
        if busy_timeout > 0 {
            db.busy_timeout(Duration::ZERO)?;
        }
        let tx = loop {
            match Transaction::new_unchecked(db, TransactionBehavior::Immediate) {
                Err(error) if is_busy(&error) && started.elapsed() < self.claim_timeout => {
                    thread::sleep(RETRY_INTERVAL)
                }
                tx => break tx,
            }
        };
        if busy_timeout > 0 {
            db.busy_timeout(Duration::from_millis(busy_timeout.into()))?;
        }
        tx.map_err(|error| lock_error(error, db, started.elapsed()))
    }
}

/// Converts an error of acquiring the write lock.
fn lock_error(error: rusqlite::Error, db: &Connection, waited: Duration) -> Error {
    if !is_busy(&error) {
        return error.into();
    }
    let file = db.path().map(PathBuf::from).unwrap_or_default();
    let mut wal_index = file.clone().into_os_string();
    wal_index.push("-shm");
    Error::Blocked { waited, blockers: lock_holders::pids(&[&file, Path::new(&wal_index)]) }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
