//! Forced mode: triggers of the database refuse a write to a protected table from whoever was not admitted (F3).
//!
//! SQLite has no word for "this transaction". So an admission is a row whose foreign key points to nothing and is looked at
//! when the transaction commits: it must be gone by then, and cannot be left to anybody.

use leasehold_core::name::{Name, resource_hash};
use leasehold_core::token::Number;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Fence, row};
use crate::place::Place;
use crate::{Error, Lost, Refusal};

/// The statements that protect a table, for who runs them by hand.
pub fn protection(table: &str, resource: Name<'_>, slot: u32) -> String {
    let hash = format!("{:016x}", u64::from_be_bytes(resource_hash(resource.as_str())));
    let (relation, list) = (quoted(table, '"'), quoted(table, '\''));
    let mut sql = format!("INSERT OR REPLACE INTO leasehold_protected VALUES ({list}, '{hash}', {slot});\n");
    for (name, what) in guards(table) {
        sql += &format!(
            "CREATE TRIGGER IF NOT EXISTS {name} BEFORE {what} ON {relation} BEGIN\n  \
             SELECT RAISE(ABORT, 'TOKEN_INVALID: absent') WHERE NOT EXISTS (\n    \
             SELECT 1 FROM leasehold_inside WHERE resource = '{hash}' AND slot = {slot});\nEND;\n"
        );
    }
    sql
}

fn guards(table: &str) -> [(String, &'static str); 3] {
    ["INSERT", "UPDATE", "DELETE"].map(|what| (quoted(&format!("leasehold_guards_{table}_{what}"), '"'), what))
}

fn quoted(text: &str, mark: char) -> String {
    format!("{mark}{}{mark}", text.replace(mark, &format!("{mark}{mark}")))
}

impl Fence {
    /// Lets the database itself refuse every insert, update and delete in this table, from any process and any language, in a
    /// transaction that did not show a current token of this place.
    pub fn protect(&self, db: &mut Connection, table: &str) -> Result<(), Error> {
        let name = Name::parse(&self.place.name).expect("it was parsed when the fence was made");
        let slot = self.place.guarded.slot;
        let tx = self.enter(db)?;
        if row::standing(&tx, &self.place)?.lost == Lost::Missing {
            return Err(Refusal::Lost(Lost::Missing).into());
        }
        let own = "SELECT type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' FROM main.sqlite_schema WHERE name = ?1 \
                   AND name NOT LIKE 'leasehold\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        if tx.query_row(own, [table], |row| row.get(0)).optional()? != Some(true) {
            return Err(Error::Conflict("only a table of this database can be protected; name one as it was created"));
        }
        let by = "SELECT (resource, slot) = (?2, ?3) FROM main.leasehold_protected WHERE relation = ?1";
        let same = tx.query_row(by, params![table, self.place.resource(), slot], |row| row.get(0)).optional()?;
        if same == Some(false) {
            return Err(Error::Conflict("the table is protected by another resource or slot; unprotect it first"));
        }
        tx.execute_batch(&protection(table, name, slot))?;
        tx.commit()?;
        Ok(())
    }

    /// Takes that back.
    pub fn unprotect(&self, db: &mut Connection, table: &str) -> Result<(), Error> {
        let tx = self.enter(db)?;
        tx.execute("DELETE FROM main.leasehold_protected WHERE relation = ?1", [table])?;
        for (name, _) in guards(table) {
            tx.execute_batch(&format!("DROP TRIGGER IF EXISTS main.{name}"))?;
        }
        tx.commit()?;
        Ok(())
    }

    /// The last act in a transaction of the caller's own that was admitted to protected tables: without it the commit fails.
    pub fn leave(&self, tx: &Connection) -> Result<(), Error> {
        let sql = "DELETE FROM main.leasehold_inside WHERE resource = ?1 AND slot = ?2";
        tx.prepare_cached(sql)?.execute(params![self.place.resource(), self.place.guarded.slot])?;
        Ok(())
    }
}

/// Lets the rest of an admitted transaction pass the triggers, where there are any.
pub(super) fn enter(tx: &Connection, place: &Place, number: Number) -> Result<(), Error> {
    let (resource, slot) = (place.resource(), place.guarded.slot);
    let any = "SELECT 1 FROM main.leasehold_protected WHERE resource = ?1 AND slot = ?2 LIMIT 1";
    if tx.prepare_cached(any)?.query_row(params![resource, slot], |_| Ok(())).optional()?.is_none() {
        return Ok(());
    }
    if !tx.query_row("PRAGMA foreign_keys", [], |row| row.get::<_, bool>(0))? {
        return Err(Error::Misplaced(
            "PRAGMA foreign_keys is OFF, and a protected table needs it; set it to ON before the transaction",
        ));
    }
    let sql = "INSERT INTO main.leasehold_inside (resource, slot, number) SELECT ?1, ?2, ?3 WHERE NOT EXISTS \
               (SELECT 1 FROM main.leasehold_inside WHERE resource = ?1 AND slot = ?2 AND number = ?3)";
    let number = i64::try_from(number.get()).expect("a number is below 2^63");
    tx.prepare_cached("DELETE FROM main.leasehold_inside WHERE resource = ?1 AND slot = ?2 AND number <> ?3")?
        .execute(params![resource, slot, number])?;
    tx.prepare_cached(sql)?.execute(params![resource, slot, number])?;
    Ok(())
}
