//! `file:PATH`: a local append log or replaced file. To list marks, PATH can also be a directory of them.

use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::file::{FencedFile, FencedLog, list_marks};
use leasehold_fence::{FenceId, MarkInfo};

use super::{ProbeResult, fence_error, probe_result};
use crate::output::CommandError;

pub fn marks(path: &Path) -> Result<Vec<MarkInfo>, CommandError> {
    if !path.exists() {
        let missing = format!("{} does not exist", path.display());
        return Err(Error::new(Code::InvalidArgument, missing).with_next_step("Check the path after file:.").into());
    }
    list_marks(path).map_err(|error| fence_error(&error))
}

/// Whether the file is an append log, and not a replaced file.
fn is_log(path: &Path) -> bool {
    FencedLog::list_marks(path).is_ok_and(|info| !info.is_empty())
}

fn log(path: &Path, fence_id: &FenceId) -> Result<FencedLog, leasehold_fence::Error> {
    FencedLog::open(path, fence_id)
}

fn replaced(path: &Path, fence_id: &FenceId) -> Result<FencedFile, leasehold_fence::Error> {
    FencedFile::open(path, fence_id)
}

/// Creates a log if the file does not exist; arms an existing file as a replaced file.
pub fn arm(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    let armed = if is_log(path) {
        log(path, fence_id).map(drop)
    } else if path.exists() {
        FencedFile::arm(path, fence_id, Number::FIRST)
    } else {
        FencedLog::create(path, fence_id)
    };
    armed.map_err(|error| fence_error(&error))
}

pub fn rearm(path: &Path, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    let done = if is_log(path) {
        log(path, fence_id).and_then(|mut log| log.rearm(floor))
    } else {
        replaced(path, fence_id).and_then(|file| file.rearm(floor))
    };
    done.map_err(|error| fence_error(&error))
}

pub fn declare_lost(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    let done = if is_log(path) {
        log(path, fence_id).and_then(|mut log| log.declare_lost())
    } else {
        replaced(path, fence_id).and_then(|file| file.declare_lost())
    };
    done.map_err(|error| fence_error(&error))
}

pub fn adopt(path: &Path, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    let done = if is_log(path) {
        log(path, fence_id).and_then(|mut log| log.adopt(incarnation))
    } else {
        replaced(path, fence_id).and_then(|file| file.adopt(incarnation))
    };
    done.map_err(|error| fence_error(&error))
}

/// Probes with a claim: a claim below the mark changes nothing, whether admitted or not.
pub fn probe(path: &Path, fence_id: &FenceId, stale: &str) -> Result<ProbeResult, CommandError> {
    probe_result(if is_log(path) {
        log(path, fence_id).and_then(|mut log| log.claim(stale))
    } else {
        replaced(path, fence_id).and_then(|file| file.claim(stale))
    })
}
