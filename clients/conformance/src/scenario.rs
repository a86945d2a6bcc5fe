//! Scenarios as data: `scenarios/*.jsonl`, one JSON object per line. A line with `scenario` begins one, the lines below are its steps.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::environment::{EnvironmentKind, ServerKind};

/// First line of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioHead {
    scenario: String,
    title: String,
    environments: Vec<EnvironmentKind>,
    #[serde(default = "default_ttl")]
    session_ttl_ms: u64,
    #[serde(default)]
    server: ServerKind,
    #[serde(default)]
    reply_delay_ms: u64,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    red: Vec<String>,
}

/// Long enough that a holder on a busy machine does not lose its lease.
const fn default_ttl() -> u64 {
    10_000
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Unique name, in snake case.
    pub name: String,
    /// What it shows, as a sentence.
    pub title: String,
    /// Where it runs.
    pub environments: Vec<EnvironmentKind>,
    /// Session ttl of its clients; the unit of its waiting times.
    pub session_ttl_ms: u64,
    /// Which server it needs.
    pub server: ServerKind,
    /// How much later every reply arrives, in the environment `proxy`.
    pub reply_delay_ms: u64,
    /// Features that a client must have.
    pub needs: Vec<String>,
    /// Properties that turn it red when they are broken.
    pub red: Vec<String>,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// One line of a scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// File and line, for messages.
    pub place: String,
    /// All fields.
    pub fields: Map<String, Value>,
}

/// Ops that act on the whole driver process.
const PROCESS_OPS: [&str; 5] = ["block", "advance_clock", "exit", "fork_state", "break"];
/// Steps of the runner that act on a driver process.
const PROCESS_STEPS: [&str; 3] = ["pause_driver", "resume_driver", "kill_driver"];
/// Steps of the runner that act on servers.
const SERVER_STEPS: [&str; 6] =
    ["kill_server", "stop_server", "start_server", "pause_server", "resume_server", "await_leader"];

impl Step {
    /// A text field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
}

impl Scenario {
    /// All actors in the order of their first step.
    pub fn actors(&self) -> Vec<&str> {
        let mut actors = Vec::new();
        for actor in self.steps.iter().filter_map(|step| step.text("actor")) {
            if !actors.contains(&actor) {
                actors.push(actor);
            }
        }
        actors
    }

    /// Whether an actor needs a driver process of its own.
    pub fn needs_own_process(&self, actor: &str) -> bool {
        self.steps.iter().filter(|step| step.text("actor") == Some(actor)).any(|step| {
            step.text("op").is_some_and(|op| PROCESS_OPS.contains(&op))
                || step.text("do").is_some_and(|action| PROCESS_STEPS.contains(&action))
        })
    }

    /// Whether it needs servers of its own.
    pub fn needs_own_servers(&self) -> bool {
        self.server == ServerKind::Own
            || self.steps.iter().any(|step| step.text("do").is_some_and(|action| SERVER_STEPS.contains(&action)))
    }
}

/// Reads all scenarios of a folder, in the order of its files.
pub fn read_all(folder: &Path) -> io::Result<Vec<Scenario>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let mut scenarios = Vec::new();
    for file in files.iter().filter(|file| file.path().extension().is_some_and(|end| end == "jsonl")) {
        let name = file.file_name().to_string_lossy().into_owned();
        parse(&name, &std::fs::read_to_string(file.path())?, &mut scenarios).map_err(io::Error::other)?;
    }
    let mut names = BTreeSet::new();
    match scenarios.iter().find(|scenario| !names.insert(scenario.name.clone())) {
        Some(twice) => Err(io::Error::other(format!("two scenarios are called {}", twice.name))),
        None => Ok(scenarios),
    }
}

fn parse(file: &str, text: &str, scenarios: &mut Vec<Scenario>) -> Result<(), String> {
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{file}:{}", at + 1);
        let fields: Map<String, Value> = serde_json::from_str(line).map_err(|error| format!("{place}: {error}"))?;
        if fields.contains_key("scenario") {
            let head: ScenarioHead =
                serde_json::from_value(Value::Object(fields)).map_err(|error| format!("{place}: {error}"))?;
            if head.environments.is_empty() {
                return Err(format!("{place}: a scenario names where it runs"));
            }
            let ScenarioHead {
                scenario: name,
                title,
                environments,
                session_ttl_ms,
                server,
                reply_delay_ms,
                needs,
                red,
            } = head;
            scenarios.push(Scenario {
                name,
                title,
                environments,
                session_ttl_ms,
                server,
                reply_delay_ms,
                needs,
                red,
                steps: Vec::new(),
            });
        } else {
            let known = ["op", "do", "await"].iter().filter(|kind| fields.contains_key(**kind)).count();
            if known != 1 {
                return Err(format!("{place}: a step has exactly one of `op`, `do` and `await`"));
            }
            if fields.contains_key("op") && !fields.contains_key("actor") {
                return Err(format!("{place}: an op names its actor"));
            }
            let scenario = scenarios.last_mut().ok_or_else(|| format!("{place}: a step before the first scenario"))?;
            scenario.steps.push(Step { place, fields });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_can_be_read_and_end_with_steps() {
        let all = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")).expect("the files are valid");
        assert!(all.len() >= 40, "{}", all.len());
        for scenario in &all {
            assert!(scenario.steps.len() > 1 && !scenario.title.is_empty(), "{}", scenario.name);
            assert!(!scenario.actors().is_empty() || scenario.needs.is_empty(), "{}", scenario.name);
        }
        for property in crate::broken_run::PROPERTIES {
            assert!(all.iter().any(|scenario| scenario.red.iter().any(|red| red == property)), "{property}");
        }
    }

    #[test]
    fn a_step_without_a_kind_or_an_actor_is_refused() {
        let head = r#"{"scenario":"x","title":"X","environments":["one"]}"#;
        for (step, message) in [(r#"{"actor":"a"}"#, "exactly one of"), (r#"{"op":"connect"}"#, "names its actor")] {
            let error = parse("f", &format!("{head}\n{step}"), &mut Vec::new()).expect_err("refused");
            assert!(error.starts_with("f:2: ") && error.contains(message), "{error}");
        }
    }
}
