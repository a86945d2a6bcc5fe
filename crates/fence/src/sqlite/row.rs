//! One guarded place's row: reading its mark so that nothing senseless counts as "fresh", and raising it.

use leasehold_core::token::{Cluster, Number};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::place::{Place, Shown};
use crate::{Error, Lost, Mark, Refusal};

/// The mark of a place, and how it is lost if it is.
pub(super) fn mark(db: &Connection, place: &Place) -> Result<(Mark, Lost), Error> {
    let sql = "SELECT cluster, state, mark FROM main.leasehold_fence WHERE resource = ?1 AND slot = ?2";
    let row = db
        .prepare_cached(sql)
        .and_then(|mut found| {
            let values = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            found.query_row(params![place.resource(), place.guarded.slot], values).optional()
        })
        .or_else(missing_table)?;
    let Some((cluster, state, mark)) = row else { return Ok((Mark::Lost, Lost::Missing)) };
    if text(&cluster).and_then(|of| of.parse::<Cluster>().ok()) != Some(place.guarded.cluster) {
        return Err(Refusal::ForeignMark.into());
    }
    Ok(match (text(&state), mark) {
        (Some("fresh"), Value::Null) => (Mark::Fresh, Lost::Unreadable),
        (Some("armed"), Value::Integer(mark)) => (number(mark).map_or(Mark::Lost, Mark::Armed), Lost::Unreadable),
        (Some("lost"), _) => (Mark::Lost, Lost::Declared),
        _ => (Mark::Lost, Lost::Unreadable),
    })
}

/// Keeps the shown number as the mark.
pub(super) fn raise(db: &Connection, place: &Place, shown: Shown) -> Result<(), Error> {
    let sql = "UPDATE main.leasehold_fence SET state = 'armed', mark = ?3, incarnation = ?4, sequence = NULL \
               WHERE resource = ?1 AND slot = ?2";
    let number = i64::try_from(shown.number.get()).expect("a number is below 2^63");
    let incarnation = shown.incarnation.to_string();
    let raised = db.prepare_cached(sql)?.execute(params![place.resource(), place.guarded.slot, number, incarnation])?;
    if raised == 1 { Ok(()) } else { Err(Refusal::Lost(Lost::Missing).into()) }
}

type Row = (Value, Value, Value);

/// Tables that are not there are a mark that is not there.
fn missing_table(error: rusqlite::Error) -> Result<Option<Row>, Error> {
    if no_table(&error) { Ok(None) } else { Err(error.into()) }
}

/// Whether this says that the fence was never installed.
pub(super) fn no_table(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(why)) => why.starts_with("no such table"),
        rusqlite::Error::SqlInputError { msg, .. } => msg.starts_with("no such table"),
        _ => false,
    }
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn number(mark: i64) -> Option<Number> {
    u64::try_from(mark).ok().and_then(Number::new)
}
