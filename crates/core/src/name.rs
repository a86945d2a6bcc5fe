//! Validated names. A `Name`, `Prefix` or `HolderName` is checked once when it is parsed and trusted afterwards.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::limits::{HOLDER_BYTES, NAME_BYTES, NAME_SEGMENTS};
use crate::unicode::is_invisible;

/// First segment that is reserved for the service.
const RESERVED: &str = "_sys";

/// A valid resource name: segments between slashes, for example `team/a/ledger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// Parses a resource name. It corrects nothing: two spellings must never name the same resource.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        resource_text(text).map_err(|problem| NameError { field: "resource", problem })?;
        Ok(Self(text))
    }

    /// The name as text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// A valid prefix of whole segments; the empty prefix covers every name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<'a>(&'a str);

impl<'a> Prefix<'a> {
    /// Covers every name.
    pub const EVERYTHING: Prefix<'static> = Prefix("");

    /// Parses a prefix: a resource name without a trailing slash, or empty.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        if !text.is_empty() {
            resource_text(text).map_err(|problem| NameError { field: "prefix", problem })?;
        }
        Ok(Self(text))
    }

    /// The prefix as text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether `name` equals this prefix or is below it. `team/a` covers `team/a/b`, but not its sibling `team/ab`.
    pub fn covers(self, name: Name<'_>) -> bool {
        match name.0.strip_prefix(self.0) {
            Some(rest) => self.0.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// A valid name of a holder or an actor: free text that people can read and logs can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderName<'a>(&'a str);

impl<'a> HolderName<'a> {
    /// Parses a holder name.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        readable_text(text, HOLDER_BYTES).map_err(|problem| NameError { field: "holder", problem })?;
        Ok(Self(text))
    }

    /// The name as text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Identifies a resource in a token: the first eight bytes of the SHA-256 of its name. It must never change, because
/// targets store it with their marks.
pub fn resource_hash(name: &str) -> [u8; 8] {
    let digest = Sha256::digest(name.as_bytes());
    std::array::from_fn(|i| digest[i])
}

/// An invalid name: the field of the request and the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The field of the request.
    pub field: &'static str,
    /// What is wrong.
    pub problem: NameProblem,
}

impl NameError {
    /// The stable code of this refusal.
    pub const fn code(&self) -> &'static str {
        match self.problem {
            NameProblem::Reserved => "PERMISSION_DENIED",
            _ => "INVALID_ARGUMENT",
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for NameError {}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameProblem {
    /// The name is empty.
    Empty,
    /// More bytes than allowed.
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A control character, including NUL and newline.
    Control {
        /// The character.
        found: char,
        /// Its byte offset.
        at: usize,
    },
    /// A character that is not visible or changes the writing direction: see [`is_invisible`].
    Invisible {
        /// The character.
        found: char,
        /// Its byte offset.
        at: usize,
    },
    /// Text that is not in Unicode normal form C and can look like another name.
    NotNormal,
    /// A `*` or `?`.
    Wildcard {
        /// The character.
        found: char,
        /// Its byte offset.
        at: usize,
    },
    /// A slash at the start or the end.
    EdgeSlash,
    /// Two slashes with nothing between them.
    EmptySegment,
    /// A segment `.` or `..`.
    DotSegment,
    /// More segments than allowed.
    TooManySegments {
        /// Segments given.
        segments: usize,
    },
    /// A first segment that is reserved for the service.
    Reserved,
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("must not be empty; use at least one character"),
            Self::TooLong { bytes, max } => {
                write!(f, "too long ({bytes} bytes); use at most {max} bytes")
            }
            Self::Control { found, at } => {
                write!(f, "control character U+{:04X} at byte {at}; use printable text only", u32::from(found))
            }
            Self::Invisible { found, at } => {
                write!(f, "invisible character U+{:04X} at byte {at}; use visible text only", u32::from(found))
            }
            Self::NotNormal => f.write_str("not in Unicode normal form C; normalize it to NFC before sending"),
            Self::Wildcard { found, at } => {
                write!(f, "wildcard {found} at byte {at}; wildcards are not supported, write the full name")
            }
            Self::EdgeSlash => f.write_str("starts or ends with a slash; use slashes only between segments"),
            Self::EmptySegment => f.write_str("two slashes in a row; remove the empty segment"),
            Self::DotSegment => f.write_str("a segment is . or ..; paths are not resolved, write the full name"),
            Self::TooManySegments { segments } => {
                write!(f, "{segments} segments; use at most {NAME_SEGMENTS}")
            }
            Self::Reserved => {
                write!(f, "starts with {RESERVED}, which is reserved for the service; choose another first segment")
            }
        }
    }
}

fn resource_text(text: &str) -> Result<(), NameProblem> {
    readable_text(text, NAME_BYTES)?;
    if let Some((at, found)) = text.char_indices().find(|(_, c)| matches!(c, '*' | '?')) {
        return Err(NameProblem::Wildcard { found, at });
    }
    if text.starts_with('/') || text.ends_with('/') {
        return Err(NameProblem::EdgeSlash);
    }
    let mut segments = 0;
    for segment in text.split('/') {
        match segment {
            "" => return Err(NameProblem::EmptySegment),
            "." | ".." => return Err(NameProblem::DotSegment),
            RESERVED if segments == 0 => return Err(NameProblem::Reserved),
            _ => segments += 1,
        }
    }
    if segments > NAME_SEGMENTS {
        return Err(NameProblem::TooManySegments { segments });
    }
    Ok(())
}

/// Checks the length first, which bounds the work of all later checks.
fn readable_text(text: &str, max: usize) -> Result<(), NameProblem> {
    if text.is_empty() {
        return Err(NameProblem::Empty);
    }
    if text.len() > max {
        return Err(NameProblem::TooLong { bytes: text.len(), max });
    }
    // Fast path: printable ASCII is always in normal form, and nearly every name is ASCII.
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Ok(());
    }
    for (at, found) in text.char_indices() {
        if found.is_control() {
            return Err(NameProblem::Control { found, at });
        }
        if is_invisible(found) {
            return Err(NameProblem::Invisible { found, at });
        }
    }
    if unicode_normalization::is_nfc(text) { Ok(()) } else { Err(NameProblem::NotNormal) }
}
