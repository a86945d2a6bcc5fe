//! One guarded place's row: reading its mark so that nothing senseless counts as "fresh", and raising it.

use leasehold_core::token::{Cluster, Incarnation, Number};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::place::{Place, Shown, Standing};
use crate::{Error, Kept, Lost, Mark, Refusal};

const COLUMNS: &str = "cluster, state, mark, incarnation, strict, sequence";

/// A row's columns as they are found, whatever somebody put there.
type Row = [Value; 6];

/// What stands at a place.
pub(super) fn standing(db: &Connection, place: &Place) -> Result<Standing, Error> {
    let sql = format!("SELECT {COLUMNS} FROM main.leasehold_fence WHERE resource = ?1 AND slot = ?2");
    let row = db
        .prepare_cached(&sql)
        .and_then(|mut found| {
            found.query_row(params![place.resource(), place.guarded.slot], |row| values(row, 0)).optional()
        })
        .or_else(|error| if no_table(&error) { Ok(None) } else { Err(error) })
        .map_err(older)?;
    let Some(row) = row else {
        let (mark, lost) = (Mark::Lost, Lost::Missing);
        return Ok(Standing { mark, lost, incarnation: None, strict: false, last: None });
    };
    if cluster(&row) != Some(place.guarded.cluster) {
        return Err(Refusal::ForeignMark.into());
    }
    Ok(read(&row))
}

/// All that is kept in this database.
pub(super) fn survey(db: &Connection) -> Result<Vec<Kept>, Error> {
    let sql = format!("SELECT resource, slot, name, {COLUMNS} FROM main.leasehold_fence ORDER BY name, slot");
    let mut all = match db.prepare(&sql) {
        Err(error) if no_table(&error) => return Ok(Vec::new()),
        prepared => prepared.map_err(older)?,
    };
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, values(row, 3)?)))?;
    rows.map(|row| {
        let (resource, slot, name, row): (String, u32, String, Row) = row?;
        let Standing { mark, incarnation, strict, .. } = read(&row);
        let cluster = cluster(&row).ok_or(Error::Refused(Refusal::ForeignMark))?;
        Ok(Kept { cluster, resource, name: Some(name), slot, mark, incarnation, strict })
    })
    .collect()
}

fn values(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<Row> {
    let value = |column: usize| row.get(from + column);
    Ok([value(0)?, value(1)?, value(2)?, value(3)?, value(4)?, value(5)?])
}

fn read([_, state, mark, incarnation, strict, sequence]: &Row) -> Standing {
    let (mark, lost) = match (text(state), mark) {
        (Some("fresh"), Value::Null) => (Mark::Fresh, Lost::Unreadable),
        (Some("armed"), Value::Integer(mark)) => (number(*mark).map_or(Mark::Lost, Mark::Armed), Lost::Unreadable),
        (Some("lost"), _) => (Mark::Lost, Lost::Declared),
        _ => (Mark::Lost, Lost::Unreadable),
    };
    let last = if let Value::Integer(last) = sequence { u64::try_from(*last).ok() } else { None };
    let incarnation = text(incarnation).and_then(|of| of.parse::<Incarnation>().ok());
    Standing { mark, lost, incarnation, strict: *strict == Value::Integer(1), last }
}

/// Keeps the shown number as the mark, and the sequence of the write under it.
pub(super) fn raise(db: &Connection, place: &Place, shown: Shown, sequence: Option<i64>) -> Result<(), Error> {
    let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, incarnation = ?4, \
               sequence = coalesce(?5, CASE mark WHEN ?3 THEN sequence END) WHERE resource = ?1 AND slot = ?2";
    let number = i64::try_from(shown.number.get()).expect("a number is below 2^63");
    let incarnation = shown.incarnation.to_string();
    let with = params![place.resource(), place.guarded.slot, number, incarnation, sequence];
    let raised = db.prepare_cached(sql)?.execute(with)?;
    if raised == 1 { Ok(()) } else { Err(Refusal::Lost(Lost::Missing).into()) }
}

/// Whether this says that the fence was never installed.
pub(super) fn no_table(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(why)) => why.starts_with("no such table"),
        rusqlite::Error::SqlInputError { msg, .. } => msg.starts_with("no such table"),
        _ => false,
    }
}

/// Version 1 had no strict places.
fn older(error: rusqlite::Error) -> Error {
    if error.to_string().contains("no such column: strict") {
        return Error::Version { have: 1, want: super::VERSION };
    }
    error.into()
}

fn cluster(row: &Row) -> Option<Cluster> {
    text(&row[0]).and_then(|of| of.parse().ok())
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn number(mark: i64) -> Option<Number> {
    u64::try_from(mark).ok().and_then(Number::new)
}
