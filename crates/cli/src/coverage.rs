//! `leasehold coverage`: the targets that a lease protects, whether each checks tokens, and the holes.

use leasehold::json::{CoverageBody, TargetCoverageBody, TargetSlotBody};
use leasehold::{Code, Error};
use leasehold_core::coverage::Hole;
use leasehold_core::token::Cluster;
use serde_json::{Value, json};

use crate::commands::comment_arg::parse_comment;
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandOutput, CommandResult, json as to_json};
use crate::table::{TextTable, format_time, or_dash};
use crate::target::{ProbeResult, TargetAddress, fence_id};

/// Show which targets of a resource check tokens, and where a zombie could write
///
/// A target is declared in the charter, known from the reports of its fence, or both. A target without a working fence is a
/// hole; if there is any, the exit code is 8. Checks are counted since the server started; zombies are counted permanently.
///
/// --probe presents a token below the mark to each target and expects a rejection. It changes nothing in the target.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold coverage jobs/settle --probe --target ledger=sqlite:/var/lib/app/ledger.db"
)]
pub struct Args {
    /// Resource whose targets are shown
    #[arg(value_name = "RESOURCE")]
    name: String,
    /// Present a stale token to each target and expect a rejection
    #[arg(long)]
    probe: bool,
    /// Address of a target, if the charter does not declare it
    #[arg(long = "target", value_name = "NAME=ADDRESS", requires = "probe", value_parser = parse_target)]
    targets: Vec<(String, TargetAddress)>,
    /// Remove a target that no longer exists
    #[arg(long, value_name = "TARGET", requires = "comment", conflicts_with = "probe")]
    forget: Option<String>,
    /// Comment for the audit log
    #[arg(long, value_name = "TEXT", requires = "forget", value_parser = parse_comment)]
    comment: Option<String>,
}

fn parse_target(text: &str) -> Result<(String, TargetAddress), Error> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() => Ok((name.to_owned(), TargetAddress::parse(address)?)),
        _ => Err(Error::new(Code::InvalidArgument, "expected NAME=ADDRESS, with the target's name in the charter")),
    }
}

/// Exit code if there is a hole.
const EXIT_HOLE: u8 = 8;

/// Result of probing one target, or why it could not be probed.
type Probe = Result<ProbeResult, String>;

/// A target with the result of its probe, if it was probed.
type Row = (TargetCoverageBody, Option<Probe>);

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    if let (Some(target), Some(comment)) = (&args.forget, &args.comment) {
        global.call(async |client| client.forget_target(&args.name, target, comment).await)?;
        return Ok(global.done(format!("forgot target {target} of {}", args.name)));
    }
    let (mut coverage, probes) = global.with_client(async |client| {
        let coverage = client.coverage(&args.name).await?;
        let probes = if args.probe {
            probe_targets(args, &coverage, client.status().await?.cluster.parse().ok()).await
        } else {
            Vec::new()
        };
        Ok((coverage, probes))
    })?;
    coverage.targets.retain(|target| !target.name.is_empty() || probes.is_empty());
    let known: Vec<String> = coverage.targets.iter().map(|target| target.name.clone()).collect();
    // Targets that only the command line names are shown too.
    let others = probes.iter().filter(|(name, _)| !known.contains(name));
    coverage.targets.extend(others.map(|(name, _)| undeclared(name)));
    let with_probe = |target: TargetCoverageBody| {
        let probe = probes.iter().find(|(name, _)| *name == target.name).map(|(_, probe)| probe.clone());
        (target, probe)
    };
    let rows: Vec<Row> = coverage.targets.into_iter().map(with_probe).collect();
    let holes: Vec<String> = rows.iter().filter_map(|(target, probe)| hole(target, probe.as_ref())).collect();
    let text = if global.json { to_json(&json_body(&coverage.resource, &rows)) } else { text_table(&rows) };
    if holes.is_empty() {
        return Ok(CommandOutput::from(text));
    }
    let count = if holes.len() == 1 { "1 hole".to_owned() } else { format!("{} holes", holes.len()) };
    let note = format!("{count} in the coverage of {}:\n  {}", coverage.resource, holes.join("\n  "));
    Ok(CommandOutput::with_exit_code(text, note, EXIT_HOLE))
}

fn undeclared(name: &str) -> TargetCoverageBody {
    TargetCoverageBody {
        name: name.to_owned(),
        at: String::new(),
        declared: false,
        mode: None,
        slots: Vec::new(),
        hole: Some(Hole::Undeclared.word().to_owned()),
    }
}

/// Probes every target whose address is known.
async fn probe_targets(args: &Args, coverage: &CoverageBody, cluster: Option<Cluster>) -> Vec<(String, Probe)> {
    let mut probes = Vec::new();
    let Some(cluster) = cluster else { return probes };
    let named = args.targets.iter().map(|(name, _)| name.as_str());
    let declared = coverage.targets.iter().map(|target| target.name.as_str()).filter(|name| !name.is_empty());
    let mut names: Vec<&str> = declared.collect();
    names.extend(named.filter(|name| !coverage.targets.iter().any(|target| target.name == **name)));
    for name in names {
        let covered = coverage.targets.iter().find(|target| target.name == name);
        // A target without a fence is a hole already, and a target inside the grantor has no address.
        if covered
            .and_then(|target| target.mode.as_deref())
            .is_some_and(|mode| !["forced", "cooperative"].contains(&mode))
        {
            continue;
        }
        let named = args.targets.iter().find(|(known, _)| known == name).map(|(_, target)| target.clone());
        let target = named.map_or_else(|| TargetAddress::parse(covered.map_or("", |target| &target.at)), Ok);
        let slots: Vec<u32> = covered.map_or(Vec::new(), |target| target.slots.iter().map(|slot| slot.slot).collect());
        let slots = if slots.is_empty() { vec![0] } else { slots };
        let probe = match target {
            Err(error) => Err(format!("invalid address: {}", error.message())),
            Ok(target) => probe_slots(&target, cluster, &args.name, &slots).await,
        };
        probes.push((name.to_owned(), probe));
    }
    probes
}

