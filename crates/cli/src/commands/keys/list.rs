//! `leasehold keys list`: the seal keys of a key directory.

use leasehold_seal::{SealKey, wall_ms};
use serde_json::json;

use super::{KeyDirectoryArgs, load};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::{TextTable, format_time, or_dash};

/// List the seal keys with their times
///
/// States: `signs` (the server signs with it now), `verifies` (its tokens are accepted), `waits` (not active yet) and `ended`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold keys list --keys /etc/leasehold/keys")]
pub struct Args {
    #[command(flatten)]
    directory: KeyDirectoryArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (ring, now) = (load(&args.directory.keys)?, wall_ms());
    let signing = ring.signing_key(now).map(SealKey::kid);
    let state = |key: &SealKey| match key {
        key if Some(key.kid()) == signing => "signs",
        key if key.public().has_ended(now) => "ended",
        key if key.public().active_ms() > now => "waits",
        _ => "verifies",
    };
    let mut keys: Vec<_> = ring.keys().iter().collect();
    keys.sort_by_key(|key| (key.public().active_ms(), key.kid()));
    let body = json!({
        "keys": keys.iter().map(|key| json!({
            "kid": key.kid().to_string(),
            "created_ms": key.created_ms(),
            "active_ms": key.public().active_ms(),
            "end_ms": key.public().end_ms(),
            "state": state(key),
        })).collect::<Vec<_>>(),
    });
    Ok(global.output(&body, || {
        let mut table = TextTable::new(["KID", "CREATED", "ACTIVE", "END", "STATE"]);
        for key in &keys {
            table.row([
                key.kid().to_string(),
                format_time(key.created_ms()),
                format_time(key.public().active_ms()),
                or_dash(key.public().end_ms().map(format_time)),
                state(key).to_owned(),
            ]);
        }
        table.text()
    }))
}
