//! What is said of a fence that breaks a promise.

use std::fmt;

use crate::Error;

/// A promise that the target does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The obligation, which begins with the id of its promise.
    pub obligation: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}: {}", self.obligation, self.seen)
    }
}

impl std::error::Error for Violation {}

/// One obligation while it is tried.
#[derive(Clone, Copy)]
pub(super) struct Obligation(pub(super) &'static str);

impl Obligation {
    pub(super) fn broken(self, seen: impl Into<String>) -> Violation {
        Violation { obligation: self.0, seen: seen.into() }
    }

    /// Holds if these are equal.
    pub(super) fn equal<T: PartialEq + fmt::Debug>(self, what: &str, have: &T, want: &T) -> Result<(), Violation> {
        if have == want { Ok(()) } else { Err(self.broken(format!("{what} is {have:?} and must be {want:?}"))) }
    }

    /// Holds if this was done.
    pub(super) fn done<T>(self, what: &str, outcome: Result<T, Error>) -> Result<T, Violation> {
        outcome.map_err(|error| self.broken(format!("{what} was not done: {} {error}", error.code())))
    }

    /// Holds if this was refused, with this code.
    pub(super) fn refused<T>(self, what: &str, code: &str, outcome: Result<T, Error>) -> Result<Error, Violation> {
        match outcome {
            Ok(_) => Err(self.broken(format!("{what} passed and must be refused with {code}"))),
            Err(error) if error.code() == code => Ok(error),
            Err(error) => Err(self.broken(format!("{what} got {} and must get {code}: {error}", error.code()))),
        }
    }
}
