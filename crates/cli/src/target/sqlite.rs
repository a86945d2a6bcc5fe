//! `sqlite:PATH`: a database file of this machine.

use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Kept;
use leasehold_fence::sqlite::{Fence, install, survey};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// An existing database: a mistyped path must not make an empty one.
fn open(path: &Path) -> Result<Connection, Failure> {
    if !path.is_file() {
        let missing = format!("{} is no file", path.display());
        return Err(Error::new(Code::InvalidArgument, missing).then("Check the path behind sqlite:.").into());
    }
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)
}

fn failed(error: rusqlite::Error) -> Failure {
    coded("STORAGE_FAILED", &format!("the database failed: {error}; look at the file, then try again"))
}

fn fence(place: &Place) -> Fence {
    Fence::new(place.cluster, place.name(), place.slot)
}

pub fn marks(path: &Path) -> Result<Vec<Kept>, Failure> {
    survey(&open(path)?).map_err(|error| refused(&error))
}

pub fn arm(path: &Path, place: &Place) -> Result<(), Failure> {
    let mut db = open(path)?;
    install(&mut db).and_then(|()| fence(place).arm(&mut db)).map_err(|error| refused(&error))
}

pub fn rearm(path: &Path, place: &Place, floor: Number) -> Result<(), Failure> {
    fence(place).rearm(&mut open(path)?, floor).map_err(|error| refused(&error))
}

pub fn declare_lost(path: &Path, place: &Place) -> Result<(), Failure> {
    fence(place).declare_lost(&mut open(path)?).map_err(|error| refused(&error))
}

pub fn adopt(path: &Path, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    fence(place).adopt(&mut open(path)?, incarnation).map_err(|error| refused(&error))
}

/// By the statement that every language uses, so that the rules asked are those in the database; then by this binary's own,
/// which tell the numbers.
pub fn probe(path: &Path, place: &Place, stale: &str) -> Result<Probed, Failure> {
    let mut db = open(path)?;
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    let plain = tx.execute("INSERT INTO leasehold_admit VALUES (?1, ?2)", [place.resource.as_str(), stale]);
    drop(tx);
    match plain {
        Ok(_) => return Ok(Probed::Admitted),
        Err(error) if error.to_string().contains("no such table") => return Ok(Probed::Missing),
        Err(error) if error.to_string().contains("STALE_TOKEN") || place.slot > 0 => {}
        Err(error) if error.to_string().contains("STORAGE_FAILED") => return Ok(Probed::Lost),
        Err(error) => return Err(failed(error)),
    }
    let tx = Transaction::new(&mut db, TransactionBehavior::Immediate).map_err(failed)?;
    let answer = fence(place).admit(&tx, stale);
    drop(tx);
    probed(answer)
}
