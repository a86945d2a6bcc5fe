//! `sqlite:PATH`: a local SQLite database file.

use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::sqlite::{Fence, GuardFinding, install, list_marks};
use leasehold_fence::{FenceId, MarkInfo};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::fence_error;
use super::probe::{TableFinding, TokenProbe, WriteProbe, token_probe};
use crate::output::{CommandError, error_with_code};

/// Opens an existing database: a mistyped path must not create an empty one.
fn open(path: &Path) -> Result<Connection, CommandError> {
    if !path.is_file() {
        let missing = format!("{} is not a file", path.display());
        return Err(Error::new(Code::InvalidArgument, missing).with_next_step("Check the path after sqlite:.").into());
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    // The strictest setting suits every journal mode, and is of this connection only.
    db.pragma_update(None, "synchronous", "EXTRA").map_err(failed)?;
    Ok(db)
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

pub fn seal(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(fence_id).seal(&mut open(path)?).map_err(|error| fence_error(&error))
}

pub fn protect(path: &Path, fence_id: &FenceId, table: &str) -> Result<(), CommandError> {
    fence(fence_id).protect(&mut open(path)?, table).map_err(|error| fence_error(&error))
}

/// Attempts writes without a token to the protected tables and to those that the address lists.
pub fn probe_writes(path: &Path, fence_id: &FenceId, tables: &[String]) -> Result<WriteProbe, CommandError> {
    let probes = fence(fence_id).probe_guards(&mut open(path)?, tables).map_err(|error| fence_error(&error))?;
    let finding = |finding: GuardFinding| match finding {
        GuardFinding::Refused => None,
        GuardFinding::Accepted { statement } => Some(format!("{statement} without a token was accepted")),
        GuardFinding::Unguarded { statement } => Some(format!("no guard for {statement}")),
        GuardFinding::Altered => Some("not the trigger of this version, so that it may refuse less".to_owned()),
        GuardFinding::OtherFence => Some("protected by another resource or slot".to_owned()),
        GuardFinding::NoTable => Some("no such table".to_owned()),
        _ => Some("not protected".to_owned()),
    };
    let (mut refused, mut findings) = (Vec::new(), Vec::new());
    for probe in probes {
        match finding(probe.finding) {
            None => refused.push(probe.table),
            Some(finding) => findings.push(TableFinding { table: probe.table, finding }),
        }
    }
    Ok(WriteProbe::Attempted { refused, findings })
}

/// Probes first with the SQL statement that every language uses, so that the triggers in the database decide; then with the
/// library, which reports the numbers.
pub fn probe(path: &Path, fence_id: &FenceId, stale: &str) -> Result<TokenProbe, CommandError> {
    let mut db = open(path)?;
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    // A fence that admits the token needs the setting for protected tables.
    tx.execute_batch("PRAGMA defer_foreign_keys = ON").map_err(failed)?;
    let inserted = tx.execute("INSERT INTO leasehold_admit VALUES (?1, ?2)", [fence_id.resource(), stale]);
    drop(tx);
    match inserted {
        Ok(_) => return Ok(TokenProbe::Admitted),
        Err(error) if error.to_string().contains("no such table") => return Ok(TokenProbe::Missing),
        Err(error) if error.to_string().contains("no such function: leasehold_verify") => {
            return Ok(TokenProbe::Sealed);
        }
        Err(error) if error.to_string().contains("STALE_TOKEN") || fence_id.slot() > 0 => {}
        Err(error) if error.to_string().contains("WRONG_CLUSTER") => return Ok(TokenProbe::Foreign(None)),
        Err(error) if error.to_string().contains("STORAGE_FAILED") => return Ok(TokenProbe::Lost),
        Err(error) => return Err(failed(error)),
    }
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    let verdict = fence(fence_id).admit(&tx, stale);
    drop(tx);
    token_probe(verdict)
}
