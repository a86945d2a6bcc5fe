//! Probes the targets of a resource: at the operator's addresses, and at those of the charter only on request.

use std::time::Duration;

use leasehold::json::{CoverageBody, TargetCoverageBody};
use leasehold_core::token::{Cluster, Incarnation};

use super::Args;
use crate::output::CommandError;
use crate::target::{ProbeOptions, ProbeResult, TargetAddress, WriteProbe};

/// The probe of one target.
#[derive(Clone, Debug)]
pub struct TargetProbe {
    /// Name of the target.
    pub target: String,
    /// The address that was probed, without secrets.
    pub address: Option<String>,
    pub outcome: ProbeOutcome,
    /// Why the probe of a forced database may have missed a table: no address lists the tables.
    pub limit: Option<String>,
}

/// How a probe ended.
#[derive(Clone, Debug)]
pub enum ProbeOutcome {
    /// The target replied.
    Report(ProbeResult),
    /// The target could not be reached, or its reply makes no sense.
    Failed(String),
    /// There is no address to probe, for this reason.
    Skipped(String),
}

/// Probes every target that is declared with a fence, and every target that the command line names.
pub async fn probe_targets(
    args: &Args,
    coverage: &CoverageBody,
    cluster: Cluster,
    incarnation: Incarnation,
) -> Vec<TargetProbe> {
    let mut probes = Vec::new();
    for target in coverage.targets.iter().filter(|target| !target.name.is_empty()) {
        let named = named(args, &target.name);
        // The others have no fence, or are the grantor itself.
        let has_fence = target.mode.as_deref().is_none_or(|mode| ["forced", "cooperative"].contains(&mode));
        if named.is_some() || has_fence {
            probes.push(probe_target(args, Some(target), &target.name, named, (cluster, incarnation)).await);
        }
    }
    for (name, address) in &args.targets {
        if !coverage.targets.iter().any(|target| target.name == *name) {
            probes.push(probe_target(args, None, name, Some(address), (cluster, incarnation)).await);
        }
    }
    probes
}

fn named<'a>(args: &'a Args, name: &str) -> Option<&'a TargetAddress> {
    args.targets.iter().find(|(known, _)| known == name).map(|(_, address)| address)
}

async fn probe_target(
    args: &Args,
    target: Option<&TargetCoverageBody>,
    name: &str,
    named: Option<&TargetAddress>,
    (cluster, incarnation): (Cluster, Incarnation),
) -> TargetProbe {
    let address = match (named, target) {
        // The charter says which tables must be protected, the operator where they are.
        (Some(address), Some(target)) if target.declared => Ok(address.clone().with_tables_of_charter(&target.at)),
        (Some(address), _) => Ok(address.clone()),
        (None, Some(target)) if args.charter_addresses && target.declared => {
            TargetAddress::from_charter(&target.at).map_err(|error| format!("its address in the charter: {error}"))
        }
        (None, _) => Err("its address is not given".to_owned()),
    };
    let address = match address {
        Ok(address) => address,
        Err(reason) => {
            return TargetProbe {
                target: name.to_owned(),
                address: None,
                outcome: ProbeOutcome::Skipped(reason),
                limit: None,
            };
        }
    };
    let slots: Vec<u32> = target.map_or(Vec::new(), |target| target.slots.iter().map(|slot| slot.slot).collect());
    let attempt_writes = target.is_some_and(|target| target.mode.as_deref() == Some("forced"));
    let timeout = Duration::from_millis(args.timeout.millis());
    let options = ProbeOptions { cluster, incarnation, resource: &args.name, slots: &slots, attempt_writes, timeout };
    let outcome = match address.probe(options).await {
        Ok(report) => ProbeOutcome::Report(report),
        Err(CommandError::Coded(error) | CommandError::WithExitCode(error, _)) => {
            ProbeOutcome::Failed(error.to_string())
        }
        Err(CommandError::Other(message)) => ProbeOutcome::Failed(message),
    };
    let limit =
        (attempt_writes && address.is_database() && !address.lists_tables()).then(|| unlisted(&outcome)).flatten();
    TargetProbe { target: name.to_owned(), address: Some(address.redacted()), outcome, limit }
}

/// Says what was attempted at a database whose tables neither the charter nor the operator lists.
fn unlisted(outcome: &ProbeOutcome) -> Option<String> {
    let ProbeOutcome::Report(ProbeResult { write: WriteProbe::Attempted { refused, .. }, .. }) = outcome else {
        return None;
    };
    let attempted = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
    Some(format!(
        "no table is listed, so that only those that the database itself protects were probed ({attempted}); list all with \
         ?tables= in the charter's address"
    ))
}
