//! Logging of a server: one line per event on standard error, as text or as JSON.

use std::io;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl LogFormat {
    /// The word in the settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [Self::Text, Self::Json].into_iter().find(|format| format.word() == text);
        known.ok_or("not a format; write text or json")
    }
}

/// Lowest level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const ALL: [(Self, &'static str, LevelFilter); 5] = [
        (Self::Error, "error", LevelFilter::ERROR),
        (Self::Warn, "warn", LevelFilter::WARN),
        (Self::Info, "info", LevelFilter::INFO),
        (Self::Debug, "debug", LevelFilter::DEBUG),
        (Self::Trace, "trace", LevelFilter::TRACE),
    ];

    /// The word in the settings.
    pub const fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Only events of our own crates: libraries would log headers, and headers contain tokens.
    fn targets(self) -> Targets {
        Targets::new().with_target("leasehold", Self::ALL[self as usize].2)
    }
}

impl FromStr for LogLevel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.iter().find(|(_, word, _)| *word == text);
        known.map(|(level, ..)| *level).ok_or("not a level; write error, warn, info, debug or trace")
    }
}

/// Changes the log level at run time.
pub struct LogLevelHandle(Handle<Targets, Registry>);

impl LogLevelHandle {
    /// Sets the level.
    pub fn set(&self, level: LogLevel) {
        // This fails only after the subscriber is gone.
        let _ = self.0.reload(level.targets());
    }
}

/// Installs the logger.
pub fn init(format: LogFormat, level: LogLevel) -> Result<LogLevelHandle, String> {
    let (filter, handle) = reload::Layer::new(level.targets());
    // A closed standard error must not stop the server.
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).log_internal_errors(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        LogFormat::Text => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let installed = tracing_subscriber::registry().with(filter).with(lines).try_init();
    installed.map_err(|error| format!("cannot start logging: {error}"))?;
    Ok(LogLevelHandle(handle))
}
