//! Output and exit codes of commands: a result on standard output, or one error line on standard error.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use leasehold::{Code, Error};
use serde::Serialize;

use crate::terminal_text::{escape_json, escape_line, escape_lines};

/// Result of a command.
pub type CommandResult = Result<CommandOutput, CommandError>;

/// Output of a command that ran.
pub struct CommandOutput {
    /// Text for standard output; `None` if the command already wrote it.
    text: Option<String>,
    /// Additional information for standard error.
    note: Option<String>,
    exit: u8,
}

impl CommandOutput {
    /// Nothing is left to print.
    pub const EMPTY: Self = Self { text: None, note: None, exit: 0 };

    /// Exits with the code of a child process that did its own output.
    pub const fn exit_code(exit: u8) -> Self {
        Self { exit, ..Self::EMPTY }
    }

    /// Output with a note and an exit code other than 0.
    pub fn with_exit_code(text: String, note: String, exit: u8) -> Self {
        Self { text: Some(text), note: Some(note), exit }
    }

    /// Adds a note for standard error.
    pub fn with_note(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }

    /// Exits with this code.
    pub fn with_exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }
}

impl From<String> for CommandOutput {
    fn from(text: String) -> Self {
        Self { text: Some(text), note: None, exit: 0 }
    }
}

/// Error of a command.
#[derive(Debug)]
pub enum CommandError {
    /// An error with a stable code, which determines the exit code.
    Coded(Error),
    /// An error with a stable code and its own exit code.
    WithExitCode(Error, u8),
    /// An error without a code.
    Other(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coded(error) | Self::WithExitCode(error, _) => error.fmt(f),
            Self::Other(message) => f.write_str(message),
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        Self::Coded(error)
    }
}

/// An error with the stable code `word`. The message already contains the next step.
pub fn error_with_code(word: &str, message: &dyn fmt::Display) -> CommandError {
    match Code::from_word(word) {
        Some(code) => Error::new(code, message.to_string()).into(),
        None => CommandError::Other(message.to_string()),
    }
}

/// Exit code of errors without a stable code.
const EXIT_OTHER: u8 = 1;

/// One JSON document on one line, safe to print on a terminal.
pub fn json<T: Serialize>(body: &T) -> String {
    escape_json(serde_json::to_string(body).expect("all map keys are strings"))
}

/// Prints the result of a command and returns the exit code.
pub fn finish(result: CommandResult, in_json: bool) -> ExitCode {
    match result {
        Ok(output) => {
            if let Some(text) = &output.text
                && let Err(error) = print_line(text)
            {
                return print_error(&error, in_json);
            }
            if let Some(note) = output.note {
                write_stderr(&escape_lines(&format!("leasehold: {note}")));
            }
            ExitCode::from(output.exit)
        }
        Err(error) => print_error(&error, in_json),
    }
}

fn print_error(error: &CommandError, in_json: bool) -> ExitCode {
    let print_coded = |error: &Error, exit| {
        print_stderr(&if in_json { json(&error.body()) } else { format!("leasehold: {error}") });
        ExitCode::from(exit)
    };
    match error {
        CommandError::Coded(error) => print_coded(error, error.exit_code()),
        CommandError::WithExitCode(error, exit) => print_coded(error, *exit),
        CommandError::Other(message) => {
            let body = serde_json::json!({ "detail": message });
            print_stderr(&if in_json { json(&body) } else { format!("leasehold: {message}") });
            ExitCode::from(EXIT_OTHER)
        }
    }
}

/// Reports wrong usage, as JSON if `--json` is present.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let problem = Error::new(Code::InvalidArgument, message).with_next_step("Run the command with --help.");
        print_stderr(&json(&problem.body()));
    } else {
        // A closed standard output or error is not an error.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_OTHER))
}

/// Prints text and flushes; control characters other than line breaks are escaped. Returns false if the reader has closed standard output, which is not an error.
pub fn print_line(text: &str) -> Result<bool, CommandError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", escape_lines(text)).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandError::Other(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints one line on standard error; control characters are escaped. A failure is ignored: the exit code still reports the result.
pub fn print_stderr(line: &str) {
    write_stderr(&escape_line(line));
}

fn write_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
