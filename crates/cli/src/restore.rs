//! `leasehold restore`: a data directory from a backup, as a new life of its cluster.

use std::path::PathBuf;

use leasehold_core::token::Number;
use leasehold_server::backup::{NotRestored, Restore, Restored, restore};
use leasehold_server::journal::file::Directory;
use serde_json::{Value, json};

use crate::{EXIT_OTHER, EXIT_USAGE, Failure, Outcome};

/// Restore a backup into an empty directory
///
/// All of the backup is checked before anything is touched. The cluster begins a new incarnation: every token from then on
/// is higher than all before, nothing in the backup can be renewed, and nothing is granted for the longest ttl of the
/// cluster once it is served (`leasehold quarantine waive` ends that early, in writing). What was granted after the backup
/// was taken is lost. Make sure that the original never runs again.
///
/// Example: leasehold restore monday.backup --data ./leasehold-data
#[derive(clap::Args)]
pub struct Args {
    /// The backup
    file: PathBuf,
    /// Where to restore it; created if its parent is there, refused if there is something in it
    #[arg(long, default_value = "./leasehold-data", value_name = "DIRECTORY")]
    data: PathBuf,
    /// Give out only tokens above this number; needed when the clock is behind the backup
    #[arg(long, value_name = "NUMBER", value_parser = floor)]
    token_floor: Option<Number>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The configuration, or what stands in the data directory, stops it.
const EXIT_CONFIG: u8 = 78;
/// What is stored is damaged.
const EXIT_CORRUPT: u8 = 65;
/// There is no room.
const EXIT_LIMIT: u8 = 7;

fn floor(text: &str) -> Result<Number, String> {
    text.parse().ok().and_then(Number::new).ok_or_else(|| "a token number, from 1 to 9223372036854775807".to_owned())
}

pub fn run(args: &Args) -> Outcome {
    let asked = Restore { floor: args.token_floor };
    match restore(&args.file, &Directory::new(&args.data), &asked) {
        Ok(restored) if args.json => Ok(in_json(&restored).to_string()),
        Ok(restored) => Ok(for_people(&restored, &args.data.display().to_string())),
        Err(why) => Err(refused(&why, args.json)),
    }
}

fn for_people(restored: &Restored, data: &str) -> String {
    [
        format!("cluster      {}", restored.cluster),
        format!("incarnation  {} (the backup's was {})", restored.incarnation, restored.before),
        format!("position     {}", restored.position),
        format!("tokens       above {}", restored.floor),
        format!("quarantine   {} s from the first start on", restored.quarantine_ms.div_ceil(1_000)),
        format!("next         leasehold serve --data {data}"),
    ]
    .join("\n")
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

fn refused(why: &NotRestored, in_json: bool) -> Failure {
    let exit = match why.code() {
        "CORRUPT" => EXIT_CORRUPT,
        "CONFIG" => EXIT_CONFIG,
        "STORAGE_FULL" => EXIT_LIMIT,
        "UNSUPPORTED_VERSION" => EXIT_USAGE,
        _ => EXIT_OTHER,
    };
    let text = if in_json {
        json!({ "code": why.code(), "message": why.to_string() }).to_string()
    } else {
        format!("leasehold: {}: {why}", why.code())
    };
    Failure { exit, text }
}
