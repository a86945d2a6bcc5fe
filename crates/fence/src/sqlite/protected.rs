//! Protected tables: triggers of the database refuse writes of transactions that were not admitted (F3).
//!
//! SQLite has no transaction id. So an admission is a row whose deferred foreign key cannot be satisfied: it must be deleted
//! before the commit. SQLite only counts violations, and a transaction that removes one of another table balances the count. So a
//! row can be left, and the guards also read `defer_foreign_keys`, which every commit and rollback switches off.

use leasehold_core::token::Number;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Fence, row};
use crate::{Error, FenceId, FenceRefusal, MarkLoss};

/// SQL statements that protect a table, to run them by hand.
pub fn protection_sql(table: &str, id: &FenceId) -> String {
    protection_statements(table, &id.resource_hash(), id.slot())
}

fn protection_statements(table: &str, hash: &str, slot: u32) -> String {
    let literal = quoted(table, '\'');
    let mut sql =
        format!("INSERT OR REPLACE INTO leasehold_protected VALUES ({literal}, {}, {slot});\n", quoted(hash, '\''));
    for (name, statement) in guard_triggers(table) {
        sql += &format!("CREATE TRIGGER IF NOT EXISTS {};\n", guard_body(&name, statement, table, hash, slot));
    }
    sql
}

/// The statement of a guard from its name on. An admission counts if its number is the mark, and if `defer_foreign_keys` is on:
/// SQLite switches that off with each commit, so that an admission of an earlier transaction is none.
pub(super) fn guard_body(quoted_name: &str, statement: &str, table: &str, hash: &str, slot: u32) -> String {
    let (relation, hash) = (quoted(table, '"'), quoted(hash, '\''));
    format!(
        "{quoted_name} BEFORE {statement} ON {relation} BEGIN\n  \
         SELECT RAISE(ABORT, 'TOKEN_INVALID: absent: the table is protected and this transaction presented no token; \
         insert a current token into leasehold_admit first') WHERE NOT EXISTS (\n    \
         SELECT 1 FROM leasehold_admission AS a JOIN leasehold_fence AS f ON f.resource = a.resource AND f.slot = a.slot\n    \
         WHERE a.resource = {hash} AND a.slot = {slot} AND f.state = 'armed' AND f.mark = a.number)\n    \
         OR (SELECT defer_foreign_keys FROM pragma_defer_foreign_keys) IS NOT 1;\nEND"
    )
}

/// Replaces the guards of all protected tables, after an upgrade.
pub(super) fn replace_guards(tx: &Connection) -> Result<(), Error> {
    let mut statement = tx.prepare("SELECT relation, resource, slot FROM main.leasehold_protected")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let protected: Vec<(String, String, u32)> = rows.collect::<Result<_, _>>()?;
    for (table, hash, slot) in protected {
        let is_table = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        if tx.query_row(is_table, [&table], |_| Ok(())).optional()?.is_some() {
            drop_guards(tx, &table)?;
            tx.execute_batch(&protection_statements(&table, &hash, slot))?;
        }
    }
    Ok(())
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
    tx.execute_batch("PRAGMA defer_foreign_keys = ON")?;
    // A row of an earlier transaction is deleted too: only a row of this one makes a commit without `end_admission` fail.
    tx.prepare_cached("DELETE FROM main.leasehold_admission WHERE resource = ?1 AND slot = ?2")?
        .execute(params![resource, slot])?;
    let number = i64::try_from(number.get()).expect("a number is below 2^63");
    tx.prepare_cached("INSERT INTO main.leasehold_admission (resource, slot, number) VALUES (?1, ?2, ?3)")?
        .execute(params![resource, slot, number])?;
    Ok(())
}
