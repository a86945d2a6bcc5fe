//! Installation and version of the fence's tables in the caller's database.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{VERSION, protected};
use crate::Error;

/// Tables and triggers, to install them by hand into a database that has none: `sqlite3 FILE < …`.
pub const SQL: &str =
    concat!(include_str!("schema.sql"), "\n", include_str!("checks.sql"), "\n", include_str!("admissions.sql"));

/// Upgrade from version 1, to run it by hand.
pub const UPGRADE_FROM_1: &str =
    concat!(include_str!("upgrade_from_1.sql"), "\n", include_str!("checks.sql"), "\n", include_str!("admissions.sql"));

/// Upgrade from version 2, to run it by hand. Then protect each table again.
pub const UPGRADE_FROM_2: &str = concat!(include_str!("upgrade_from_2.sql"), "\n", include_str!("admissions.sql"));

/// Upgrade from version 3, to run it by hand. Then protect each table again.
pub const UPGRADE_FROM_3: &str = concat!(include_str!("upgrade_from_3.sql"), "\n", include_str!("admissions.sql"));

/// Upgrade from version 4, to run it by hand. Then protect each table again.
pub const UPGRADE_FROM_4: &str = concat!(include_str!("upgrade_from_4.sql"), "\n", include_str!("admissions.sql"));

/// What the first sealed fence of a database adds.
pub(super) const SEAL: &str = include_str!("seal.sql");

/// Installs the fence in this database or upgrades an older version, with the guards of its protected tables; marks are
/// preserved. Fails without a change if a newer
/// version is installed.
pub fn install(db: &mut Connection) -> Result<(), Error> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&tx)? {
        Some(VERSION) => return Ok(()),
        Some(1) => tx.execute_batch(UPGRADE_FROM_1)?,
        Some(2) => tx.execute_batch(UPGRADE_FROM_2)?,
        Some(3) => tx.execute_batch(UPGRADE_FROM_3)?,
        Some(4) => tx.execute_batch(UPGRADE_FROM_4)?,
        Some(have) => return Err(Error::Version { found: have, supported: VERSION }),
        None => tx.execute_batch(SQL)?,
    }
    protected::replace_guards(&tx)?;
    tx.commit()?;
    Ok(())
}

/// The installed version, if any.
pub(super) fn version(db: &Connection) -> Result<Option<u32>, Error> {
    let exists = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'leasehold_schema'";
    if db.query_row(exists, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let have = db.query_row("SELECT version FROM main.leasehold_schema", [], |row| row.get(0)).optional()?;
    // A table without its row is an unknown version, never "not installed".
    Ok(Some(have.unwrap_or(0)))
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(Box::new(error))
    }
}
