//! Protected tables: triggers of the database refuse writes of transactions that were not admitted (F3).
//!
//! SQLite has no transaction id. So an admission is a row whose deferred foreign key cannot be satisfied: it must be deleted
//! before the commit and cannot outlive its transaction.

use leasehold_core::token::Number;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Fence, row};
use crate::{Error, FenceId, FenceRefusal, MarkLoss};

/// SQL statements that protect a table, to run them by hand.
pub fn protection_sql(table: &str, id: &FenceId) -> String {
    let (hash, slot) = (id.resource_hash(), id.slot());
    let (relation, literal) = (quoted(table, '"'), quoted(table, '\''));
    let mut sql = format!("INSERT OR REPLACE INTO leasehold_protected VALUES ({literal}, '{hash}', {slot});\n");
    for (name, statement) in guard_triggers(table) {
        sql += &format!(
            "CREATE TRIGGER IF NOT EXISTS {name} BEFORE {statement} ON {relation} BEGIN\n  \
             SELECT RAISE(ABORT, 'TOKEN_INVALID: absent: the table is protected and this transaction presented no token; \
             insert a current token into leasehold_admit first') WHERE NOT EXISTS (\n    \
             SELECT 1 FROM leasehold_admission WHERE resource = '{hash}' AND slot = {slot});\nEND;\n"
        );
    }
    sql
}

pub(super) fn guard_triggers(table: &str) -> [(String, &'static str); 3] {
    ["INSERT", "UPDATE", "DELETE"]
        .map(|statement| (quoted(&format!("leasehold_guard_{table}_{statement}"), '"'), statement))
}

pub(super) fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}

impl Fence {
    /// Protects a table: the database refuses every insert, update and delete, from any process and language, in a transaction
    /// that did not present a current token of this fence. Guards that exist are replaced, also if someone changed them.
    pub fn protect(&self, db: &mut Connection, table: &str) -> Result<(), Error> {
        let tx = self.begin(db)?;
        if row::read_mark(&tx, &self.id)?.loss == MarkLoss::Missing {
            return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into());
        }
        let is_table = "SELECT type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' FROM main.sqlite_schema WHERE name = ?1 \
                   AND name NOT LIKE 'leasehold\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        if tx.query_row(is_table, [table], |row| row.get(0)).optional()? != Some(true) {
            return Err(Error::Conflict(
                "not a table of this database, or an internal one; pass the table name as it was created",
            ));
        }
        let is_same = "SELECT (resource, slot) = (?2, ?3) FROM main.leasehold_protected WHERE relation = ?1";
        let same = tx
            .query_row(is_same, params![table, self.id.resource_hash(), self.id.slot()], |row| row.get(0))
            .optional()?;
        if same == Some(false) {
            return Err(Error::Conflict("the table is protected by another resource or slot; unprotect it first"));
        }
        drop_guards(&tx, table)?;
        tx.execute_batch(&protection_sql(table, &self.id))?;
        tx.commit()?;
        Ok(())
    }

    /// Removes the protection of a table.
    pub fn unprotect(&self, db: &mut Connection, table: &str) -> Result<(), Error> {
        let tx = self.begin(db)?;
        tx.execute("DELETE FROM main.leasehold_protected WHERE relation = ?1", [table])?;
        drop_guards(&tx, table)?;
        tx.commit()?;
        Ok(())
    }

    /// Ends the admission of a transaction that wrote to protected tables. Call it last; without it the commit fails.
    pub fn end_admission(&self, tx: &Connection) -> Result<(), Error> {
        let sql = "DELETE FROM main.leasehold_admission WHERE resource = ?1 AND slot = ?2";
        tx.prepare_cached(sql)?.execute(params![self.id.resource_hash(), self.id.slot()])?;
        Ok(())
    }
}

fn drop_guards(tx: &Connection, table: &str) -> Result<(), Error> {
    for (name, _) in guard_triggers(table) {
        tx.execute_batch(&format!("DROP TRIGGER IF EXISTS main.{name}"))?;
    }
    Ok(())
}

/// Stores the admission of a transaction for the triggers, if this fence protects tables.
pub(super) fn begin_admission(tx: &Connection, id: &FenceId, number: Number) -> Result<(), Error> {
    let (resource, slot) = (id.resource_hash(), id.slot());
    let protects = "SELECT 1 FROM main.leasehold_protected WHERE resource = ?1 AND slot = ?2 LIMIT 1";
    if tx.prepare_cached(protects)?.query_row(params![resource, slot], |_| Ok(())).optional()?.is_none() {
        return Ok(());
    }
    if !tx.query_row("PRAGMA foreign_keys", [], |row| row.get::<_, bool>(0))? {
        return Err(Error::InvalidArgument(
            "foreign_keys is OFF, protected tables need it; run PRAGMA foreign_keys = ON before the transaction",
        ));
    }
    let sql = "INSERT INTO main.leasehold_admission (resource, slot, number) SELECT ?1, ?2, ?3 WHERE NOT EXISTS \
               (SELECT 1 FROM main.leasehold_admission WHERE resource = ?1 AND slot = ?2 AND number = ?3)";
    let number = i64::try_from(number.get()).expect("a number is below 2^63");
    tx.prepare_cached("DELETE FROM main.leasehold_admission WHERE resource = ?1 AND slot = ?2 AND number <> ?3")?
        .execute(params![resource, slot, number])?;
    tx.prepare_cached(sql)?.execute(params![resource, slot, number])?;
    Ok(())
}
