//! Reads and raises the mark in a fence's row. An invalid row is a lost mark, never a fresh one.

use leasehold_core::token::{Cluster, Incarnation, Number};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::admission::{PresentedToken, StoredMark};
use crate::{Error, FenceId, FenceRefusal, Mark, MarkInfo, MarkLoss};

const COLUMNS: &str = "cluster, state, mark, incarnation, strict, sequence";
/// Whether the fence is sealed, as a column of its row. Databases before version 5 have no such table.
const IS_SEALED: &str =
    "EXISTS (SELECT 1 FROM main.leasehold_sealed AS s WHERE s.resource = f.resource AND s.slot = f.slot)";

/// Column values of a row, unvalidated.
type RowValues = [Value; 7];

/// Reads the stored mark of a fence.
pub(super) fn read_mark(db: &Connection, id: &FenceId) -> Result<StoredMark, Error> {
    let read = |sealed: &str| {
        let sql =
            format!("SELECT {COLUMNS}, {sealed} FROM main.leasehold_fence AS f WHERE resource = ?1 AND slot = ?2");
        db.prepare_cached(&sql)?.query_row(params![id.resource_hash(), id.slot()], |row| values(row, 0)).optional()
    };
    let row = read(IS_SEALED)
        .or_else(|error| if is_seal_table_missing(&error) { read("0") } else { Err(error) })
        .or_else(|error| if is_table_missing(&error) { Ok(None) } else { Err(error) })
        .map_err(version_error)?;
    let Some(row) = row else {
        let (mark, lost) = (Mark::Lost, MarkLoss::Missing);
        return Ok(StoredMark {
            mark,
            loss: lost,
            incarnation: None,
            strict: false,
            sealed: false,
            last_sequence: None,
        });
    };
    if cluster(&row) != Some(id.cluster()) {
        return Err(FenceRefusal::ForeignMark.into());
    }
    Ok(decode(&row))
}

/// Lists all marks of this database.
pub(super) fn list_marks(db: &Connection) -> Result<Vec<MarkInfo>, Error> {
    let prepare = |sealed: &str| {
        let columns = format!("resource, slot, name, {COLUMNS}, {sealed}");
        db.prepare(&format!("SELECT {columns} FROM main.leasehold_fence AS f ORDER BY name, slot"))
    };
    let prepared =
        prepare(IS_SEALED).or_else(|error| if is_seal_table_missing(&error) { prepare("0") } else { Err(error) });
    let mut statement = match prepared {
        Err(error) if is_table_missing(&error) => return Ok(Vec::new()),
        prepared => prepared.map_err(version_error)?,
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, values(row, 3)?)))?;
    rows.map(|row| {
        let (resource_hash, slot, name, row): (String, u32, String, RowValues) = row?;
        let StoredMark { mark, incarnation, strict, sealed, .. } = decode(&row);
        let cluster = cluster(&row).ok_or(Error::Refused(FenceRefusal::ForeignMark))?;
        Ok(MarkInfo { cluster, resource_hash, name: Some(name), slot, mark, incarnation, strict, sealed })
    })
    .collect()
}

fn values(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<RowValues> {
    let value = |column: usize| row.get(first + column);
    Ok([value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?, value(6)?])
}

fn decode([_, state, mark, incarnation, strict, sequence, sealed]: &RowValues) -> StoredMark {
    let (mark, lost) = match (text(state), mark) {
        (Some("fresh"), Value::Null) => (Mark::Fresh, MarkLoss::Unreadable),
        (Some("armed"), Value::Integer(mark)) => (number(*mark).map_or(Mark::Lost, Mark::Armed), MarkLoss::Unreadable),
        (Some("lost"), _) => (Mark::Lost, MarkLoss::Declared),
        _ => (Mark::Lost, MarkLoss::Unreadable),
    };
    let last = if let Value::Integer(last) = sequence { u64::try_from(*last).ok() } else { None };
    let incarnation = text(incarnation).and_then(|text| text.parse::<Incarnation>().ok());
    let (strict, sealed) = (*strict == Value::Integer(1), *sealed != Value::Integer(0));
    StoredMark { mark, loss: lost, incarnation, strict, sealed, last_sequence: last }
}

/// Stores the presented number as the mark, and the sequence of the write.
pub(super) fn raise_mark(
    db: &Connection,
    id: &FenceId,
    presented: PresentedToken,
    sequence: Option<i64>,
) -> Result<(), Error> {
    let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, incarnation = ?4, \
               sequence = coalesce(?5, CASE mark WHEN ?3 THEN sequence END) WHERE resource = ?1 AND slot = ?2";
    let number = i64::try_from(presented.number.get()).expect("a number is below 2^63");
    let incarnation = presented.incarnation.to_string();
    let params = params![id.resource_hash(), id.slot(), number, incarnation, sequence];
    let changed = db.prepare_cached(sql)?.execute(params)?;
    if changed == 1 { Ok(()) } else { Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()) }
}

/// Whether the database has no table of seals, because it is older than version 5.
fn is_seal_table_missing(error: &rusqlite::Error) -> bool {
    is_table_missing(error) && error.to_string().contains("leasehold_sealed")
}

/// Whether the fence is not installed.
pub(super) fn is_table_missing(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.starts_with("no such table"),
        rusqlite::Error::SqlInputError { msg, .. } => msg.starts_with("no such table"),
        _ => false,
    }
}

/// Converts a query error; version 1 has no column `strict`.
fn version_error(error: rusqlite::Error) -> Error {
    if error.to_string().contains("no such column: strict") {
        return Error::Version { found: 1, supported: super::VERSION };
    }
    error.into()
}

fn cluster(row: &RowValues) -> Option<Cluster> {
    text(&row[0]).and_then(|text| text.parse().ok())
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn number(mark: i64) -> Option<Number> {
    u64::try_from(mark).ok().and_then(Number::new)
}
