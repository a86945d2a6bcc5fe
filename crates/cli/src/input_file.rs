//! Reads files that users write (TOML, JSON). Errors name the file, the line and the key.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use leasehold::Error;
use leasehold::json::plain_words;
use serde::de::DeserializeOwned;

/// Size limit of a file.
pub const MAX_BYTES: u64 = 1 << 20;

/// Reads a UTF-8 file within the size limit.
pub fn read(path: &Path) -> Result<String, Error> {
    let refused = |reason: String| Error::config_in_file(&path.display().to_string(), None, "", reason);
    let at = path.display();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (known, file) = opened.map_err(|error| refused(open_error(path, &error)))?;
    if known.is_dir() {
        return Err(refused(format!("{at} is a directory; name a file")));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| refused(format!("cannot read {at}: {error}; check the file")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refused(format!("{at} is larger than {MAX_BYTES} bytes; check the path, or shorten the file")));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(refused(format!("{at} starts with a byte-order mark; save it as UTF-8 without one")));
    }
    String::from_utf8(bytes).map_err(|_| refused(format!("{at} is not UTF-8 text; save it as UTF-8")))
}

fn open_error(path: &Path, error: &io::Error) -> String {
    let at = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{at} does not exist; check the path"),
        io::ErrorKind::PermissionDenied => format!("no permission to read {at}; change its owner or mode"),
        _ => format!("cannot open {at}: {error}; check the path"),
    }
}

/// Parses TOML. The type decides whether unknown keys are rejected.
pub fn toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let (line, key) = error.span().map_or((None, String::new()), |span| line_and_key(text, span.start));
        parse_error(path, line, key, error.message())
    })
}

/// Parses JSON.
pub fn json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|error| parse_error(path, Some(error.line() as u64), String::new(), &error.to_string()))
}

fn parse_error(path: &Path, line: Option<u64>, key: String, message: &str) -> Error {
    let message = plain_words(&message.replace('\n', " "));
    // The key in serde's message is more exact than the one at the start of the line.
    let markers = ["unknown field `", "missing field `", "duplicate field `"];
    let named = markers.iter().find_map(|marker| message.split(marker).nth(1)?.split('`').next());
    let key = named.map_or(key, str::to_owned);
    let text = if key.is_empty() { message.clone() } else { format!("{key}: {message}") };
    Error::config_in_file(&path.display().to_string(), line, &key, text)
}

/// The line (from 1) that contains a byte offset, and the key at the start of that line.
fn line_and_key(text: &str, offset: usize) -> (Option<u64>, String) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count();
    let key = text.lines().nth(line).and_then(|line| line.split('=').next()).unwrap_or_default();
    (Some(line as u64 + 1), key.trim().chars().take(64).collect())
}
