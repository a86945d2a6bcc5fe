//! The starter becomes the command: only a process itself can ask to die with its parent, and what it asked for stays.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::told::complain;

/// The word by which the binary knows that it is a starter.
pub const WORD: &str = "__start";

/// What shells end with when there is no such command, and when it cannot be run.
pub const NOT_FOUND: u8 = 127;
pub const NOT_RUN: u8 = 126;

/// `WORD PARENT COMMAND…`
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|text| text.to_str()?.parse::<i32>().ok());
    let Some(command) = args.next() else {
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
    complain(&format!("leasehold: {}: {why}", command.to_string_lossy()));
    ExitCode::from(exit)
}
