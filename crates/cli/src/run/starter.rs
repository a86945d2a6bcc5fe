//! The starter becomes the command: only a process itself can ask to die with its parent, and what it asked for stays.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::place;
use super::talk::Unstarted;
use crate::told::json;

/// The word by which the binary knows that it is a starter.
pub const WORD: &str = "__start";

/// What shells end with when there is no such command, and when it cannot be run.
pub const NOT_FOUND: u8 = 127;
pub const NOT_RUN: u8 = 126;

/// `WORD PARENT DIRECTORY COMMAND…`
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|text| text.to_str()?.parse::<i32>().ok());
    let (Some(directory), Some(command)) = (args.next(), args.next()) else {
        return ExitCode::from(NOT_FOUND);
    };
    // If the minder died before this was asked for, there is nobody left to say so.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    if bound.is_err() || getppid().map(|pid| pid.as_raw_pid()) != parent {
        return ExitCode::from(NOT_RUN);
    }
    let error = Command::new(&command).args(args).exec();
    let (exit, why) = match error.kind() {
        io::ErrorKind::NotFound => {
            (NOT_FOUND, "no such command; name a program, or put its directory into PATH".into())
        }
        io::ErrorKind::PermissionDenied => (NOT_RUN, "it may not be run; look at its mode".into()),
        _ => (NOT_RUN, error.to_string()),
    };
    // A command may end with the same code: only this note tells them apart. Without it the code must do.
    let note = Unstarted { exit, why: format!("{}: {why}", command.to_string_lossy()) };
    let _ = std::fs::write(place::unstarted(Path::new(&directory)), json(&note));
    ExitCode::from(exit)
}

/// This binary once more, to be killed when this thread ends, standing still or not. Notes go into this directory.
pub fn dies_with_us(notes: &Path) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    program_dies_with_us(notes, program)
}

/// The same with another program.
pub fn program_dies_with_us(notes: &Path, program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WORD).arg(std::process::id().to_string()).arg(notes).arg(program);
    Ok(command)
}

/// Takes the note that a starter left in its wrapper's directory, if it did.
pub fn unstarted(directory: &Path) -> Option<Unstarted> {
    let path = place::unstarted(directory);
    let note = std::fs::read(&path).ok()?;
    // The next command may start.
    let _ = std::fs::remove_file(path);
    serde_json::from_slice(&note).ok()
}
