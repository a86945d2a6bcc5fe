//! The error of the conformance suite, and the assertions that create it.

use std::fmt;

use crate::Error;

/// The target breaks an obligation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConformanceError {
    /// The obligation, which begins with the id of its promise.
    pub obligation: &'static str,
    /// What the suite observed.
    pub observed: String,
}

impl fmt::Display for ConformanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}: {}", self.obligation, self.observed)
    }
}

impl std::error::Error for ConformanceError {}

/// The obligation under test.
#[derive(Clone, Copy)]
pub(super) struct Obligation(pub(super) &'static str);

impl Obligation {
    pub(super) fn broken(self, seen: impl Into<String>) -> ConformanceError {
        ConformanceError { obligation: self.0, observed: seen.into() }
    }

    /// Requires equal values.
    pub(super) fn equal<T: PartialEq + fmt::Debug>(
        self,
        what: &str,
        actual: &T,
        expected: &T,
    ) -> Result<(), ConformanceError> {
        if actual == expected {
            Ok(())
        } else {
            Err(self.broken(format!("{what} is {actual:?} and must be {expected:?}")))
        }
    }

    /// Requires success.
    pub(super) fn succeeds<T>(self, what: &str, outcome: Result<T, Error>) -> Result<T, ConformanceError> {
        outcome.map_err(|error| self.broken(format!("{what} failed: {} {error}", error.code())))
    }

    /// Requires an error with this code.
    pub(super) fn refused<T>(
        self,
        what: &str,
        code: &str,
        outcome: Result<T, Error>,
    ) -> Result<Error, ConformanceError> {
        match outcome {
            Ok(_) => Err(self.broken(format!("{what} succeeded and must fail with {code}"))),
            Err(error) if error.code() == code => Ok(error),
            Err(error) => Err(self.broken(format!("{what} got {} and must get {code}: {error}", error.code()))),
        }
    }
}
