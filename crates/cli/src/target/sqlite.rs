//! `sqlite:PATH`: a local SQLite database file.

use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::sqlite::{Fence, install, list_marks};
use leasehold_fence::{FenceId, MarkInfo};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{ProbeResult, fence_error, probe_result};
use crate::output::{CommandError, error_with_code};

/// Opens an existing database: a mistyped path must not create an empty one.
fn open(path: &Path) -> Result<Connection, CommandError> {
    if !path.is_file() {
        let missing = format!("{} is not a file", path.display());
        return Err(Error::new(Code::InvalidArgument, missing).with_next_step("Check the path after sqlite:.").into());
    }
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)
}

fn failed(error: rusqlite::Error) -> CommandError {
    error_with_code("STORAGE_FAILED", &format!("database error: {error}; check the file, then retry"))
}

fn fence(fence_id: &FenceId) -> Fence {
    Fence::new(fence_id)
}

pub fn marks(path: &Path) -> Result<Vec<MarkInfo>, CommandError> {
    list_marks(&open(path)?).map_err(|error| fence_error(&error))
}

pub fn arm(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    let mut db = open(path)?;
    install(&mut db).and_then(|()| fence(fence_id).arm(&mut db)).map_err(|error| fence_error(&error))
}

pub fn rearm(path: &Path, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    fence(fence_id).rearm(&mut open(path)?, floor).map_err(|error| fence_error(&error))
}

pub fn declare_lost(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(fence_id).declare_lost(&mut open(path)?).map_err(|error| fence_error(&error))
}

pub fn adopt(path: &Path, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    fence(fence_id).adopt(&mut open(path)?, incarnation).map_err(|error| fence_error(&error))
}

/// Probes first with the SQL statement that every language uses, so that the triggers in the database decide; then with the
/// library, which reports the numbers.
pub fn probe(path: &Path, fence_id: &FenceId, stale: &str) -> Result<ProbeResult, CommandError> {
    let mut db = open(path)?;
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    let inserted = tx.execute("INSERT INTO leasehold_admit VALUES (?1, ?2)", [fence_id.resource(), stale]);
    drop(tx);
    match inserted {
        Ok(_) => return Ok(ProbeResult::Admitted),
        Err(error) if error.to_string().contains("no such table") => return Ok(ProbeResult::Missing),
        Err(error) if error.to_string().contains("STALE_TOKEN") || fence_id.slot() > 0 => {}
        Err(error) if error.to_string().contains("STORAGE_FAILED") => return Ok(ProbeResult::Lost),
        Err(error) => return Err(failed(error)),
    }
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    let verdict = fence(fence_id).admit(&tx, stale);
    drop(tx);
    probe_result(verdict)
}
