//! `file:PATH`: an append log or a replaced file of this machine; for a survey also a folder of them.

use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Kept;
use leasehold_fence::file::{Log, Replace, survey};

use super::{Place, Probed, probed, refused};
use crate::told::Failure;

pub fn marks(path: &Path) -> Result<Vec<Kept>, Failure> {
    if !path.exists() {
        let missing = format!("{} is not there", path.display());
        return Err(Error::new(Code::InvalidArgument, missing).then("Check the path behind file:.").into());
    }
    survey(path).map_err(|error| refused(&error))
}

/// Which of the two kinds stands there.
fn is_log(path: &Path) -> bool {
    Log::survey(path).is_ok_and(|kept| !kept.is_empty())
}

fn log(path: &Path, place: &Place) -> Result<Log, leasehold_fence::Error> {
    Log::open(path, place.cluster, place.name(), place.slot)
}

fn replaced(path: &Path, place: &Place) -> Result<Replace, leasehold_fence::Error> {
    Replace::open(path, place.cluster, place.name(), place.slot)
}

/// A new log where nothing stands; a file that is there is armed to be replaced.
pub fn arm(path: &Path, place: &Place) -> Result<(), Failure> {
    let armed = if is_log(path) {
        log(path, place).map(drop)
    } else if path.exists() {
        Replace::arm(path, place.cluster, place.name(), place.slot, Number::FIRST)
    } else {
        Log::create(path, place.cluster, place.name(), place.slot)
    };
    armed.map_err(|error| refused(&error))
}

pub fn rearm(path: &Path, place: &Place, floor: Number) -> Result<(), Failure> {
    let done = if is_log(path) {
        log(path, place).and_then(|mut log| log.rearm(floor))
    } else {
        replaced(path, place).and_then(|file| file.rearm(floor))
    };
    done.map_err(|error| refused(&error))
}

pub fn declare_lost(path: &Path, place: &Place) -> Result<(), Failure> {
    let done = if is_log(path) {
        log(path, place).and_then(|mut log| log.declare_lost())
    } else {
        replaced(path, place).and_then(|file| file.declare_lost())
    };
    done.map_err(|error| refused(&error))
}

pub fn adopt(path: &Path, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    let done = if is_log(path) {
        log(path, place).and_then(|mut log| log.adopt(incarnation))
    } else {
        replaced(path, place).and_then(|file| file.adopt(incarnation))
    };
    done.map_err(|error| refused(&error))
}

/// By a claim: one below the mark leaves nothing behind, admitted or not.
pub fn probe(path: &Path, place: &Place, stale: &str) -> Result<Probed, Failure> {
    probed(if is_log(path) {
        log(path, place).and_then(|mut log| log.claim(stale))
    } else {
        replaced(path, place).and_then(|file| file.claim(stale))
    })
}
