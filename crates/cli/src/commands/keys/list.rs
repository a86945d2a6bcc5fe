//! `leasehold keys list`: the seal keys and the stamp keys of a key directory.

use leasehold_seal::{SealKey, TargetStampKey, wall_ms};
use serde_json::json;

use super::{KeyDirectoryArgs, load};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::shell_text::quote;
use crate::styled_text::StyledText;
use crate::table::{TextTable, format_time, or_dash};

/// List the seal keys and the stamp keys with their times
///
/// States: `signs` (the server signs with it now), `verifies` (its tokens are accepted), `waits` (not active yet) and `ended`. Stamp keys:
/// `stamps`, `waits`, and `replaced` by a newer one of the same target and prefix.
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
    let mut stamp_keys: Vec<_> = ring.stamp_keys().iter().collect();
    stamp_keys.sort_by_key(|key| (&key.target, &key.prefix, key.active_ms, key.key.id()));
    let stamp_state = |key: &TargetStampKey| {
        let newer = |other: &&TargetStampKey| {
            (&other.target, &other.prefix) == (&key.target, &key.prefix)
                && other.active_ms <= now
                && (other.active_ms, other.key.id()) > (key.active_ms, key.key.id())
        };
        match key {
            key if key.active_ms > now => "waits",
            _ if stamp_keys.iter().any(newer) => "replaced",
            _ => "stamps",
        }
    };
    let body = json!({
        "keys": keys.iter().map(|key| json!({
            "kid": key.kid().to_string(),
            "created_ms": key.created_ms(),
            "active_ms": key.public().active_ms(),
            "end_ms": key.public().end_ms(),
            "state": state(key),
        })).collect::<Vec<_>>(),
        "stamp_keys": stamp_keys.iter().map(|key| json!({
            "id": key.key.id().to_string(),
            "target": key.target,
            "under": key.prefix,
            "created_ms": key.created_ms,
            "active_ms": key.active_ms,
            "state": stamp_state(key),
        })).collect::<Vec<_>>(),
    });
    let ids = keys.iter().map(|key| key.kid().to_string());
    let ids = ids.chain(stamp_keys.iter().map(|key| key.key.id().to_string()));
    let output = global.listing(&body, ids, || {
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
        if stamp_keys.is_empty() {
            return table.text();
        }
        let mut stamps = TextTable::new(["ID", "TARGET", "UNDER", "CREATED", "ACTIVE", "STATE"]);
        for key in &stamp_keys {
            stamps.row([
                key.key.id().to_string(),
                key.target.clone(),
                or_dash(Some(&key.prefix).filter(|prefix| !prefix.is_empty())),
                format_time(key.created_ms),
                format_time(key.active_ms),
                stamp_state(key).to_owned(),
            ]);
        }
        StyledText::join([table.text(), stamps.text()], "\n\n")
    });
    let is_empty = keys.is_empty() && stamp_keys.is_empty();
    Ok(global.or_empty(output, is_empty, || {
        let directory = args.directory.keys.display().to_string();
        format!("no keys in {directory}; create one with `leasehold keys create --keys {}`", quote(&directory))
    }))
}
