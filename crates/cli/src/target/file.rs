//! `file:PATH`: a local append log or replaced file. To list marks, PATH can also be a directory of them.

use std::fs::FileType;
use std::io::ErrorKind;
use std::path::Path;

use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::file::{FencedFile, FencedLog, list_marks};
use leasehold_fence::{FenceId, FenceRefusal, MarkInfo, MarkLoss};

use super::fence_error;
use super::probe::{TokenProbe, token_probe};
use crate::output::CommandError;

pub fn marks(path: &Path) -> Result<Vec<MarkInfo>, CommandError> {
    match file_type(path)? {
        Some(_) => list_marks(path).map_err(|error| fence_error(&error)),
        None => Err(invalid_path(path, "does not exist")),
    }
}

/// The type of an existing file or directory. A pipe or a device is refused: opening it could wait forever.
fn file_type(path: &Path) -> Result<Option<FileType>, CommandError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => Ok(Some(metadata.file_type())),
        Ok(_) => Err(invalid_path(path, "is neither a file nor a directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(invalid_path(path, &format!("cannot be read: {error}"))),
    }
}

fn invalid_path(path: &Path, problem: &str) -> CommandError {
    let message = format!("{} {problem}", path.display());
    Error::new(Code::InvalidArgument, message).with_next_step("Check the path after file:.").into()
}

/// What a file is to its fence.
enum FenceFileKind {
    Log,
    Replaced,
    Missing,
}

/// Distinguishes an append log from a replaced file. A log that is damaged or locked is an error, never a replaced file.
fn file_kind(path: &Path) -> Result<FenceFileKind, CommandError> {
    match file_type(path)? {
        None => return Ok(FenceFileKind::Missing),
        Some(kind) if kind.is_dir() => return Err(invalid_path(path, "is a directory")),
        Some(_) => {}
    }
    match FencedLog::list_marks(path) {
        Ok(_) => Ok(FenceFileKind::Log),
        Err(leasehold_fence::Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable))) => {
            Ok(FenceFileKind::Replaced)
        }
        Err(error) => Err(fence_error(&error)),
    }
}

/// Runs an action on an existing log or replaced file.
fn apply<T>(
    path: &Path,
    fence_id: &FenceId,
    on_log: impl FnOnce(FencedLog) -> Result<T, leasehold_fence::Error>,
    on_file: impl FnOnce(FencedFile) -> Result<T, leasehold_fence::Error>,
) -> Result<Result<T, leasehold_fence::Error>, CommandError> {
    Ok(match file_kind(path)? {
        FenceFileKind::Log => log(path, fence_id).and_then(on_log),
        FenceFileKind::Replaced | FenceFileKind::Missing => replaced(path, fence_id).and_then(on_file),
    })
}

fn log(path: &Path, fence_id: &FenceId) -> Result<FencedLog, leasehold_fence::Error> {
    FencedLog::open(path, fence_id)
}

fn replaced(path: &Path, fence_id: &FenceId) -> Result<FencedFile, leasehold_fence::Error> {
    FencedFile::open(path, fence_id)
}

/// Creates a log if the file does not exist; arms an existing file as a replaced file.
pub fn arm(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    let armed = match file_kind(path)? {
        FenceFileKind::Log => log(path, fence_id).map(drop),
        FenceFileKind::Replaced => FencedFile::arm(path, fence_id, Number::FIRST),
        FenceFileKind::Missing => FencedLog::create(path, fence_id),
    };
    armed.map_err(|error| fence_error(&error))
}

pub fn rearm(path: &Path, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    apply(path, fence_id, |mut log| log.rearm(floor), |file| file.rearm(floor))?.map_err(|error| fence_error(&error))
}

pub fn declare_lost(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    apply(path, fence_id, |mut log| log.declare_lost(), |file| file.declare_lost())?
        .map_err(|error| fence_error(&error))
}

pub fn adopt(path: &Path, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    apply(path, fence_id, |mut log| log.adopt(incarnation), |file| file.adopt(incarnation))?
        .map_err(|error| fence_error(&error))
}

pub fn seal(path: &Path, fence_id: &FenceId) -> Result<(), CommandError> {
    apply(path, fence_id, |mut log| log.seal(), |file| file.seal())?.map_err(|error| fence_error(&error))
}

/// Probes with a claim: a claim below the mark changes nothing, whether admitted or not.
pub fn probe(path: &Path, fence_id: &FenceId, stale: &str) -> Result<TokenProbe, CommandError> {
    token_probe(apply(path, fence_id, |mut log| log.claim(stale), |file| file.claim(stale))?)
}
