//! `leasehold bearer list`: all tokens with principal, end and state. Tokens themselves are not known to the file.

use leasehold_server::bearer::timestamp_text;
use serde_json::json;

use super::BearerDirectoryArgs;
use super::bearer_directory::{BearerDirectory, now, state};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::{TextTable, or_dash};

/// List the bearer tokens with id, principal, end and state
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold bearer list --dir /etc/leasehold")]
pub struct Args {
    #[command(flatten)]
    directory: BearerDirectoryArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = BearerDirectory::open(&args.directory.dir)?;
    let (entries, now) = (&directory.file.entries, now());
    let body = json!({
        "bearers": entries.iter().map(|entry| json!({
            "id": entry.id,
            "principal": entry.principal,
            "created": timestamp_text(entry.created),
            "expires": timestamp_text(entry.expires),
            "revoked": entry.revoked.map(timestamp_text),
            "state": state(entry, now),
        })).collect::<Vec<_>>(),
    });
    let output = global.listing(&body, entries.iter().map(|entry| entry.id.clone()), || {
        let header = ["ID", "PRINCIPAL", "CREATED", "EXPIRES", "STATE"];
        let mut table = TextTable::new(header).with_wide(global.is_wide(), ["REVOKED"]);
        for entry in entries {
            let cells = [
                entry.id.clone(),
                entry.principal.clone(),
                timestamp_text(entry.created),
                timestamp_text(entry.expires),
                state(entry, now).to_owned(),
            ];
            table.row_with(cells, [or_dash(entry.revoked.map(timestamp_text))]);
        }
        table.text()
    });
    Ok(global.or_empty(output, entries.is_empty(), || {
        let file = directory.bearer_path();
        format!("no bearer tokens in {}; create one with `leasehold bearer create NAME`", file.display())
    }))
}
