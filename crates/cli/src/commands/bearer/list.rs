//! `leasehold bearer list`: all tokens with principal, end and state. Tokens themselves are not known to the file.

use leasehold_server::bearer::timestamp_text;
use serde_json::json;

use super::BearerDirectoryArgs;
use super::bearer_directory::{BearerDirectory, now, state};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::table::TextTable;

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
    Ok(global.output(&body, || {
        let mut table = TextTable::new(["ID", "PRINCIPAL", "CREATED", "EXPIRES", "STATE"]);
        for entry in entries {
            table.row([
                entry.id.clone(),
                entry.principal.clone(),
                timestamp_text(entry.created),
                timestamp_text(entry.expires),
                state(entry, now).to_owned(),
            ]);
        }
        table.text()
    }))
}
