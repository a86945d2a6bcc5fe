//! `leasehold ls`: lists resources and their holders, or held leases, filtered and sorted.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::duration::HumanDuration;
use leasehold::json::{ListedLeaseBody, ListedLeasesBody, ResourceBody, ResourcesBody};
use leasehold::types::LeaseSort;
use leasehold::{Client, Error};

use super::lease_text::{LEASE_DETAILS, lease_details, slot_or_access, used_units};
use crate::global_args::{GlobalArgs, StandbyArgs};
use crate::live::{self, WatchArgs};
use crate::output::{CommandResult, error_with_code};
use crate::shell_text::quote;
use crate::styled_text::{Style, StyledText};
use crate::table::{Cell, TextTable, format_duration, or_dash};

/// List resources and their holders, or held leases by holder, age or state
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  leasehold ls team/a
  leasehold ls --stuck
  leasehold ls --older-than 1h --sort age --desc --limit 20
  leasehold ls jobs -o name
  leasehold ls --stuck --watch")]
pub struct Args {
    /// List only resources under this prefix; a prefix consists of whole segments
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// The same as PREFIX
    #[arg(long = "prefix", value_name = "PREFIX", conflicts_with = "prefix")]
    prefix_option: Option<String>,
    #[command(flatten)]
    leases: LeaseArgs,
    /// List at most N entries
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Continue where an earlier listing stopped, with the same other options
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    cursor: String,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    standby: StandbyArgs,
}

/// Options that list one line for each held lease.
#[derive(clap::Args)]
struct LeaseArgs {
    /// List the leases of holders with this name
    #[arg(long)]
    holder: Option<String>,
    /// List leases that were granted at least this long ago
    #[arg(long, value_name = "DURATION")]
    older_than: Option<HumanDuration>,
    /// List leases that were granted less than this long ago
    #[arg(long, value_name = "DURATION")]
    younger_than: Option<HumanDuration>,
    /// List leases that nothing renewed for half their ttl, or without progress for half the time in which it is required
    #[arg(long)]
    stuck: bool,
    /// List leases in this state: `active`, or `draining`
    #[arg(long, value_parser = ["active", "draining"])]
    state: Option<String>,
    /// Sort held leases by this value, smallest first. `age` is the time since the grant, `last_progress` the time since the last
    /// progress, or since the last renewal if the lease requires none
    #[arg(long, value_name = "KEY", value_parser = LeaseSort::ALL.map(LeaseSort::word))]
    sort: Option<String>,
    /// Sort the largest first
    #[arg(long, requires = "sort")]
    desc: bool,
}

impl LeaseArgs {
    /// Whether leases are listed, not resources.
    fn is_set(&self) -> bool {
        let Self { holder, older_than, younger_than, stuck, state, sort, desc: _ } = self;
        let filters = holder.is_some() || older_than.is_some() || younger_than.is_some() || state.is_some();
        filters || *stuck || sort.is_some()
    }
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let prefix = args.prefix_option.as_deref().unwrap_or(&args.prefix);
    if args.leases.is_set() {
        return live::run(&args.watch, global, async |client| {
            let client = args.standby.apply(client);
            let listing = leases(args, prefix, &client).await?;
            let note = note(args.standby.note(&client), "leases", listing.next_cursor.as_deref());
            let names = listing.leases.iter().map(|listed| listed.lease.resource.clone());
            let table = || lease_table(&listing.leases, global.is_wide());
            let output = global.listing(&listing, names, table);
            let output = global.or_empty(output, listing.leases.is_empty(), || no_leases(prefix));
            Ok(args.watch.result(&listing, output.with_note(note)))
        });
    }
    let start = match args.cursor.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| {
            let message = "cursor: not a cursor of a listing of resources; repeat the options of the first page";
            error_with_code("INVALID_ARGUMENT", &message)
        })?,
    };
    live::run(&args.watch, global, async |client| {
        let client = args.standby.apply(client);
        let listing = resources(args, prefix, start, &client).await?;
        let next = listing.next_cursor.map(|next| next.to_string());
        let note = note(args.standby.note(&client), "resources", next.as_deref());
        let names = listing.resources.iter().map(|resource| resource.resource.clone());
        let output = global.listing(&listing, names, || resource_table(&listing.resources, global.is_wide()));
        let output = global.or_empty(output, listing.resources.is_empty(), || no_resources(prefix));
        Ok(args.watch.result(&listing, output.with_note(note)))
    })
}

/// The message of an empty listing of resources, with what to try next.
fn no_resources(prefix: &str) -> String {
    match prefix {
        "" => "no resources; acquire one with `leasehold acquire NAME --holder HOLDER --ttl 30s`".to_owned(),
        prefix => format!(
            "no resources under {prefix}; a prefix consists of whole segments, and `leasehold ls` lists all resources that you may see"
        ),
    }
}

/// The message of an empty listing of leases, with what to try next.
fn no_leases(prefix: &str) -> String {
    let (under, list) = match prefix {
        "" => (String::new(), "leasehold ls".to_owned()),
        prefix => (format!(" under {prefix}"), format!("leasehold ls {}", quote(prefix))),
    };
    format!("no held lease{under} has these properties; `{list} --sort name` lists all held leases")
}

