//! `leasehold usage`: sums how long holders held leases, by end reason.

use super::lease_text::lease_end;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::shell_text::quote;
use crate::table::{TextTable, format_duration};

/// Sum the time that holders held leases, by end reason
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold usage worker-1")]
pub struct Args {
    /// Show only this holder
    holder: Option<String>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let usage = global.call(async |client| client.usage(args.holder.as_deref()).await)?;
    let names = usage.iter().map(|holder| holder.holder.clone()).filter(|name| !name.is_empty());
    let output = global.listing(&usage, names, || {
        let header = ["HOLDER", "END", "LEASES", "HELD FOR"];
        let mut table = TextTable::new(header).with_wide(global.is_wide(), ["MEAN", "STATE", "REASON"]);
        for holder in &usage {
            let name = if holder.holder.is_empty() { "(all others)" } else { &holder.holder };
            for row in &holder.rows {
                let cells = [
                    name.to_owned(),
                    lease_end(&row.state, &row.reason),
                    row.count.to_string(),
                    format_duration(row.held_ms),
                ];
                let mean = format_duration(row.held_ms.checked_div(row.count).unwrap_or_default());
                table.row_with(cells, [mean, row.state.clone(), row.reason.clone()]);
            }
        }
        table.text()
    });
    let is_empty = usage.iter().all(|holder| holder.rows.is_empty());
    Ok(global.or_empty(output, is_empty, || match &args.holder {
        Some(holder) => {
            format!("no lease of {holder} has ended; `leasehold held-by {}` lists what it holds", quote(holder))
        }
        None => "no lease has ended; `leasehold ls` lists what is held".to_owned(),
    }))
}
