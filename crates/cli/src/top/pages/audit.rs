//! Audit entries, newest first.

use leasehold::json::AuditEntryBody;

use crate::commands::lease_text::lease_end;
use crate::table::format_time;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

pub fn table(entries: &[AuditEntryBody], has_next: bool) -> PageTable {
    PageTable {
        columns: vec![
            TableColumn::fixed("ENTRY", 9).shown_from(100),
            TableColumn::fixed("TIME", 20).shown_from(60),
            TableColumn::fixed("CHANGE", 15),
            TableColumn::flexible("RESOURCE"),
            TableColumn::flexible("HOLDER"),
            TableColumn::flexible("DETAIL").shown_from(80),
        ],
        rows: entries.iter().map(row).collect(),
        empty: "No entry is retained here, or you may see none.".to_owned(),
        footer: if has_next { "] older entries".to_owned() } else { String::new() },
    }
}

/// How a change is shown.
pub fn change_tone(entry: &AuditEntryBody) -> Tone {
    match (entry.kind.as_str(), entry.state.as_deref()) {
        ("zombie" | "rolled_back" | "deadlock", _) | ("ended", Some("revoked")) => Tone::Bad,
        ("ended", Some("expired")) | ("revoked" | "preempted" | "restored" | "handoff", _) => Tone::Warn,
        ("granted", _) => Tone::Good,
        _ => Tone::Plain,
    }
}

/// What the other columns do not say.
pub fn detail(entry: &AuditEntryBody) -> String {
    let end = entry.state.as_ref().zip(entry.reason.as_ref()).map(|(state, reason)| lease_end(state, reason));
    let target = entry.target.as_ref().map(|target| format!("target {target}"));
    let mark = entry.mark.as_ref().map(|mark| format!("mark {mark}"));
    let to = entry.to.as_ref().map(|to| format!("to {to}"));
    let by = entry.by.as_ref().map(|by| format!("by {by}"));
    let parts = [end, target, mark, to, by, entry.comment.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn row(entry: &AuditEntryBody) -> TableRow {
    TableRow {
        cells: vec![
            TableCell::dim(entry.entry.to_string()),
            TableCell::plain(format_time(entry.wall_ms)),
            TableCell::toned(entry.kind.replace('_', " "), change_tone(entry)),
            TableCell::or_dash(entry.resource.as_ref()),
            TableCell::or_dash(entry.holder.as_ref()),
            TableCell::plain(detail(entry)),
        ],
        resource: entry.resource.clone().filter(|_| entry.lease.is_some()),
    }
}
