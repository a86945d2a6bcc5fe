//! `leasehold history`: lists audit entries of a resource.

use futures::TryStreamExt;
use leasehold::AuditFilter;
use leasehold::json::{AuditEntryBody, AuditPageBody};

use super::lease_text::lease_end;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::styled_text::StyledText;
use crate::table::{TextTable, format_duration, format_time, or_dash};

/// List what happened to a resource, newest first
///
/// Reads the audit log: grants, ends with their reason, handoffs, revocations and every other change, each with its
/// actor, time and comment. It shows token numbers, never tokens. Renewals and waits are not recorded.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold history jobs/settle --limit 20")]
pub struct Args {
    /// Resource; all resources if omitted
    resource: Option<String>,
    /// List at most N entries
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List the oldest entries first
    #[arg(long)]
    oldest_first: bool,
    /// List only entries with a higher number
    #[arg(long, value_name = "ENTRY", default_value_t = 0, hide_default_value = true)]
    after: u64,
    /// List only entries with a lower number
    #[arg(long, value_name = "ENTRY", value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut filter = AuditFilter::new().after(args.after).before(args.before.unwrap_or(0));
    if let Some(resource) = &args.resource {
        filter = filter.resource(resource);
    }
    if args.oldest_first {
        filter = filter.oldest_first();
    }
    // One entry more than is printed shows whether there are more. A page may be empty although the search continues.
    let limit = (args.limit as usize).saturating_add(1);
    let mut audit = global.call(async |client| {
        let mut pages = client.audit(filter).page_size(u32::try_from(limit).unwrap_or(u32::MAX));
        let (mut entries, mut end) = (Vec::new(), AuditPageBody::default());
        while entries.len() < limit
            && let Some(page) = pages.try_next().await?
        {
            entries.extend(page.entries);
            end = page.end;
        }
        entries.truncate(limit);
        Ok(AuditPageBody { entries, ..end })
    })?;
    let has_more = audit.entries.len() == limit;
    audit.entries.truncate(args.limit as usize);
    let option = if args.oldest_first { "--after" } else { "--before" };
    let last = audit.entries.last().map_or(0, |entry| entry.entry);
    audit.next = has_more.then_some(last);
    let note = has_more.then(|| format!("more entries follow; continue with {option} {last}"));
    let names = audit.entries.iter().map(|entry| entry.entry.to_string());
    let output = global.listing(&audit, names, || entry_table(&audit.entries, global.is_wide()));
    let output = global.or_empty(output, audit.entries.is_empty(), || no_entries(args));
    Ok(output.with_note(note))
}

/// The message of an empty history, with what to try next.
fn no_entries(args: &Args) -> String {
    match &args.resource {
        Some(resource) => format!(
            "no audit entry of {resource} in this range; the server may have deleted old entries (audit_max_age), and \
             `leasehold history` lists those of all resources"
        ),
        None => "no audit entry in this range; omit --after and --before".to_owned(),
    }
}

fn entry_table(entries: &[AuditEntryBody], is_wide: bool) -> StyledText {
    let header = ["ENTRY", "TIME", "CHANGE", "RESOURCE", "HOLDER", "NUMBER", "BY", "REASON", "COMMENT"];
    let mut table = TextTable::new(header).with_wide(is_wide, WIDE);
    for entry in entries {
        let end = entry.state.as_ref().zip(entry.reason.as_ref());
        let reason = end.map(|(state, reason)| lease_end(state, reason));
        let to = entry.to.as_ref().map(|to| format!("to {to}"));
        let cells = [
            entry.entry.to_string(),
            format_time(entry.wall_ms),
            entry.kind.clone(),
            or_dash(entry.resource.as_ref()),
            or_dash(entry.holder.as_ref()),
            or_dash(entry.token_number.as_ref()),
            or_dash(entry.by.as_ref()),
            or_dash(reason.or(to)),
            or_dash(entry.comment.as_ref()),
        ];
        let wide = [
            or_dash(entry.lease.as_ref()),
            or_dash(entry.session.as_ref()),
            or_dash(entry.access.as_ref()),
            or_dash(entry.slot),
            or_dash(entry.ttl_ms.map(format_duration)),
            or_dash(entry.target.as_ref()),
            or_dash(entry.via.as_ref()),
            or_dash(entry.credential.as_ref()),
            or_dash(entry.from.as_ref()),
            or_dash(entry.proposal),
            entry.position.to_string(),
        ];
        table.row_with(cells, wide);
    }
    table.text()
}

/// Columns that a wide history adds.
const WIDE: [&str; 11] =
    ["LEASE", "SESSION", "ACCESS", "SLOT", "TTL", "TARGET", "VIA", "CREDENTIAL", "FROM", "PROPOSAL", "POSITION"];
