//! `leasehold keys create`: a new seal key.

use leasehold::duration::HumanDuration;
use leasehold_seal::{SealKey, wall_ms};
use leasehold_server::sealing::{SealKeyRing, key_file_name};
use serde_json::json;

use super::{KeyDirectoryArgs, LATER_MS, RELOAD, key_error};
use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::format_time;

/// Create a seal key
///
/// The first key is active at once. A further key becomes active after one hour, unless --active-in says otherwise: export the
/// public keys to every fence before, because a fence refuses tokens of keys that it does not know.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold keys create --keys /etc/leasehold/keys\n  \
                        leasehold keys create --keys /etc/leasehold/keys --active-in 1d")]
pub struct Args {
    #[command(flatten)]
    directory: KeyDirectoryArgs,
    /// Time until servers sign with the key [default: 0s for the first key, 1h for others]
    #[arg(long, value_name = "DURATION")]
    active_in: Option<HumanDuration>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = &args.directory.keys;
    // A directory that does not exist has no keys.
    let existing = SealKeyRing::load(directory).map_err(|error| leasehold::Error::config("keys", error.to_string()))?;
    let now = wall_ms();
    let is_first = existing.signing_key(now).is_none();
    let delay = args.active_in.map_or(if is_first { 0 } else { LATER_MS }, HumanDuration::millis);
    let active_ms = now.saturating_add(delay);
    let key = SealKey::generate(now).and_then(|key| key.with_active(active_ms)).map_err(|error| key_error(&error))?;
    let mut files = FileSet::default();
    files.directory(directory, 0o700);
    let path = directory.join(key_file_name(key.kid()));
    let text = key.to_file_text().map_err(|error| key_error(&error))?;
    files.create(path.clone(), FileAccess::Private, text.to_string())?;
    files.commit()?;
    let body = json!({ "kid": key.kid().to_string(), "file": path.display().to_string(), "active_ms": active_ms });
    Ok(global.output(&body, || {
        format!(
            "created {}, active from {} on\n{RELOAD}\nNext: give every fence the public keys:\n  leasehold keys export",
            path.display(),
            format_time(active_ms)
        )
    }))
}
