//! The two databases of the demonstration: an account whose balance each holder reads, reduces by its payment and writes.

use std::path::Path;
use std::time::Duration;

use leasehold_core::token::Cluster;
use leasehold_fence::FenceId;
use leasehold_fence::sqlite::{Fence, install};
use rusqlite::Connection;
use serde::Serialize;

use super::ipc::DemoTarget;
use crate::output::CommandError;

/// Resource of the lease that guards the account.
pub const RESOURCE: &str = "accounts/7";
/// Initial balance.
pub const INITIAL_BALANCE: i64 = 100;

/// State of the account: consistent if the balance is the initial balance minus all payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AccountState {
    pub balance: i64,
    pub paid: i64,
    pub consistent: bool,
}

/// The fence of the account.
pub fn fence(cluster: Cluster) -> Fence {
    Fence::new(&FenceId::new(cluster, RESOURCE).expect("a valid name"))
}

pub fn open(directory: &Path, target: DemoTarget) -> Result<Connection, CommandError> {
    let file = match target {
        DemoTarget::Fenced => "fenced.db",
        DemoTarget::Unfenced => "unfenced.db",
    };
    let db = Connection::open(directory.join(file)).map_err(failed)?;
    db.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    db.busy_timeout(Duration::from_secs(10)).map_err(failed)?;
    Ok(db)
}

/// Creates the account, and arms a fence if it is the fenced one.
pub fn create(directory: &Path, target: DemoTarget, cluster: Cluster) -> Result<(), CommandError> {
    let mut db = open(directory, target)?;
    let tables = "CREATE TABLE account (balance INTEGER NOT NULL) STRICT;
                  CREATE TABLE payment (id INTEGER PRIMARY KEY, holder TEXT NOT NULL, amount INTEGER NOT NULL) STRICT;";
    db.execute_batch(tables).map_err(failed)?;
    db.execute("INSERT INTO account VALUES (?1)", [INITIAL_BALANCE]).map_err(failed)?;
    if target == DemoTarget::Fenced {
        install(&mut db).and_then(|()| fence(cluster).arm(&mut db)).map_err(|e| failed(&e))?;
    }
    Ok(())
}

pub fn balance(db: &Connection) -> Result<i64, CommandError> {
    db.query_row("SELECT balance FROM account", [], |row| row.get(0)).map_err(failed)
}

/// Pays from the balance that was read before, however long ago.
pub fn pay(db: &Connection, holder: &str, read: i64, amount: i64) -> rusqlite::Result<()> {
    db.execute("INSERT INTO payment (holder, amount) VALUES (?1, ?2)", (holder, amount))?;
    db.execute("UPDATE account SET balance = ?1", [read - amount])?;
    Ok(())
}

pub fn account_state(directory: &Path, target: DemoTarget) -> Result<AccountState, CommandError> {
    let db = open(directory, target)?;
    let balance = balance(&db)?;
    let paid: i64 =
        db.query_row("SELECT coalesce(sum(amount), 0) FROM payment", [], |row| row.get(0)).map_err(failed)?;
    Ok(AccountState { balance, paid, consistent: balance == INITIAL_BALANCE - paid })
}

pub fn failed(error: impl std::fmt::Display) -> CommandError {
    super::failed(&format!("database error: {error}"))
}
