//! Results of one client: `target/conformance/NAME.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

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

/// All results of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientResults {
    /// Name of the client.
    pub client: String,
    /// Version of the client.
    pub version: String,
    /// Outcomes by scenario and environment.
    pub outcomes: BTreeMap<String, BTreeMap<String, SavedOutcome>>,
    millis: BTreeMap<String, BTreeMap<String, u64>>,
}

impl ClientResults {
    /// Collects the results of a run.
    pub fn new(client: &str, version: &str, results: &[CaseResult]) -> Self {
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
        Self { client: client.to_owned(), version: version.to_owned(), outcomes, millis }
    }

    /// Writes the results.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads results; `None` if there are none.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
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
            json!({ "property": property, "scenario": scenario, "red": red, "reason": reason })
        })
        .collect();
    std::fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")
}
