//! Files in TOML that people edit: one error with line and key for all of them.

use std::fmt;

use serde::de::DeserializeOwned;

/// A file is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlFileError {
    /// The line, from 1.
    pub line: Option<u64>,
    /// The key; empty if the error concerns no key.
    pub key: String,
    /// What is wrong, and the next step.
    pub message: String,
}

impl TomlFileError {
    /// An error that concerns the whole file.
    pub(crate) fn of_file(key: &str, message: String) -> Self {
        Self { line: None, key: key.to_owned(), message }
    }

    /// An error at a byte offset of the text.
    pub(crate) fn at(text: &str, offset: usize, key: &str, message: String) -> Self {
        Self { line: Some(line_of(text, offset)), key: key.to_owned(), message }
    }
}

impl fmt::Display for TomlFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for TomlFileError {}

/// Parses a text.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TomlFileError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        // The key in the parser's message is more exact than the one at the start of the line.
        let markers = ["unknown field `", "missing field `", "duplicate field `"];
        let named = markers.iter().find_map(|marker| message.split(marker).nth(1)?.split('`').next());
        let start = error.span().map(|span| span.start);
        let key = named.map(str::to_owned).or_else(|| start.map(|start| key_at(text, start))).unwrap_or_default();
        TomlFileError { line: start.map(|start| line_of(text, start)), key, message }
    })
}

/// The line (from 1) that contains a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> u64 {
    text.get(..offset).unwrap_or(text).matches('\n').count() as u64 + 1
}

/// The key at the start of the line that contains a byte offset.
fn key_at(text: &str, offset: usize) -> String {
    let line = text.lines().nth(line_of(text, offset) as usize - 1);
    let key = line.and_then(|line| line.split('=').next()).unwrap_or_default();
    key.trim().chars().take(64).collect()
}
