//! Recent deadlocks, latest first.

use leasehold::json::DeadlockBody;

use crate::table::format_duration;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

pub fn table(deadlocks: &[DeadlockBody], time_ms: u64) -> PageTable {
    let row = |deadlock: &DeadlockBody| {
        let edges = deadlock.cycle.iter().map(|member| format!("{} waits for {}", member.holder, member.waits_for));
        let victim = match &deadlock.victim {
            Some(victim) => TableCell::toned(victim, Tone::Bad),
            None => TableCell::dim("only reported"),
        };
        TableRow {
            cells: vec![
                TableCell::plain(format_duration(time_ms.saturating_sub(deadlock.at_ms))),
                TableCell::plain(deadlock.length.to_string()),
                victim,
                TableCell::plain(edges.collect::<Vec<_>>().join(", ")),
            ],
            resource: deadlock.cycle.first().map(|member| member.waits_for.clone()),
        }
    };
    PageTable {
        columns: vec![
            TableColumn::fixed("AGO", 8),
            TableColumn::fixed("MEMBERS", 8).shown_from(60),
            TableColumn::fixed("VICTIM", 18),
            TableColumn::flexible("CYCLE"),
        ],
        rows: deadlocks.iter().rev().map(row).collect(),
        empty: "No deadlock is in memory.".to_owned(),
        footer: String::new(),
    }
}