/// What a listing states besides its entries.
fn note(as_of: Option<String>, entries: &str, next: Option<&str>) -> Option<String> {
    let more = next.map(|next| format!("more {entries} follow; continue with --cursor {next}"));
    let notes: Vec<_> = as_of.into_iter().chain(more).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// The entries that are missing. The cursor must be exact, so no page is larger.
fn missing(limit: Option<u32>, found: usize) -> u32 {
    limit.map_or(u32::MAX, |limit| limit.saturating_sub(found as u32))
}

async fn resources(args: &Args, prefix: &str, start: u32, client: &Client) -> Result<ResourcesBody, Error> {
    let mut listing = ResourcesBody { resources: Vec::new(), next_cursor: Some(start), position: 0 };
    while let Some(cursor) = listing.next_cursor {
        let remaining = missing(args.limit, listing.resources.len());
        if remaining == 0 {
            break;
        }
        let mut pages = client.list(prefix).start_at(cursor).page_size(remaining);
        let Some(page) = pages.try_next().await? else { break };
        listing.resources.extend(page.resources);
        (listing.next_cursor, listing.position) = (page.next_cursor, page.position);
    }
    Ok(listing)
}

async fn leases(args: &Args, prefix: &str, client: &Client) -> Result<ListedLeasesBody, Error> {
    let LeaseArgs { holder, older_than, younger_than, stuck, state, sort, desc } = &args.leases;
    let mut listing = ListedLeasesBody { leases: Vec::new(), next_cursor: Some(args.cursor.clone()), position: 0 };
    while let Some(cursor) = &listing.next_cursor {
        let remaining = missing(args.limit, listing.leases.len());
        if remaining == 0 {
            break;
        }
        let mut pages = client.list_leases(prefix).start_at(cursor).page_size(remaining);
        if let Some(holder) = holder {
            pages = pages.of_holder(holder);
        }
        if let Some(age) = older_than {
            pages = pages.older_than(Duration::from_millis(age.millis()));
        }
        if let Some(age) = younger_than {
            pages = pages.younger_than(Duration::from_millis(age.millis()));
        }
        if *stuck {
            pages = pages.stuck(true);
        }
        if let Some(state) = state {
            pages = pages.draining(state == "draining");
        }
        if let Some(sort) = sort.as_deref().and_then(LeaseSort::from_word) {
            pages = pages.sort_by(sort, *desc);
        }
        let Some(page) = pages.try_next().await? else { break };
        listing.leases.extend(page.leases);
        (listing.next_cursor, listing.position) = (page.next_cursor, page.position);
    }
    Ok(listing)
}

fn lease_table(leases: &[ListedLeaseBody], is_wide: bool) -> StyledText {
    let header = ["RESOURCE", "HOLDER", "NUMBER", "SLOT", "AGE", "REMAINING", "SILENT", "IDLE", "WAITERS", "STATE"];
    let mut table = TextTable::new(header).with_wide(is_wide, LEASE_DETAILS);
    for listed in leases {
        let lease = &listed.lease;
        let cells: [Cell; 10] = [
            lease.resource.clone().into(),
            lease.holder.clone().into(),
            lease.token_number.clone().into(),
            slot_or_access(lease).into(),
            format_duration(listed.age_ms).into(),
            format_duration(lease.remaining_ms).into(),
            format_duration(listed.silent_ms).into(),
            or_dash(listed.idle_ms.map(format_duration)).into(),
            listed.waiters.to_string().into(),
            state_cell(listed),
        ];
        table.row_with(cells, lease_details(lease));
    }
    table.text()
}

/// Whether a lease is stuck, and why it is being drained.
fn state_cell(listed: &ListedLeaseBody) -> Cell {
    let draining = listed.lease.draining.as_ref().map(|reason| format!("draining: {reason}"));
    let stuck = listed.stuck.then(|| "stuck".to_owned());
    let style = if listed.stuck { Style::Bad } else { Style::Warning };
    let states: Vec<_> = stuck.into_iter().chain(draining).collect();
    if states.is_empty() { "active".into() } else { Cell::styled(states.join(", "), style) }
}

fn resource_table(resources: &[ResourceBody], is_wide: bool) -> StyledText {
    let header = ["RESOURCE", "HOLDER", "NUMBER", "SLOT", "REMAINING", "UNITS", "WAITERS"];
    let mut table = TextTable::new(header).with_wide(is_wide, LEASE_DETAILS);
    let dash = || Cell::from("-");
    for resource in resources {
        let used = or_dash(used_units(resource));
        let waiters = resource.waiters.to_string();
        if resource.leases.is_empty() {
            let holder = if resource.held_for_operator { Cell::styled("(operator)", Style::Warning) } else { dash() };
            let name = resource.resource.clone().into();
            table.row_with(
                [name, holder, dash(), dash(), dash(), used.into(), waiters.into()],
                [(); LEASE_DETAILS.len()].map(|()| dash()),
            );
            continue;
        }
        for lease in &resource.leases {
            let cells = [
                lease.resource.clone(),
                lease.holder.clone(),
                lease.token_number.clone(),
                slot_or_access(lease),
                format_duration(lease.remaining_ms),
                used.clone(),
                waiters.clone(),
            ];
            table.row_with(cells, lease_details(lease));
        }
    }
    table.text()
}