/// Probes all slots of a target. Returns the first result that is not a rejection.
async fn probe_slots(target: &TargetAddress, cluster: Cluster, resource: &str, slots: &[u32]) -> Probe {
    let mut last = ProbeResult::Missing;
    for slot in slots {
        let fence = fence_id(cluster, resource, *slot).map_err(|error| error.message().to_owned())?;
        last = target.probe(&fence).await.map_err(|error| match error {
            CommandError::Coded(error) | CommandError::WithExitCode(error, _) => error.to_string(),
            CommandError::Other(message) => message,
        })?;
        if !matches!(last, ProbeResult::Refused { .. }) {
            return Ok(last);
        }
    }
    Ok(last)
}

/// The result of a probe as a stable word.
fn probe_word(probe: &Probe) -> &'static str {
    match probe {
        Ok(ProbeResult::Refused { .. }) => "refused",
        Ok(ProbeResult::Lost) => "lost",
        Ok(ProbeResult::Admitted) => "admitted",
        Ok(ProbeResult::Missing) => "missing",
        Ok(ProbeResult::Fresh) => "fresh",
        Err(_) => "unreachable",
    }
}

/// The hole of a target, with the next step.
fn hole(target: &TargetCoverageBody, probe: Option<&Probe>) -> Option<String> {
    let name = if target.name.is_empty() { "no target" } else { &target.name };
    let found = match probe {
        Some(Ok(ProbeResult::Admitted)) => {
            Some("admitted a stale token; reinstall its fence, and check its recent writes".to_owned())
        }
        Some(Ok(ProbeResult::Missing)) => Some("has no fence for this resource; run leasehold fence arm".to_owned()),
        Some(Ok(ProbeResult::Fresh)) => Some("has not seen any token; claim it, then probe again".to_owned()),
        Some(Err(error)) => Some(format!("probe failed: {error}")),
        Some(Ok(ProbeResult::Refused { .. } | ProbeResult::Lost)) | None => None,
    };
    // A successful probe replaces a missing report.
    let proven = matches!(probe, Some(Ok(ProbeResult::Refused { .. } | ProbeResult::Lost)));
    let reported = target.hole.as_deref().filter(|word| !(proven && *word == Hole::NeverReported.word()));
    let advice = |word: &str| Hole::from_word(word).map_or_else(|| word.to_owned(), |hole| hole.advice().to_owned());
    found.or(reported.map(advice)).map(|message| format!("{name}: {message}"))
}

fn text_table(rows: &[Row]) -> String {
    let head =
        ["TARGET", "SLOT", "DECLARED", "REPORTED", "CHECKS", "LAST CHECK", "ZOMBIES", "LAST ZOMBIE", "PROBE", "HOLE"];
    let mut table = TextTable::new(head);
    for (target, probe) in rows {
        let declared = if target.declared { target.mode.clone().unwrap_or_else(|| "?".into()) } else { "-".into() };
        let name = if target.name.is_empty() { "(none)".to_owned() } else { target.name.clone() };
        let probe = or_dash(probe.as_ref().map(probe_word));
        let slots: Vec<Option<&TargetSlotBody>> =
            if target.slots.is_empty() { vec![None] } else { target.slots.iter().map(Some).collect() };
        for slot in slots {
            let last = slot.and_then(|slot| slot.last_zombie.as_ref()).map(|last| {
                let holder = last.holder.as_deref().unwrap_or("unknown holder");
                format!("{holder}, {} below {}, {}", last.presented, last.mark, format_time(last.at_ms))
            });
            table.row([
                name.clone(),
                or_dash(slot.map(|slot| slot.slot)),
                declared.clone(),
                or_dash(slot.map(|slot| slot.mode.clone())),
                or_dash(slot.map(|slot| slot.checks)),
                or_dash(slot.and_then(|slot| slot.checked_ms).map(format_time)),
                or_dash(slot.map(|slot| slot.zombies)),
                or_dash(last),
                probe.clone(),
                or_dash(target.hole.clone()),
            ]);
        }
    }
    table.text()
}

fn json_body(resource: &str, rows: &[Row]) -> Value {
    let row = |(target, probe): &Row| {
        let mut body = json!(target);
        if let Some(probe) = probe {
            let mut result = json!({ "result": probe_word(probe) });
            match probe {
                Ok(ProbeResult::Refused { presented, mark }) => {
                    result["presented"] = json!(presented.to_string());
                    result["mark"] = json!(mark.to_string());
                }
                Err(error) => result["error"] = json!(error),
                Ok(_) => {}
            }
            body["probe"] = result;
        }
        body
    };
    let holes: Vec<String> = rows.iter().filter_map(|(target, probe)| hole(target, probe.as_ref())).collect();
    json!({ "resource": resource, "targets": rows.iter().map(row).collect::<Vec<_>>(), "holes": holes })
}
