//! Whether this database keeps a commit over a power cut: a claim that can be forgotten protects nobody (F2).

use rusqlite::Connection;

use crate::Error;

/// `PRAGMA synchronous`: a commit is on disk before it is told.
const FULL: u32 = 2;
/// The same, and so is the end of the rollback journal, which would otherwise undo the commit when it comes back.
const EXTRA: u32 = 3;

/// Refuses a connection whose commits may be forgotten.
pub(super) fn check(db: &Connection) -> Result<(), Error> {
    let journal: String = db.query_row("PRAGMA main.journal_mode", [], |row| row.get(0))?;
    let needed = match journal.as_str() {
        "wal" | "truncate" | "persist" => FULL,
        "delete" => EXTRA,
        _ => {
            let want = "wal, delete, truncate or persist, in a file";
            return Err(Error::NotDurable { setting: "PRAGMA journal_mode", have: journal, want });
        }
    };
    let have: u32 = db.query_row("PRAGMA main.synchronous", [], |row| row.get(0))?;
    if have < needed {
        let want = if needed == EXTRA { "EXTRA (3), or journal_mode to wal" } else { "FULL (2)" };
        return Err(Error::NotDurable { setting: "PRAGMA synchronous", have: have.to_string(), want });
    }
    Ok(())
}
