//! Results of one client: `target/conformance/NAME.json`, and `NAME-broken.json` of the runs with broken properties.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::broken_run::RedResult;
use crate::suite::{CaseOutcome, CaseResult};

/// The outcome of one scenario in one environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedOutcome {
    /// All steps were as expected.
    Passed,
    /// The client lacks a feature, for this reason.
    Skipped(String),
    /// A step was not as expected, or could not be performed.
    Failed(String),
}

/// Which build of the server the results are from. Builds differ in the size or the time of their file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerBuild {
    bytes: u64,
    modified_nanos: u64,
}

impl ServerBuild {
    /// The build in this file.
    pub fn of(binary: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(binary)?;
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let modified_nanos = u64::try_from(modified.as_nanos()).map_err(io::Error::other)?;
        Ok(Self { bytes: metadata.len(), modified_nanos })
    }
}

/// All results of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientResults {
    /// Name of the client.
    pub client: String,
    /// Version of the client.
    pub version: String,
    /// The server that it ran against.
    pub server: ServerBuild,
    /// Outcomes by scenario and environment.
    pub outcomes: BTreeMap<String, BTreeMap<String, SavedOutcome>>,
    millis: BTreeMap<String, BTreeMap<String, u64>>,
}

impl ClientResults {
    /// Collects the results of a run.
    pub fn new(client: &str, version: &str, server: &ServerBuild, results: &[CaseResult]) -> Self {
        let (mut outcomes, mut millis) = (BTreeMap::new(), BTreeMap::new());
        for CaseResult { scenario, environment, outcome, millis: took, .. } in results {
            let saved = match outcome {
                CaseOutcome::Passed => SavedOutcome::Passed,
                CaseOutcome::Skipped(reason) => SavedOutcome::Skipped(reason.clone()),
                CaseOutcome::Failed(failure) => SavedOutcome::Failed(failure.to_string()),
            };
            let environment = environment.name().to_owned();
            outcomes.entry(scenario.clone()).or_insert_with(BTreeMap::new).insert(environment.clone(), saved);
            millis.entry(scenario.clone()).or_insert_with(BTreeMap::new).insert(environment, *took);
        }
        Self { client: client.to_owned(), version: version.to_owned(), server: server.clone(), outcomes, millis }
    }

    /// Writes the results.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        write_json(path, self)
    }

    /// Reads results; `None` if there are none.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        read_json(path)
    }
}

/// What happened to a scenario while a property was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRedResult {
    /// The broken property.
    pub property: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Whether it failed, as it must.
    pub red: bool,
    /// The failed expectation, or why it does not count.
    pub reason: String,
}

/// Writes the results of the runs with broken properties.
pub fn save_red(path: &Path, results: &[RedResult]) -> io::Result<()> {
    let rows: Vec<_> = results
        .iter()
        .map(|RedResult { property, scenario, outcome }| {
            let (red, reason) = match outcome {
                Ok(reason) => (true, reason),
                Err(reason) => (false, reason),
            };
            let (property, scenario, reason) = (property.clone(), scenario.clone(), reason.clone());
            SavedRedResult { property, scenario, red, reason }
        })
        .collect();
    write_json(path, &rows)
}

/// Reads the results of the runs with broken properties; `None` if there are none.
pub fn read_red(path: &Path) -> io::Result<Option<Vec<SavedRedResult>>> {
    read_json(path)
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(value)? + "\n")
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| io::Error::other(format!("{}: {error}; run the client again", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
