//! Checks that a commit survives a power failure: a claim that can be lost protects nothing (F2).

use rusqlite::Connection;

use crate::Error;

/// `PRAGMA synchronous`: a commit is on disk before it is acknowledged.
const FULL: u32 = 2;
/// Like [`FULL`], and the deletion of the rollback journal is on disk too; otherwise a reappearing journal would undo the
/// commit.
const EXTRA: u32 = 3;

/// Fails if commits of this connection can be lost.
pub(super) fn check(db: &Connection) -> Result<(), Error> {
    let journal: String = db.query_row("PRAGMA main.journal_mode", [], |row| row.get(0))?;
    let required = match journal.as_str() {
        "wal" | "truncate" | "persist" => FULL,
        "delete" => EXTRA,
        _ => {
            let want = "wal, delete, truncate or persist, in a file";
            return Err(Error::NotDurable { setting: "PRAGMA journal_mode", actual: journal, required: want });
        }
    };
    let have: u32 = db.query_row("PRAGMA main.synchronous", [], |row| row.get(0))?;
    if have < required {
        let want = if required == EXTRA { "EXTRA (3), or journal_mode to wal" } else { "FULL (2)" };
        return Err(Error::NotDurable { setting: "PRAGMA synchronous", actual: have.to_string(), required: want });
    }
    Ok(())
}
