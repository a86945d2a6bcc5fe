//! How a command ends: an answer on standard output, or one line on standard error and the exit code of its code.

use std::io::{self, Write};
use std::process::ExitCode;

use leasehold::{Code, Error};
use serde::Serialize;

/// What a command leaves.
pub type Outcome = Result<Answer, Failure>;

/// What a command has to say.
pub struct Answer {
    /// For standard output; nothing if it was written already.
    text: Option<String>,
    /// For standard error: what the reader should know beside the answer.
    note: Option<String>,
    exit: u8,
}

impl Answer {
    /// The answer has been written already.
    pub const WRITTEN: Self = Self { text: None, note: None, exit: 0 };

    /// Somebody else has answered, and how that ended is passed on.
    pub const fn ended(exit: u8) -> Self {
        Self { exit, ..Self::WRITTEN }
    }

    /// An answer that is not what was hoped for.
    pub fn but(text: String, note: String, exit: u8) -> Self {
        Self { text: Some(text), note: Some(note), exit }
    }

    /// The same answer with a word beside it.
    pub fn noting(self, note: Option<String>) -> Self {
        Self { note, ..self }
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text: Some(text), note: None, exit: 0 }
    }
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// With a stable code.
    Coded(Error),
    /// The same, with an exit code that the caller chose.
    Ending(Error, u8),
    /// Without one.
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Coded(error)
    }
}

/// A failure with its stable code; what it says ends with the next step already.
pub fn coded(word: &str, why: &dyn std::fmt::Display) -> Failure {
    match Code::from_word(word) {
        Some(code) => Error::new(code, why.to_string()).into(),
        None => Failure::Other(why.to_string()),
    }
}

/// Anything that has no code of its own.
const EXIT_OTHER: u8 = 1;

/// One JSON document on one line.
pub fn json<T: Serialize>(body: &T) -> String {
    serde_json::to_string(body).expect("a body has only texts for keys")
}

/// Prints what a command left.
pub fn finish(outcome: Outcome, in_json: bool) -> ExitCode {
    match outcome {
        Ok(answer) => {
            if let Some(text) = &answer.text
                && let Err(failure) = print(text)
            {
                return failed(&failure, in_json);
            }
            if let Some(note) = answer.note {
                complain(&format!("leasehold: {note}"));
            }
            ExitCode::from(answer.exit)
        }
        Err(failure) => failed(&failure, in_json),
    }
}

fn failed(failure: &Failure, in_json: bool) -> ExitCode {
    let coded = |error: &Error, exit| {
        complain(&if in_json { json(&error.body()) } else { format!("leasehold: {error}") });
        ExitCode::from(exit)
    };
    match failure {
        Failure::Coded(error) => coded(error, error.exit()),
        Failure::Ending(error, exit) => coded(error, *exit),
        Failure::Other(why) => {
            complain(&if in_json { json(&serde_json::json!({ "detail": why })) } else { format!("leasehold: {why}") });
            ExitCode::from(EXIT_OTHER)
        }
    }
}

/// Wrong usage. Whoever asked for JSON gets it here too.
pub fn misused(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        let said = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let told = Error::new(Code::InvalidArgument, said).then("Read the command's --help.");
        complain(&json(&told.body()));
    } else {
        // A reader that went away has read enough.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_OTHER))
}

/// Whether the reader still reads. One that went away has read enough: that is no failure.
pub fn write(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Other(format!("cannot write to standard output: {error}"))),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    write(text).map(drop)
}

/// If standard error is gone too, the exit code still tells.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
