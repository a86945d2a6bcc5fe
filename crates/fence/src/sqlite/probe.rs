//! Probes protected tables: attempts writes without a token, which are rolled back, and reads which guards the database has.

use std::collections::BTreeMap;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};

use super::protected::{GuardedBy, guard_body, guard_triggers, quoted};
use super::{Fence, SQL, row, schema, seal};
use crate::Error;

/// Message of the trigger that ends a probe's statement after its first row.
const ACCEPTED: &str = "leasehold_probe: a row was changed without a token";
/// Start of the message with which a guard refuses a transaction that presented no token.
const ABSENT: &str = "TOKEN_INVALID: absent";

/// What a probe found at one table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardProbe {
    /// Name of the table.
    pub table: String,
    /// What happened to writes without a token.
    pub finding: GuardFinding,
}

/// What happened to writes without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardFinding {
    /// The database refused them.
    Refused,
    /// The database accepted one; the probe rolled it back.
    Accepted {
        /// The statement: `INSERT`, `UPDATE` or `DELETE`.
        statement: &'static str,
    },
    /// The table has no guard for this statement.
    Unguarded {
        /// The statement: `INSERT`, `UPDATE` or `DELETE`.
        statement: &'static str,
    },
    /// A guard or another trigger of the fence is not the one that this version creates, so that it may refuse less.
    Altered,
    /// The table is protected by another resource or slot.
    OtherFence,
    /// The database has no table of this name.
    NoTable,
}

