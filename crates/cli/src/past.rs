//! `leasehold history` and `usage`: what is over, and what it cost.

use crate::connection::Everywhere;
use crate::table::{Table, lasting};
use crate::told::Outcome;

/// List the remembered ends of a resource's leases, latest first
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold history jobs/settle")]
pub struct History {
    /// The resource
    name: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
}

pub fn history(args: &History, ask: &Everywhere) -> Outcome {
    let ends = ask.ask(async |client| client.history(&args.name, args.most).await)?;
    Ok(ask.answer(&ends, || {
        let mut table = Table::new(["NUMBER", "HOLDER", "HELD FOR", "ENDED AT", "STATE", "REASON"]);
        for end in &ends {
            table.row([
                end.token_number.clone(),
                end.holder.clone(),
                lasting(end.ended_ms.saturating_sub(end.granted_ms)),
                lasting(end.ended_ms),
                end.state.clone(),
                end.reason.clone(),
            ]);
        }
        table.text()
    }))
}

/// Tell for how long holders held, by the reason of the end
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold usage worker-1")]
pub struct Usage {
    /// One holder only
    holder: Option<String>,
}

pub fn usage(args: &Usage, ask: &Everywhere) -> Outcome {
    let used = ask.ask(async |client| client.usage(args.holder.as_deref()).await)?;
    Ok(ask.answer(&used, || {
        let mut table = Table::new(["HOLDER", "STATE", "REASON", "LEASES", "HELD FOR"]);
        for holder in &used {
            let name = if holder.holder.is_empty() { "(all others)" } else { &holder.holder };
            for row in &holder.rows {
                table.row([
                    name.to_owned(),
                    row.state.clone(),
                    row.reason.clone(),
                    row.ended.to_string(),
                    lasting(row.held_ms),
                ]);
            }
        }
        table.text()
    }))
}
