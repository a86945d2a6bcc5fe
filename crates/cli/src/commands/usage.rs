//! `leasehold usage`: sums how long holders held leases, by end reason.

use super::lease_text::lease_end;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
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
    Ok(global.output(&usage, || {
        let mut table = TextTable::new(["HOLDER", "END", "LEASES", "HELD FOR"]);
        for holder in &usage {
            let name = if holder.holder.is_empty() { "(all others)" } else { &holder.holder };
            for row in &holder.rows {
                table.row([
                    name.to_owned(),
                    lease_end(&row.state, &row.reason),
                    row.count.to_string(),
                    format_duration(row.held_ms),
                ]);
            }
        }
        table.text()
    }))
}
