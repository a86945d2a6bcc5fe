//! Protected tables: triggers of the database refuse writes of transactions that were not admitted (F3).
//!
//! SQLite has no transaction id. So an admission is a row whose deferred foreign key cannot be satisfied: it must be deleted
//! before the commit. SQLite only counts violations, and a transaction that removes one of another table balances the count. So a
//! row can be left, and the guards also read `defer_foreign_keys`, which every commit and rollback switches off.

use leasehold_core::token::Number;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Fence, row};
use crate::{Error, FenceId, FenceRefusal, MarkLoss};

/// SQL statements that protect a table by a fence that is not sealed, to run them by hand.
pub fn protection_sql(table: &str, id: &FenceId) -> String {
    protection_statements(table, &GuardedBy { hash: id.resource_hash(), slot: id.slot(), seal: None })
}

fn protection_statements(table: &str, fence: &GuardedBy) -> String {
    let (literal, hash, slot) = (quoted(table, '\''), quoted(&fence.hash, '\''), fence.slot);
    let mut sql = format!("INSERT OR REPLACE INTO leasehold_protected VALUES ({literal}, {hash}, {slot});\n");
    for (name, statement) in guard_triggers(table) {
        sql += &format!("CREATE TRIGGER IF NOT EXISTS {};\n", guard_body(&name, statement, table, fence));
    }
    sql
}

/// The fence that a guard asks.
pub(super) struct GuardedBy {
    pub(super) hash: String,
    pub(super) slot: u32,
    /// Name and cluster of a sealed fence. The guards contain both, so that no change of a row lets another token pass.
    pub(super) seal: Option<(String, String)>,
}

impl GuardedBy {
    /// The fence with this id, as the database knows it.
    pub(super) fn read(db: &Connection, id: &FenceId, sealed: bool) -> Result<Self, Error> {
        let sql = "SELECT name, cluster FROM main.leasehold_sealed WHERE resource = ?1 AND slot = ?2";
        let seal = if sealed {
            Some(db.query_row(sql, params![id.resource_hash(), id.slot()], |row| Ok((row.get(0)?, row.get(1)?)))?)
        } else {
            None
        };
        Ok(Self { hash: id.resource_hash(), slot: id.slot(), seal })
    }
}

/// The statement of a guard from its name on. An admission counts if its number is the mark, and if `defer_foreign_keys` is on:
/// SQLite switches that off with each commit, so that an admission of an earlier transaction is none. The guard of a sealed fence
/// also verifies the token of the admission, so that a connection without keys cannot even prepare the statement (A8).
pub(super) fn guard_body(quoted_name: &str, statement: &str, table: &str, fence: &GuardedBy) -> String {
    let (relation, hash, slot) = (quoted(table, '"'), quoted(&fence.hash, '\''), fence.slot);
    let verify = fence.seal.as_ref().map_or_else(String::new, |(name, cluster)| {
        let (name, cluster) = (quoted(name, '\''), quoted(cluster, '\''));
        format!(
            "  SELECT RAISE(ABORT, 'TOKEN_INVALID: signature: the table is sealed and no key of this connection signed the \
             token of this transaction; admit the sealed token text of the grant') WHERE NOT EXISTS (\n    \
             SELECT 1 FROM leasehold_admission AS a WHERE a.resource = {hash} AND a.slot = {slot}\n    \
             AND substr(a.token, 5, 16) = {cluster} AND substr(a.token, 48, 9) = 'w{slot:08x}'\n    \
             AND leasehold_verify(a.token, {name}) = a.number);\n"
        )
    });
    format!(
        "{quoted_name} BEFORE {statement} ON {relation} BEGIN\n  \
         SELECT RAISE(ABORT, 'TOKEN_INVALID: absent: the table is protected and this transaction presented no token; \
         insert a current token into leasehold_admit first') WHERE NOT EXISTS (\n    \
         SELECT 1 FROM leasehold_admission AS a JOIN leasehold_fence AS f ON f.resource = a.resource AND f.slot = a.slot\n    \
         WHERE a.resource = {hash} AND a.slot = {slot} AND f.state = 'armed' AND f.mark = a.number)\n    \
         OR (SELECT defer_foreign_keys FROM pragma_defer_foreign_keys) IS NOT 1;\n{verify}END"
    )
}

/// Replaces the guards of all protected tables, after an upgrade or when a fence is sealed.
pub(super) fn replace_guards(tx: &Connection) -> Result<(), Error> {
    let sql = "SELECT p.relation, p.resource, p.slot, s.name, s.cluster FROM main.leasehold_protected AS p \
               LEFT JOIN main.leasehold_sealed AS s ON s.resource = p.resource AND s.slot = p.slot";
    let mut statement = tx.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        let seal = Option::zip(row.get(3)?, row.get(4)?);
        Ok((row.get(0)?, GuardedBy { hash: row.get(1)?, slot: row.get(2)?, seal }))
    })?;
    let protected: Vec<(String, GuardedBy)> = rows.collect::<Result<_, _>>()?;
    for (table, fence) in protected {
        let is_table = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        if tx.query_row(is_table, [&table], |_| Ok(())).optional()?.is_some() {
            drop_guards(tx, &table)?;
            tx.execute_batch(&protection_statements(&table, &fence))?;
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
        let stored = row::read_mark(&tx, &self.id)?;
        if stored.loss == MarkLoss::Missing {
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
        let fence = GuardedBy::read(&tx, &self.id, stored.sealed)?;
        tx.execute_batch(&protection_statements(table, &fence))?;
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

/// Stores the admission of a transaction for the triggers, if this fence protects tables. `token` was verified, if the fence has keys.
pub(super) fn begin_admission(tx: &Connection, id: &FenceId, number: Number, token: &str) -> Result<(), Error> {
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
    if token.starts_with("lh2-") && row::read_mark(tx, id)?.sealed {
        let sql = "INSERT INTO main.leasehold_admission (resource, slot, number, token) VALUES (?1, ?2, ?3, ?4)";
        tx.prepare_cached(sql)?.execute(params![resource, slot, number, token])?;
    } else {
        // A database before version 5 has no column for the token, and is not sealed.
        tx.prepare_cached("INSERT INTO main.leasehold_admission (resource, slot, number) VALUES (?1, ?2, ?3)")?
            .execute(params![resource, slot, number])?;
    }
    Ok(())
}
