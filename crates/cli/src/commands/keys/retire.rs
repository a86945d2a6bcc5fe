//! `leasehold keys retire`: sets the end of a seal key.

use leasehold::Error;
use leasehold::duration::HumanDuration;
use leasehold_seal::{Kid, SealKey, wall_ms};
use leasehold_server::sealing::key_file_name;
use serde_json::json;

use super::{KeyDirectoryArgs, RELOAD, key_error, load};
use crate::file_set::FileSet;
use crate::global_args::GlobalArgs;
use crate::input_file;
use crate::output::CommandResult;
use crate::table::format_time;

/// End a seal key
///
/// Servers sign with another key at once, and verifiers accept the tokens of this one until its end. A holder that keeps its
/// lease beyond the end acquires it again, or raises its token. Export the public keys to every fence afterwards. Another key
/// must be active and without an end.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold keys retire 0c349504 --keys /etc/leasehold/keys --after 2d")]
pub struct Args {
    /// Id of the key
    kid: Kid,
    #[command(flatten)]
    directory: KeyDirectoryArgs,
    /// Time until the tokens of the key are refused; 0s after a theft
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    after: HumanDuration,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (ring, now) = (load(&args.directory.keys)?, wall_ms());
    let unknown = || {
        let message = format!("{}: no such key; list the keys with leasehold keys list", args.kid);
        Error::config("kid", message)
    };
    let key = ring.public().get(args.kid).ok_or_else(unknown)?;
    if key.has_ended(now) {
        return Err(Error::config("kid", format!("{}: the key has ended already; choose another", args.kid)).into());
    }
    let is_successor =
        |other: &&SealKey| other.kid() != args.kid && other.is_active(now) && other.public().end_ms().is_none();
    if !ring.keys().iter().any(|other| is_successor(&other)) {
        let message = "no other key is active and without an end, so tokens could not be sealed; \
                       create one, and retire this one when the other is active";
        return Err(Error::config("kid", format!("{}: {message}", args.kid)).into());
    }
    let path = args.directory.keys.join(key_file_name(args.kid));
    // A key that was never active ends when it would have begun.
    let end_ms = now.saturating_add(args.after.millis()).max(key.active_ms() + 1);
    let retired = SealKey::from_file_text(&input_file::read(&path)?).and_then(|key| key.with_end(Some(end_ms)));
    let retired = retired.map_err(|error| key_error(&error))?;
    let mut files = FileSet::default();
    files.replace(path.clone(), retired.to_file_text().map_err(|error| key_error(&error))?.to_string());
    files.commit()?;
    let body = json!({ "kid": args.kid.to_string(), "file": path.display().to_string(), "end_ms": end_ms });
    Ok(global.output(&body, || {
        format!(
            "tokens of the key {} are refused from {} on\n{RELOAD}\nNext: give every fence the public keys:\n  \
             leasehold keys export",
            args.kid,
            format_time(end_ms)
        )
    }))
}
