//! `leasehold keys create-stamp`: a new stamp key for a target.

use leasehold::Error;
use leasehold::duration::HumanDuration;
use leasehold_seal::{SealKeyError, TargetStampKey, wall_ms};
use leasehold_server::sealing::stamp_file_name;
use serde_json::json;

use super::{KeyDirectoryArgs, LATER_MS, RELOAD, key_error, load};
use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::format_time;

/// Create a stamp key for a PostgreSQL target
///
/// PostgreSQL cannot verify signatures, so it verifies stamps. A server with the key sends each holder its token with a stamp for the
/// target, if the charter of the resource declares the target. The first key of a target is active at once. A further key becomes
/// active after one hour, unless --active-in says otherwise: give it to the database before (`leasehold fence seal`).
///
/// To replace a key: create a new one, run `leasehold fence seal` with it, and when no holder presents stamps of the old one any
/// more, remove it from the database (`leasehold.retire_stamp_key`) and delete its file.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold keys create-stamp ledger --under jobs --keys /etc/leasehold/keys")]
pub struct Args {
    /// Name of the target, as charters declare it
    target: String,
    /// Prefix of the resources whose tokens are stamped; empty for all
    #[arg(long, value_name = "PREFIX")]
    under: String,
    #[command(flatten)]
    directory: KeyDirectoryArgs,
    /// Time until servers stamp with the key [default: 0s for the first key of the target, 1h for others]
    #[arg(long, value_name = "DURATION")]
    active_in: Option<HumanDuration>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (directory, now) = (&args.directory.keys, wall_ms());
    let existing = load(directory)?;
    let replaces = |key: &TargetStampKey| key.target == args.target && key.prefix == args.under;
    let delay = if existing.stamp_keys().iter().any(replaces) { LATER_MS } else { 0 };
    let active_ms = now.saturating_add(args.active_in.map_or(delay, HumanDuration::millis));
    let key = TargetStampKey::generate(&args.target, &args.under, now, active_ms);
    let key = key.map_err(|error| argument_error(args, &error))?;
    let id = key.key.id();
    let mut files = FileSet::default();
    let path = directory.join(stamp_file_name(id));
    let text = key.to_file_text().map_err(|error| key_error(&error))?;
    files.create(path.clone(), FileAccess::Private, text.to_string())?;
    files.commit()?;
    let file = path.display().to_string();
    let body = json!({
        "id": id.to_string(), "file": file, "target": args.target, "under": args.under, "active_ms": active_ms,
    });
    Ok(global.output(&body, || {
        format!(
            "created {file}, active from {} on\n{RELOAD}\nNext: copy the file to every server of the cluster, and seal the fence \
             with it:\n  leasehold fence seal postgres://… --resource … --stamp-key {file}",
            format_time(active_ms)
        )
    }))
}

/// The error of an argument, with its name.
fn argument_error(args: &Args, error: &SealKeyError) -> Error {
    match error {
        SealKeyError::Field { field: "prefix", expected } => {
            Error::config("under", format!("{:?} is not {expected}; for example --under jobs", args.under))
        }
        SealKeyError::Field { field: "target", expected } => {
            Error::config("target", format!("{:?} is not {expected}; copy it from the charter", args.target))
        }
        error => key_error(error),
    }
}
