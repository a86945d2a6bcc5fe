//! What the fence keeps in the caller's database, and which version of it is there.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::Error;

/// The version of [`SQL`].
pub const VERSION: u32 = 2;

/// The tables and triggers, for who installs them by hand into a database that has none: `sqlite3 FILE < …`.
pub const SQL: &str = concat!(include_str!("schema.sql"), "\n", include_str!("checks.sql"));

/// From version 1, for who upgrades by hand.
pub const FROM_1: &str = concat!(include_str!("from1.sql"), "\n", include_str!("checks.sql"));

/// Installs the fence's tables in the caller's database, or brings an older version's up to date; marks stay. A newer
/// version is refused and left as it is.
pub fn install(db: &mut Connection) -> Result<(), Error> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&tx)? {
        Some(VERSION) => return Ok(()),
        Some(1) => tx.execute_batch(FROM_1)?,
        Some(have) => return Err(Error::Version { have, want: VERSION }),
        None => tx.execute_batch(SQL)?,
    }
    tx.commit()?;
    Ok(())
}

/// The version installed, if any is.
fn version(db: &Connection) -> Result<Option<u32>, Error> {
    let there = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'leasehold_schema'";
    if db.query_row(there, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let have = db.query_row("SELECT version FROM main.leasehold_schema", [], |row| row.get(0)).optional()?;
    // A table without its row is some other version, never "not installed".
    Ok(Some(have.unwrap_or(0)))
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(Box::new(error))
    }
}
