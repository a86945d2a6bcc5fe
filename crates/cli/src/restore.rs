//! `leasehold restore`: a data directory from a backup, as a new life of its cluster.

use std::path::PathBuf;

use leasehold_core::token::{Cluster, Number};
use leasehold_fence::{Kept, Mark};
use leasehold_server::backup::{NotRestored, Restore, Restored, restore};
use leasehold_server::journal::file::Directory;
use serde_json::{Value, json};

use crate::connection::Everywhere;
use crate::fence::number;
use crate::table::block;
use crate::target::{Target, name_of};
use crate::told::{Outcome, coded};

/// Restore a backup into an empty directory
///
/// All of the backup is checked before anything is touched. The cluster begins a new incarnation: every token from then on
/// is higher than all before, nothing in the backup can be renewed, and nothing is granted for the longest ttl of the
/// cluster once it is served (`leasehold quarantine waive` ends that early, in writing). What was granted after the backup
/// was taken is lost. Make sure that the original never runs again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold restore monday.backup --data ./leasehold-data")]
pub struct Args {
    /// The backup
    file: PathBuf,
    /// Where to restore it; created if its parent is there, refused if there is something in it
    #[arg(long, default_value = "./leasehold-data", value_name = "DIRECTORY")]
    data: PathBuf,
    /// Give out only tokens above this number; needed when the clock is behind the backup
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    token_floor: Option<Number>,
    /// Read the marks that this target keeps for the cluster, and give out only tokens above them; may be repeated
    #[arg(long, value_name = "TARGET", value_parser = Target::parse)]
    survey: Vec<Target>,
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let mut surveyed = Vec::new();
    for target in &args.survey {
        surveyed.push((target.shown(), ask.run(async |_| target.marks().await)?));
    }
    let seen = surveyed.iter().flat_map(|(target, marks)| marks.iter().map(move |kept| (target.as_str(), kept)));
    let seen = seen.map(|(target, kept)| Surveyed { target, kept }).collect::<Vec<_>>();
    let marks = seen.iter().filter_map(|one| Some((one.kept.cluster, number_of(one.kept)?)));
    let asked = Restore { floor: args.token_floor, marks: marks.collect() };
    let restored = restore(&args.file, &Directory::new(&args.data), &asked);
    let restored = restored.map_err(|why: NotRestored| coded(why.code(), &why))?;
    Ok(ask.answer(&in_json(&restored, &seen), || for_people(&restored, &seen, &args.data.display().to_string())))
}

/// One mark, and where it was read.
struct Surveyed<'a> {
    target: &'a str,
    kept: &'a Kept,
}

/// The number of a mark. One that is lost tells nothing: then the clock lifts above it, or a floor.
fn number_of(kept: &Kept) -> Option<Number> {
    match kept.mark {
        Mark::Armed(mark) => Some(mark),
        Mark::Fresh | Mark::Lost => None,
    }
}

fn surveyed(seen: &[Surveyed<'_>], cluster: Cluster) -> String {
    let ours = seen.iter().filter(|one| one.kept.cluster == cluster);
    match ours.filter_map(|one| number_of(one.kept)).max() {
        Some(mark) => format!("{} mark(s), the highest of this cluster is {mark}", seen.len()),
        None => format!("{} mark(s), none of this cluster with a number", seen.len()),
    }
}

fn for_people(restored: &Restored, seen: &[Surveyed<'_>], data: &str) -> String {
    let mut lines = vec![
        ("cluster", restored.cluster.to_string()),
        ("incarnation", format!("{} (the backup's was {})", restored.incarnation, restored.before)),
        ("position", restored.position.to_string()),
        ("tokens", format!("above {}", restored.floor)),
        ("quarantine", format!("{} s from the first start on", restored.quarantine_ms.div_ceil(1_000))),
        ("next", format!("leasehold serve --data {data}")),
    ];
    if !seen.is_empty() {
        lines.insert(0, ("surveyed", surveyed(seen, restored.cluster)));
    }
    block(&lines)
}

fn in_json(restored: &Restored, seen: &[Surveyed<'_>]) -> Value {
    let surveyed = seen.iter().map(|one| {
        let mark = number_of(one.kept).map(|mark| mark.to_string());
        json!({ "target": one.target, "cluster": one.kept.cluster.to_string(), "resource": name_of(one.kept),
            "slot": one.kept.slot, "mark": mark, "lost": one.kept.mark == Mark::Lost })
    });
    json!({
        "surveyed": surveyed.collect::<Vec<_>>(),
        "cluster": restored.cluster.to_string(),
        "incarnation": restored.incarnation.to_string(),
        "incarnation_before": restored.before.to_string(),
        "taken_wall_ms": restored.taken.0,
        "position": restored.position,
        "token_floor": restored.floor.to_string(),
        "quarantine_ms": restored.quarantine_ms,
    })
}
