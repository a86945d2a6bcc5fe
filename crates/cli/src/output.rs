//! Output and exit codes of commands: a result on standard output, or one error line on standard error.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use leasehold::{Code, Error};
use serde::Serialize;

use crate::output_format::{OutputFormat, OutputStyle};
use crate::styled_text::StyledText;
use crate::terminal_text::{escape_json, escape_line, escape_lines};
use crate::yaml;

/// Result of a command.
pub type CommandResult = Result<CommandOutput, CommandError>;

/// Output of a command that ran.
pub struct CommandOutput {
    /// Text for standard output; `None` if there is nothing, or if the command already wrote it.
    text: Option<StyledText>,
    /// Additional information for standard error.
    notes: Vec<String>,
    exit: u8,
}

impl CommandOutput {
    /// Nothing is left to print.
    pub const EMPTY: Self = Self { text: None, notes: Vec::new(), exit: 0 };

    /// Exits with the code of a child process that did its own output.
    pub const fn exit_code(exit: u8) -> Self {
        Self { text: None, notes: Vec::new(), exit }
    }

    /// Adds a note for standard error.
    pub fn with_note(mut self, note: Option<String>) -> Self {
        self.notes.extend(note);
        self
    }

    /// Changes the exit code.
    pub fn with_exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }

    /// Removes the text, for example of an empty list, so that a pipe stays empty.
    pub fn without_text(self) -> Self {
        Self { text: None, ..self }
    }

    pub const fn text(&self) -> Option<&StyledText> {
        self.text.as_ref()
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl From<StyledText> for CommandOutput {
    fn from(text: StyledText) -> Self {
        Self { text: Some(text), ..Self::EMPTY }
    }
}

impl From<String> for CommandOutput {
    fn from(text: String) -> Self {
        StyledText::from(text).into()
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

/// A document as YAML, safe to print on a terminal.
fn yaml<T: Serialize>(body: &T) -> String {
    yaml::to_string(&serde_json::to_value(body).expect("all map keys are strings"))
}

/// One document in the format that was asked for; JSON unless that is YAML.
pub fn document<T: Serialize>(format: OutputFormat, body: &T) -> String {
    if format == OutputFormat::Yaml { yaml(body) } else { json(body) }
}

/// One of several documents in a stream. In YAML each starts with a line of its own.
pub fn stream_document<T: Serialize>(format: OutputFormat, body: &T) -> String {
    if format == OutputFormat::Yaml { format!("---\n{}", yaml(body)) } else { json(body) }
}

/// Prints the result of a command and returns the exit code.
pub fn finish(result: CommandResult, style: OutputStyle) -> ExitCode {
    match result {
        Ok(output) => {
            if let Some(text) = &output.text
                && let Err(error) = print_text(text, style.has_color)
            {
                return print_error(&error, style.format);
            }
            output.notes.iter().for_each(|note| print_note(note));
            ExitCode::from(output.exit)
        }
        Err(error) => print_error(&error, style.format),
    }
}

/// Prints additional information on standard error.
pub fn print_note(note: &str) {
    write_stderr(&escape_lines(&format!("leasehold: {note}")));
}

fn print_error(error: &CommandError, format: OutputFormat) -> ExitCode {
    print_problem(error, format);
    ExitCode::from(match error {
        CommandError::Coded(error) => error.exit_code(),
        CommandError::WithExitCode(_, exit) => *exit,
        CommandError::Other(_) => EXIT_OTHER,
    })
}

/// A message for standard error in the format of results, escaped. Each document of a stream can be read by itself.
pub fn message_text(format: OutputFormat, message: &str) -> String {
    match format.is_document() {
        true => stream_document(format, &serde_json::json!({ "detail": message })),
        false => escape_line(&format!("leasehold: {message}")).into_owned(),
    }
}

/// Prints an error on standard error, in the format of results.
pub fn print_problem(error: &CommandError, format: OutputFormat) {
    match error {
        CommandError::Coded(error) | CommandError::WithExitCode(error, _) if format.is_document() => {
            write_stderr(&stream_document(format, &error.body()));
        }
        CommandError::Other(message) if format.is_document() => write_stderr(&message_text(format, message)),
        error => print_stderr(&format!("leasehold: {error}")),
    }
}

/// Reports wrong usage, as a document if the command line asks for one.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let format = OutputFormat::of_raw_args(args);
    if error.use_stderr() && format.is_document() {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let problem = Error::new(Code::InvalidArgument, message).with_next_step("Run the command with --help.");
        write_stderr(&stream_document(format, &problem.body()));
    } else {
        // A closed standard output or error is not an error.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_OTHER))
}

/// Prints text and flushes; control characters other than line breaks are escaped. Returns false if the reader has closed standard output, which is not an error.
pub fn print_line(text: &str) -> Result<bool, CommandError> {
    write_stdout(&escape_lines(text))
}

/// Prints text with its styles, or without them, and flushes. Returns false if the reader has closed standard output.
pub fn print_text(text: &StyledText, has_color: bool) -> Result<bool, CommandError> {
    write_stdout(&text.render(has_color))
}

fn write_stdout(text: &str) -> Result<bool, CommandError> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CommandError::Other(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints one line on standard error; control characters are escaped. A failure is ignored: the exit code still reports the result.
pub fn print_stderr(line: &str) {
    write_stderr(&escape_line(line));
}

/// Prints text that is escaped already.
pub fn write_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
