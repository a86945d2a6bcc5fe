//! `leasehold restore`: a data directory from a backup, as a new life of its cluster.

use std::path::PathBuf;

use leasehold_core::token::Number;
use leasehold_server::backup::{NotRestored, Restore, Restored, restore};
use leasehold_server::journal::file::Directory;
use serde_json::{Value, json};

use crate::connection::Everywhere;
use crate::table::block;
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
    #[arg(long, value_name = "NUMBER", value_parser = floor)]
    token_floor: Option<Number>,
}

fn floor(text: &str) -> Result<Number, String> {
    text.parse().ok().and_then(Number::new).ok_or_else(|| "a token number, from 1 to 9223372036854775807".to_owned())
}

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    let asked = Restore { floor: args.token_floor };
    let restored = restore(&args.file, &Directory::new(&args.data), &asked);
    let restored = restored.map_err(|why: NotRestored| coded(why.code(), &why))?;
    Ok(ask.answer(&in_json(&restored), || for_people(&restored, &args.data.display().to_string())))
}

fn for_people(restored: &Restored, data: &str) -> String {
    block(&[
        ("cluster", restored.cluster.to_string()),
        ("incarnation", format!("{} (the backup's was {})", restored.incarnation, restored.before)),
        ("position", restored.position.to_string()),
        ("tokens", format!("above {}", restored.floor)),
        ("quarantine", format!("{} s from the first start on", restored.quarantine_ms.div_ceil(1_000))),
        ("next", format!("leasehold serve --data {data}")),
    ])
}

fn in_json(restored: &Restored) -> Value {
    json!({
        "cluster": restored.cluster.to_string(),
        "incarnation": restored.incarnation.to_string(),
        "incarnation_before": restored.before.to_string(),
        "taken_wall_ms": restored.taken.0,
        "position": restored.position,
        "token_floor": restored.floor.to_string(),
        "quarantine_ms": restored.quarantine_ms,
    })
}
