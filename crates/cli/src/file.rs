//! Files that people write: read whole and within bounds, refused with file, line and key.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use leasehold::Error;
use serde::de::DeserializeOwned;

/// No file that a person writes is larger.
pub const MOST_BYTES: u64 = 1 << 20;

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Error> {
    let refused = |reason: String| Error::in_file(&path.display().to_string(), None, "", reason);
    let at = path.display();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (known, file) = opened.map_err(|error| refused(not_opened(path, &error)))?;
    if known.is_dir() {
        return Err(refused(format!("{at} is a directory; name the file in it")));
    }
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| refused(format!("{at} cannot be read: {error}; check the file")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refused(format!("{at} has more than {MOST_BYTES} bytes; name the right file, or shorten it")));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(refused(format!("{at} begins with a byte-order mark; save it as UTF-8 without one")));
    }
    String::from_utf8(bytes).map_err(|_| refused(format!("{at} is not UTF-8 text; save it as such")))
}

fn not_opened(path: &Path, error: &io::Error) -> String {
    let at = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{at} is not there; check the path"),
        io::ErrorKind::PermissionDenied => format!("{at} may not be read; change its owner or mode"),
        _ => format!("{at} cannot be opened: {error}; check the path"),
    }
}

/// What a TOML file says. Unknown keys are for the type to refuse.
pub fn toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let (line, key) = error.span().map_or((None, String::new()), |span| place(text, span.start));
        refused(path, line, key, error.message())
    })
}

/// What a JSON file says.
pub fn json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|error| refused(path, Some(error.line() as u64), String::new(), &error.to_string()))
}

fn refused(path: &Path, line: Option<u64>, key: String, said: &str) -> Error {
    let said = said.replace('\n', " ");
    // The key that serde names is nearer than the one that the line begins with.
    let named = ["unknown field `", "missing field `", "duplicate field `"];
    let named = named.iter().find_map(|begins| said.split(begins).nth(1)?.split('`').next());
    let key = named.map_or(key, str::to_owned);
    let told = if key.is_empty() { said.clone() } else { format!("{key}: {said}") };
    Error::in_file(&path.display().to_string(), line, &key, told)
}

/// The line of a byte, from 1, and the key that stands at its beginning.
fn place(text: &str, at: usize) -> (Option<u64>, String) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count();
    let key = text.lines().nth(line).and_then(|line| line.split('=').next()).unwrap_or_default();
    (Some(line as u64 + 1), key.trim().chars().take(64).collect())
}
