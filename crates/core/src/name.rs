//! Names are checked once, at the edge; whoever is given a `Name`, a `Prefix` or a `HolderName` checks nothing again.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::limits::{HOLDER_BYTES, NAME_BYTES, NAME_SEGMENTS};

/// The first segment that the service keeps for itself.
const RESERVED: &str = "_sys";

/// A checked resource name: segments between slashes, for example `team/a/ledger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// Checks a resource name. Nothing is corrected on the way: two spellings must never become one resource.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        resource_text(text).map_err(|problem| NameError { field: "resource", problem })?;
        Ok(Self(text))
    }

    /// The name as it was given.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// A checked prefix of whole segments; the empty one covers everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<'a>(&'a str);

impl<'a> Prefix<'a> {
    /// Covers every name.
    pub const EVERYTHING: Prefix<'static> = Prefix("");

    /// Checks a prefix: written like a name, without a slash at its end, or empty.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        if !text.is_empty() {
            resource_text(text).map_err(|problem| NameError { field: "prefix", problem })?;
        }
        Ok(Self(text))
    }

    /// The prefix as it was given.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether `name` is this prefix or lies below it. `team/a` covers `team/a/b`, never its sibling `team/ab`.
    pub fn covers(self, name: Name<'_>) -> bool {
        match name.0.strip_prefix(self.0) {
            Some(rest) => self.0.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// A checked name of a holder or an actor: free text that a person can read and a log can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderName<'a>(&'a str);

impl<'a> HolderName<'a> {
    /// Checks a holder's name.
    pub fn parse(text: &'a str) -> Result<Self, NameError> {
        readable_text(text, HOLDER_BYTES).map_err(|problem| NameError { field: "holder", problem })?;
        Ok(Self(text))
    }

    /// The name as it was given.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// What stands for a resource in a token: the first eight bytes of the SHA-256 of its name. It never changes, because
/// targets keep it beside their marks.
pub fn resource_hash(name: &str) -> [u8; 8] {
    let digest = Sha256::digest(name.as_bytes());
    std::array::from_fn(|i| digest[i])
}

/// A refused name: which field of the request, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The field it was given in.
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

/// What can be wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameProblem {
    /// Nothing was given.
    Empty,
    /// More bytes than allowed.
    TooLong {
        /// How many were given.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A control character, NUL and newline among them.
    Control {
        /// Which one.
        found: char,
        /// At which byte.
        at: usize,
    },
    /// A character that nobody sees or that turns the writing direction.
    Invisible {
        /// Which one.
        found: char,
        /// At which byte.
        at: usize,
    },
    /// Text that is not in Unicode's normal form C: it looks like another name.
    NotNormal,
    /// A `*` or `?`.
    Wildcard {
        /// Which one.
        found: char,
        /// At which byte.
        at: usize,
    },
    /// A slash at the beginning or the end.
    EdgeSlash,
    /// Two slashes with nothing between them.
    EmptySegment,
    /// A segment `.` or `..`.
    DotSegment,
    /// More segments than allowed.
    TooManySegments {
        /// How many were given.
        segments: usize,
    },
    /// A first segment that is kept for the service itself.
    Reserved,
}

impl fmt::Display for NameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("empty; give at least one character"),
            Self::TooLong { bytes, max } => {
                write!(f, "too long {bytes}>{max}; at most {max} bytes are allowed, shorten it")
            }
            Self::Control { found, at } => {
                write!(f, "control character U+{:04X} at byte {at}; use printable text only", u32::from(found))
            }
            Self::Invisible { found, at } => {
                write!(f, "invisible character U+{:04X} at byte {at}; use text that can be seen", u32::from(found))
            }
            Self::NotNormal => f.write_str("not in Unicode normal form C; normalise it to NFC before sending"),
            Self::Wildcard { found, at } => {
                write!(f, "wildcard {found} at byte {at}; no * or ? is allowed, write the name out")
            }
            Self::EdgeSlash => f.write_str("begins or ends with a slash; use slashes only between segments"),
            Self::EmptySegment => f.write_str("two slashes in a row; no segment may be empty, write one slash"),
            Self::DotSegment => f.write_str("a segment is . or ..; paths are not resolved here, write the name out"),
            Self::TooManySegments { segments } => {
                write!(f, "{segments} segments; at most {NAME_SEGMENTS} are allowed, use fewer slashes")
            }
            Self::Reserved => {
                write!(f, "begins with {RESERVED}, which is kept for the service; choose another first segment")
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

/// The length comes first: it bounds the work of everything after it.
fn readable_text(text: &str, max: usize) -> Result<(), NameProblem> {
    if text.is_empty() {
        return Err(NameProblem::Empty);
    }
    if text.len() > max {
        return Err(NameProblem::TooLong { bytes: text.len(), max });
    }
    // Printable ASCII has one form only, and it is what nearly every name is made of.
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

/// Direction marks and overrides, zero-width characters, line and paragraph separators: with them two names look alike,
/// or one name looks like two lines of a log.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}'
    )
}
