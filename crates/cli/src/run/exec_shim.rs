//! The exec shim: sets PR_SET_PDEATHSIG, so that the kernel kills it with its parent, and then executes a program.
//!
//! Only a process itself can set this, and the setting survives `exec`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::ipc::StartError;
use super::runtime_dir;
use crate::output::json;

/// Internal subcommand that starts an exec shim.
pub const SUBCOMMAND: &str = "__exec";

/// Exit codes of shells for a command that is not found, and for one that cannot be executed.
pub const NOT_FOUND: u8 = 127;
pub const NOT_RUN: u8 = 126;

/// `SUBCOMMAND PARENT DIRECTORY COMMAND…`
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|text| text.to_str()?.parse::<i32>().ok());
    let (Some(directory), Some(command)) = (args.next(), args.next()) else {
        return ExitCode::from(NOT_FOUND);
    };
    // If the parent died before this call, no signal follows: compare the parent's id.
    let set = set_parent_process_death_signal(Some(Signal::KILL));
    if set.is_err() || getppid().map(|pid| pid.as_raw_pid()) != parent {
        return ExitCode::from(NOT_RUN);
    }
    let error = Command::new(&command).args(args).exec();
    let (exit, message) = match error.kind() {
        io::ErrorKind::NotFound if Path::new(&command).is_file() => {
            (NOT_RUN, "its interpreter was not found; check the first line of the file".into())
        }
        io::ErrorKind::NotFound => {
            (NOT_FOUND, "command not found; check the name, or add its directory to PATH".into())
        }
        io::ErrorKind::PermissionDenied => (NOT_RUN, "permission denied; check the file mode".into()),
        _ => (NOT_RUN, format!("{error}; check the command and its arguments")),
    };
    // A command may exit with the same code; only this file distinguishes the two. If it cannot be written, the code remains.
    let error = StartError { exit, message: format!("{}: {message}", command.to_string_lossy()) };
    let _ = std::fs::write(runtime_dir::start_error(Path::new(&directory)), json(&error));
    ExitCode::from(exit)
}

/// A command for this binary that the kernel kills when the calling thread ends. A start error is written into `directory`.
pub fn pdeathsig_self(directory: &Path) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    pdeathsig_program(directory, program)
}

/// A command for a program that the kernel kills when the calling thread ends. A start error is written into `directory`.
pub fn pdeathsig_program(directory: &Path, program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SUBCOMMAND).arg(std::process::id().to_string()).arg(directory).arg(program);
    Ok(command)
}

/// Reads and removes the start error that an exec shim left in `directory`.
pub fn take_start_error(directory: &Path) -> Option<StartError> {
    let path = runtime_dir::start_error(directory);
    let error = std::fs::read(&path).ok()?;
    // It must not apply to the next command.
    let _ = std::fs::remove_file(path);
    serde_json::from_slice(&error).ok()
}
