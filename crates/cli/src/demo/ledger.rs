//! The two databases: an account whose balance each holder reads, lowers by what it pays, and writes back.

use std::path::Path;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;
use leasehold_fence::sqlite::{Fence, install};
use rusqlite::Connection;
use serde::Serialize;

use super::talk::Target;
use crate::told::Failure;

/// What guards the account.
pub const RESOURCE: &str = "accounts/7";
/// What is in it at first.
pub const BEGINNING: i64 = 100;

/// An account's books: they are sound if the balance is what the payments left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Books {
    pub balance: i64,
    pub paid: i64,
    pub sound: bool,
}

pub fn name() -> Name<'static> {
    Name::parse(RESOURCE).expect("it is a name")
}

pub fn open(directory: &Path, target: Target) -> Result<Connection, Failure> {
    let file = match target {
        Target::Fenced => "fenced.db",
        Target::Unfenced => "unfenced.db",
    };
    let db = Connection::open(directory.join(file)).map_err(broken)?;
    db.pragma_update(None, "journal_mode", "wal").map_err(broken)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(broken)?;
    db.busy_timeout(Duration::from_secs(10)).map_err(broken)?;
    Ok(db)
}

/// A new account; behind a fence, if it is the fenced one.
pub fn create(directory: &Path, target: Target, cluster: Cluster) -> Result<(), Failure> {
    let mut db = open(directory, target)?;
    let tables = "CREATE TABLE account (balance INTEGER NOT NULL) STRICT;
                  CREATE TABLE payment (place INTEGER PRIMARY KEY, who TEXT NOT NULL, amount INTEGER NOT NULL) STRICT;";
    db.execute_batch(tables).map_err(broken)?;
    db.execute("INSERT INTO account VALUES (?1)", [BEGINNING]).map_err(broken)?;
    if target == Target::Fenced {
        install(&mut db).and_then(|()| Fence::new(cluster, name(), 0).arm(&mut db)).map_err(|e| broken(&e))?;
    }
    Ok(())
}

pub fn balance(db: &Connection) -> Result<i64, Failure> {
    db.query_row("SELECT balance FROM account", [], |row| row.get(0)).map_err(broken)
}

/// Pays out of what was read before, however long ago that was.
pub fn pay(db: &Connection, who: &str, read: i64, amount: i64) -> rusqlite::Result<()> {
    db.execute("INSERT INTO payment (who, amount) VALUES (?1, ?2)", (who, amount))?;
    db.execute("UPDATE account SET balance = ?1", [read - amount])?;
    Ok(())
}

pub fn books(directory: &Path, target: Target) -> Result<Books, Failure> {
    let db = open(directory, target)?;
    let balance = balance(&db)?;
    let paid: i64 =
        db.query_row("SELECT coalesce(sum(amount), 0) FROM payment", [], |row| row.get(0)).map_err(broken)?;
    Ok(Books { balance, paid, sound: balance == BEGINNING - paid })
}

pub fn broken(error: impl std::fmt::Display) -> Failure {
    super::failed(&format!("its database failed: {error}"))
}
