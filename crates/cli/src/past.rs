//! `leasehold history` and `usage`: what is over, and what it cost.

use leasehold::Wanted;
use leasehold::json::{EntryBody, TrailBody};

use crate::connection::Everywhere;
use crate::table::{Table, lasting, moment, or_dash};
use crate::told::Outcome;

/// Tell what happened to a resource, newest first
///
/// Asks the audit trail: grants, ends with their reason, handoffs, revocations and every other change, each with who,
/// when and why. Numbers of tokens only. Renewals and waits are no changes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold history jobs/settle --most 20")]
pub struct History {
    /// The resource; without, everything
    name: Option<String>,
    /// At most so many entries
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// Oldest first
    #[arg(long)]
    from_start: bool,
    /// Only entries with a higher number
    #[arg(long, value_name = "ENTRY", default_value_t = 0, hide_default_value = true)]
    after: u64,
    /// Only entries with a lower number
    #[arg(long, value_name = "ENTRY", value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
}

pub fn history(args: &History, ask: &Everywhere) -> Outcome {
    let wanted = Wanted {
        resource: args.name.clone(),
        from_start: args.from_start,
        after: args.after,
        before: args.before.unwrap_or(0),
    };
    // One more than is shown says whether there is more.
    let most = (args.most as usize).saturating_add(1);
    let mut told = ask.ask(async |client| {
        let mut trail = client.trail(wanted);
        let mut entries = Vec::new();
        while entries.len() < most {
            match trail.page((most - entries.len()) as u32).await? {
                Some(page) => entries.extend(page),
                None => break,
            }
        }
        Ok(TrailBody { entries, ..trail.end().clone() })
    })?;
    let more = told.entries.len() == most;
    told.entries.truncate(args.most as usize);
    let on = if args.from_start { "--after" } else { "--before" };
    let last = told.entries.last().map_or(0, |entry| entry.entry);
    let note = more.then(|| format!("there is more; go on with {on} {last}"));
    Ok(ask.answer(&told, || entries(&told.entries)).noting(note))
}

fn entries(entries: &[EntryBody]) -> String {
    let mut table = Table::new(["ENTRY", "WHEN", "WHAT", "RESOURCE", "HOLDER", "NUMBER", "REASON", "WHY"]);
    for entry in entries {
        let ended = entry.state.as_ref().zip(entry.reason.as_ref());
        let reason = ended.map(|(state, reason)| format!("{state}: {reason}"));
        let to = entry.to.as_ref().map(|to| format!("to {to}"));
        table.row([
            entry.entry.to_string(),
            moment(entry.wall_ms),
            entry.kind.clone(),
            or_dash(entry.resource.as_ref()),
            or_dash(entry.holder.as_ref()),
            or_dash(entry.token_number.as_ref()),
            or_dash(reason.or(to)),
            or_dash(entry.why.as_ref()),
        ]);
    }
    table.text()
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