impl Fence {
    /// Attempts an insert, an update and a delete without a token on each of these tables, and on all tables that this fence
    /// protects. Everything is rolled back. A table without rows shows only that its guards exist for update and delete.
    ///
    /// The stored text of each guard must be the one that this version creates, because a guard with a condition
    /// refuses some writes only. A trigger or view of the fence with another text than in [`super::SQL`] is listed by its name.
    ///
    /// The attempts hold the write lock, and change at most one row before they are rolled back.
    pub fn probe_guards(&self, db: &mut Connection, tables: &[String]) -> Result<Vec<GuardProbe>, Error> {
        let tx = self.begin(db)?;
        // With this setting the attempts also find an admission that an earlier transaction left.
        tx.execute_batch("PRAGMA defer_foreign_keys = ON")?;
        let mut names = self.protected_tables(&tx)?;
        let altered = if names.is_empty() { Vec::new() } else { altered_objects(&tx)? };
        for table in tables {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(table)) {
                names.push(table.clone());
            }
        }
        let object = |table: String| GuardProbe { table, finding: GuardFinding::Altered };
        let mut probes: Vec<GuardProbe> = altered.into_iter().map(object).collect();
        for table in names {
            let finding = self.probe_table(&tx, &table)?;
            probes.push(GuardProbe { table, finding });
        }
        tx.rollback()?;
        Ok(probes)
    }

    fn protected_tables(&self, db: &Connection) -> Result<Vec<String>, Error> {
        let sql = "SELECT relation FROM main.leasehold_protected WHERE resource = ?1 AND slot = ?2 ORDER BY relation";
        let mut statement = match db.prepare(sql) {
            Err(error) if row::is_table_missing(&error) => return Ok(Vec::new()),
            prepared => prepared?,
        };
        let rows = statement.query_map(params![self.id.resource_hash(), self.id.slot()], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn probe_table(&self, tx: &Transaction<'_>, table: &str) -> Result<GuardFinding, Error> {
        let is_table = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
        if tx.query_row(is_table, [table], |_| Ok(())).optional()?.is_none() {
            return Ok(GuardFinding::NoTable);
        }
        if self.is_guarded_by_another_fence(tx, table)? {
            return Ok(GuardFinding::OtherFence);
        }
        let mut altered = false;
        let fence = GuardedBy::read(tx, &self.id, row::read_mark(tx, &self.id)?.sealed)?;
        for (guard, statement) in guard_triggers(table) {
            match stored_guard(tx, table, &guard)? {
                None => return Ok(GuardFinding::Unguarded { statement }),
                Some(stored) => {
                    let body = guard_body(&guard, statement, table, &fence);
                    altered |= stored != format!("CREATE TRIGGER {body}");
                }
            }
        }
        for statement in ["INSERT", "UPDATE", "DELETE"] {
            if is_accepted(tx, table, statement)? {
                return Ok(GuardFinding::Accepted { statement });
            }
        }
        Ok(if altered { GuardFinding::Altered } else { GuardFinding::Refused })
    }

    fn is_guarded_by_another_fence(&self, db: &Connection, table: &str) -> Result<bool, Error> {
        let sql =
            "SELECT (resource, slot) IS NOT (?2, ?3) FROM main.leasehold_protected WHERE relation = ?1 COLLATE NOCASE";
        let other = db.query_row(sql, params![table, self.id.resource_hash(), self.id.slot()], |row| row.get(0));
        match other.optional() {
            Err(error) if row::is_table_missing(&error) => Ok(false),
            other => Ok(other?.unwrap_or(false)),
        }
    }
}

/// The stored text of a guard.
fn stored_guard(db: &Connection, table: &str, quoted_name: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND quoted = ?1 COLLATE NOCASE \
               AND tbl_name = ?2 COLLATE NOCASE";
    let sql = sql.replace("quoted", "'\"' || replace(name, '\"', '\"\"') || '\"'");
    Ok(db.query_row(&sql, [quoted_name, table], |row| row.get(0)).optional()?)
}

/// Triggers and views of the fence that are missing or not those of a new installation, and additional triggers on its tables.
fn altered_objects(db: &Connection) -> Result<Vec<String>, Error> {
    let new = Connection::open_in_memory()?;
    new.execute_batch(SQL)?;
    if row::list_marks(db)?.iter().any(|mark| mark.sealed) {
        new.execute_batch(schema::SEAL)?;
    }
    let (expected, stored) = (checks(&new)?, checks(db)?);
    let differs = |(name, sql): &(&String, &String), other: &BTreeMap<String, String>| other.get(*name) != Some(*sql);
    let mut names: Vec<String> =
        expected.iter().filter(|check| differs(check, &stored)).map(|(name, _)| name.clone()).collect();
    names.extend(stored.keys().filter(|name| !expected.contains_key(*name)).cloned());
    Ok(names)
}

/// The triggers and views of the fence, without the guards of protected tables.
fn checks(db: &Connection) -> Result<BTreeMap<String, String>, Error> {
    let sql = "SELECT name, coalesce(sql, '') FROM main.sqlite_schema \
               WHERE type IN ('trigger', 'view') AND tbl_name LIKE 'leasehold\\_%' ESCAPE '\\'";
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether the database accepts this statement without a token. The statement changes at most one row.
fn is_accepted(tx: &Transaction<'_>, table: &str, statement: &'static str) -> Result<bool, Error> {
    let relation = quoted(table, '"');
    let sql = match statement {
        "INSERT" => format!("INSERT INTO main.{relation} DEFAULT VALUES"),
        "UPDATE" => {
            let column: String =
                tx.query_row("SELECT name FROM pragma_table_info(?1, 'main') LIMIT 1", [table], |row| row.get(0))?;
            let column = quoted(&column, '"');
            format!("UPDATE main.{relation} SET {column} = {column}")
        }
        _ => format!("DELETE FROM main.{relation}"),
    };
    // The guards fire before a row is changed, this trigger after it.
    tx.execute_batch(&format!(
        "CREATE TEMP TRIGGER leasehold_probe AFTER {statement} ON main.{relation} \
         BEGIN SELECT RAISE(ABORT, '{ACCEPTED}'); END"
    ))?;
    let attempt = tx.execute(&sql, []);
    tx.execute_batch("DROP TRIGGER temp.leasehold_probe")?;
    match attempt {
        // Without a row there was nothing to refuse; the guard exists.
        Ok(changed) => Ok(changed > 0),
        Err(error) => refused_by_trigger(error),
    }
}

/// Whether a failed statement got past the guards: `false` if a trigger of the table refused it.
fn refused_by_trigger(error: rusqlite::Error) -> Result<bool, Error> {
    // The guard of a sealed table, on a connection without keys.
    if seal::is_function_missing(&error) {
        return Ok(false);
    }
    let rusqlite::Error::SqliteFailure(failure, message) = &error else { return Err(error.into()) };
    let message = message.as_deref().unwrap_or_default();
    if message.starts_with(ABSENT) {
        return Ok(false);
    }
    if failure.code != ErrorCode::ConstraintViolation {
        return Err(error.into());
    }
    // Another trigger of the table may fire before the guard, whose presence is known. Any other constraint is checked later.
    Ok(message.starts_with(ACCEPTED) || failure.extended_code != rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER)
}
