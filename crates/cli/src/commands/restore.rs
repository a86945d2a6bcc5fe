//! `leasehold restore`: creates a data directory from a backup, as a new incarnation of its cluster.

use std::path::PathBuf;

use leasehold::duration::HumanDuration;
use leasehold_core::token::{Cluster, Number};
use leasehold_fence::{Mark, MarkInfo};
use leasehold_server::backup::{RestoreError, RestoreOptions, RestoreSummary, restore};
use leasehold_server::journal::file::Directory;
use serde_json::{Value, json};

use crate::fence::parse_number;
use crate::global_args::GlobalArgs;
use crate::output::{CommandResult, error_with_code};
use crate::serve::parse_max_ttl;
use crate::table::key_values;
use crate::target::{AddressParser, TargetAddress, display_name};

/// Restore a backup into an empty directory
///
/// The whole backup is verified before anything is written. The cluster starts a new incarnation: every new token is higher
/// than all earlier ones, and no lease in the backup can be renewed. After the first start nothing is granted for the
/// maximum ttl of the cluster; `leasehold quarantine waive` ends this quarantine early. Changes made after the backup are
/// lost. Make sure that the original server never runs again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold restore monday.backup --data ./leasehold-data")]
pub struct Args {
    /// Backup file
    file: PathBuf,
    /// Data directory to create; it must be empty or absent, and its parent must exist
    #[arg(long, default_value = "./leasehold-data", value_name = "DIRECTORY")]
    data: PathBuf,
    /// Issue only tokens above this number, at most one day ahead of the clock; required if the clock is behind the backup
    #[arg(long, value_name = "NUMBER", value_parser = parse_number)]
    token_floor: Option<Number>,
    /// Longest maximum ttl that the cluster had since the backup, if it was raised: nothing is granted for at least this long
    #[arg(long, value_name = "DURATION", value_parser = parse_max_ttl)]
    max_ttl: Option<HumanDuration>,
    /// Read the marks in this target and issue only tokens above them; may be repeated
    #[arg(long, value_name = "TARGET", value_parser = AddressParser::new(TargetAddress::parse))]
    target: Vec<TargetAddress>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut targets = Vec::new();
    for target in &args.target {
        targets.push((target.redacted(), global.with_client(async |_| target.marks().await)?));
    }
    let marks = targets.iter().flat_map(|(target, marks)| marks.iter().map(move |mark| (target.as_str(), mark)));
    let marks = marks.map(|(target, mark)| ListedMark { target, mark }).collect::<Vec<_>>();
    let numbers = marks.iter().filter_map(|found| Some((found.mark.cluster, mark_number(found.mark)?)));
    let options = RestoreOptions {
        floor: args.token_floor,
        max_ttl: args.max_ttl.map(HumanDuration::millis),
        marks: numbers.collect(),
    };
    let restored = restore(&args.file, &Directory::new(&args.data), &options);
    let restored = restored.map_err(|error: RestoreError| error_with_code(error.code(), &error))?;
    let data = args.data.display().to_string();
    Ok(global.output(&restored_json(&restored, &marks), || restored_text(&restored, &marks, &data)))
}

/// A mark and the target that it was read from.
struct ListedMark<'a> {
    target: &'a str,
    mark: &'a MarkInfo,
}

/// The number of a mark. A lost mark has none: then the clock or `--token-floor` must raise the tokens above it.
fn mark_number(mark: &MarkInfo) -> Option<Number> {
    match mark.mark {
        Mark::Armed(number) => Some(number),
        Mark::Fresh | Mark::Lost => None,
    }
}

fn marks_text(marks: &[ListedMark<'_>], cluster: Cluster) -> String {
    let of_cluster = marks.iter().filter(|found| found.mark.cluster == cluster);
    match of_cluster.filter_map(|found| mark_number(found.mark)).max() {
        Some(mark) => format!("{} mark(s), the highest of this cluster is {mark}", marks.len()),
        None => format!("{} mark(s), none of this cluster with a number", marks.len()),
    }
}

fn restored_text(restored: &RestoreSummary, marks: &[ListedMark<'_>], data: &str) -> String {
    let mut lines = vec![
        ("cluster", restored.cluster.to_string()),
        ("incarnation", format!("{} (in the backup: {})", restored.incarnation, restored.previous)),
        ("position", restored.position.to_string()),
        ("tokens", format!("above {}", restored.floor)),
        ("quarantine", format!("{} s from the first start", restored.quarantine_ms.div_ceil(1_000))),
        ("next", format!("leasehold serve --data {data}")),
    ];
    if !marks.is_empty() {
        lines.insert(0, ("marks", marks_text(marks, restored.cluster)));
    }
    key_values(&lines)
}

fn restored_json(restored: &RestoreSummary, marks: &[ListedMark<'_>]) -> Value {
    let marks = marks.iter().map(|found| {
        let number = mark_number(found.mark).map(|number| number.to_string());
        json!({ "target": found.target, "cluster": found.mark.cluster.to_string(), "resource": display_name(found.mark),
            "slot": found.mark.slot, "mark": number, "lost": found.mark.mark == Mark::Lost })
    });
    json!({
        "marks": marks.collect::<Vec<_>>(),
        "cluster": restored.cluster.to_string(),
        "incarnation": restored.incarnation.to_string(),
        "incarnation_before": restored.previous.to_string(),
        "taken_wall_ms": restored.taken_at.0,
        "position": restored.position,
        "token_floor": restored.floor.to_string(),
        "quarantine_ms": restored.quarantine_ms,
    })
}
