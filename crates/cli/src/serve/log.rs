//! What a server tells its operator: one line for each thing, as text or as JSON, on standard error.

use std::io;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Format {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [Self::Text, Self::Json].into_iter().find(|format| format.word() == text);
        known.ok_or("not a format; write text or json")
    }
}

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Words {
    const ALL: [(Self, &'static str, LevelFilter); 5] = [
        (Self::Error, "error", LevelFilter::ERROR),
        (Self::Warn, "warn", LevelFilter::WARN),
        (Self::Info, "info", LevelFilter::INFO),
        (Self::Debug, "debug", LevelFilter::DEBUG),
        (Self::Trace, "trace", LevelFilter::TRACE),
    ];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Only our own words: libraries below would print headers, and headers carry tokens.
    fn targets(self) -> Targets {
        Targets::new().with_target("leasehold", Self::ALL[self as usize].2)
    }
}

impl FromStr for Words {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|(_, word, _)| *word == text);
        known.map(|(words, ..)| *words).ok_or("not a level; write error, warn, info, debug or trace")
    }
}

/// How much is said, changed while it is.
pub struct Level(Handle<Targets, Registry>);

impl Level {
    /// Says more or less from now on.
    pub fn set(&self, words: Words) {
        // It fails only when nobody logs any more.
        let _ = self.0.reload(words.targets());
    }
}

/// Begins to log.
pub fn begin(format: Format, words: Words) -> Result<Level, String> {
    let (filter, handle) = reload::Layer::new(words.targets());
    // A reader of standard error that went away must not stop the server.
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Text => lines.with_target(false).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let begun = tracing_subscriber::registry().with(filter).with(lines).try_init();
    begun.map_err(|error| format!("cannot log: {error}"))?;
    Ok(Level(handle))
}
