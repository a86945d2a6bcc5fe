//! `leasehold ls`: lists resources and their holders.

use futures::TryStreamExt;
use leasehold::json::{ResourceBody, ResourcesBody};

use super::lease_text::{slot_or_access, used_units};
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::output::CommandResult;
use crate::table::{TextTable, format_duration, or_dash};

/// List resources and their holders
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ls team/a")]
pub struct Args {
    /// List only resources under this prefix; a prefix consists of whole segments
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// List at most N resources
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Continue where an earlier listing stopped
    #[arg(long, value_name = "N", default_value_t = 0)]
    cursor: u32,
    #[command(flatten)]
    standby: StandbyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let (listing, as_of) = global.query(&args.standby, async |client| {
        let mut listing = ResourcesBody { resources: Vec::new(), next_cursor: Some(args.cursor), position: 0 };
        // The cursor must be exact, so no page is larger than the remaining limit.
        while let Some(cursor) = listing.next_cursor {
            let remaining = args.limit.map_or(u32::MAX, |limit| limit.saturating_sub(listing.resources.len() as u32));
            if remaining == 0 {
                break;
            }
            let mut pages = client.list(&args.prefix).start_at(cursor).page_size(remaining);
            let Some(page) = pages.try_next().await? else { break };
            listing.resources.extend(page.resources);
            (listing.next_cursor, listing.position) = (page.next_cursor, page.position);
        }
        Ok(listing)
    })?;
    let more = listing.next_cursor.map(|next| format!("more resources follow; continue with --cursor {next}"));
    let notes: Vec<_> = as_of.into_iter().chain(more).collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    Ok(global.output(&listing, || resource_table(&listing.resources)).with_note(note))
}

fn resource_table(resources: &[ResourceBody]) -> String {
    let mut table = TextTable::new(["RESOURCE", "HOLDER", "NUMBER", "SLOT", "REMAINING", "UNITS", "WAITERS"]);
    for resource in resources {
        let used = or_dash(used_units(resource));
        let waiters = resource.waiters.to_string();
        if resource.leases.is_empty() {
            let holder = if resource.held_for_operator { "(operator)" } else { "-" };
            let dash = || "-".to_owned();
            table.row([resource.resource.clone(), holder.to_owned(), dash(), dash(), dash(), used, waiters]);
            continue;
        }
        for lease in &resource.leases {
            table.row([
                lease.resource.clone(),
                lease.holder.clone(),
                lease.token_number.clone(),
                slot_or_access(lease),
                format_duration(lease.remaining_ms),
                used.clone(),
                waiters.clone(),
            ]);
        }
    }
    table.text()
}
