//! Runs with a broken property: every scenario that names the property must fail, by an expectation.

use crate::environment::EnvironmentKind;
use crate::failure::ScenarioFailure;
use crate::scenario::Scenario;
use crate::suite::{CaseOutcome, CaseResult, ScenarioCase, Suite};

/// The properties that drivers can break.
pub const PROPERTIES: [&str; 3] = ["renewal_on_main_loop", "no_token", "deadline_from_reply"];

/// What happened to one scenario while a property was broken.
#[derive(Clone, Debug)]
pub struct RedResult {
    /// The broken property.
    pub property: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The failed expectation, or why it does not count.
    pub outcome: Result<String, String>,
}

/// Breaks each property in turn, and prints a line for each scenario.
pub fn run(suite: &mut Suite<'_>, scenarios: &[Scenario]) -> Result<Vec<RedResult>, ScenarioFailure> {
    let mut results = Vec::new();
    for property in PROPERTIES {
        let named = scenarios.iter().filter(|scenario| scenario.red.iter().any(|red| red == property));
        // The property does not depend on the environment; the first one that the scenario names is enough.
        let cases: Vec<_> =
            named.map(|scenario| ScenarioCase { scenario, environment: first_environment(scenario) }).collect();
        suite.broken = Some(property.to_owned());
        let (_, outcomes) = suite.run(cases)?;
        for result in outcomes {
            let red = red_result(property, result);
            match &red.outcome {
                Ok(reason) => {
                    println!("{} {} with {property} ... red, as required: {reason}", suite.driver.name, red.scenario)
                }
                Err(reason) => println!("{} {} with {property} ... FAILED: {reason}", suite.driver.name, red.scenario),
            }
            results.push(red);
        }
    }
    suite.broken = None;
    Ok(results)
}

fn first_environment(scenario: &Scenario) -> EnvironmentKind {
    scenario.environments.first().copied().unwrap_or(EnvironmentKind::One)
}

fn red_result(property: &str, result: CaseResult) -> RedResult {
    let outcome = match result.outcome {
        CaseOutcome::Failed(ScenarioFailure::Unexpected(reason)) => Ok(reason),
        CaseOutcome::Failed(ScenarioFailure::Broken(reason)) => Err(format!("it could not run: {reason}")),
        CaseOutcome::Skipped(reason) => Err(format!("it was skipped: {reason}")),
        CaseOutcome::Passed => Err("it passed although the property is broken".to_owned()),
    };
    RedResult { property: property.to_owned(), scenario: result.scenario, outcome }
}
