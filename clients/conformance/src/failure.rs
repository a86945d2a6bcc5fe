//! Why a scenario is not green.

use std::fmt;

/// Why a scenario did not pass. The two kinds differ in a run with a broken property, where only the first one is expected.
#[derive(Clone, Debug)]
pub enum ScenarioFailure {
    /// What happened differs from what the scenario expects.
    Unexpected(String),
    /// The runner, a driver or a server could not do what a step says.
    Broken(String),
}

impl ScenarioFailure {
    /// Prefixes the message with the place of a step.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        match self {
            Self::Unexpected(message) => Self::Unexpected(format!("{place}: {message}")),
            Self::Broken(message) => Self::Broken(format!("{place}: {message}")),
        }
    }
}

impl fmt::Display for ScenarioFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(message) => f.write_str(message),
            Self::Broken(message) => write!(f, "cannot run: {message}"),
        }
    }
}

impl From<std::io::Error> for ScenarioFailure {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Something that differs from the expectation.
pub fn unexpected<T>(message: impl Into<String>) -> Result<T, ScenarioFailure> {
    Err(ScenarioFailure::Unexpected(message.into()))
}

/// Something that the runner, a driver or a server could not do.
pub fn broken<T>(message: impl Into<String>) -> Result<T, ScenarioFailure> {
    Err(ScenarioFailure::Broken(message.into()))
}
