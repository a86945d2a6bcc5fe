//! Changes of holder with their gap or overlap against the charter, slowest first.

use leasehold_server::dashboard::handovers::HandoverRow;
use leasehold_server::dashboard::timeline::Turnover;

use crate::table::{format_duration, format_time};
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

/// Rows that are shown.
const MAX_ROWS: usize = 500;

pub fn table(rows: &[HandoverRow], entries: usize) -> PageTable {
    PageTable {
        columns: vec![
            TableColumn::fixed("", 8),
            TableColumn::fixed("TIME", 8),
            TableColumn::flexible("RESOURCE"),
            TableColumn::flexible("FROM"),
            TableColumn::flexible("TO"),
            TableColumn::fixed("FIRST ENDED", 12).shown_from(90),
            TableColumn::flexible("CHARTER").shown_from(100),
            TableColumn::fixed("WHEN", 20).shown_from(110),
        ],
        rows: rows.iter().take(MAX_ROWS).map(row).collect(),
        empty: format!("No change of holder in the last {entries} audit entries."),
        footer: format!("{} changes of holder in the last {entries} audit entries", rows.len()),
    }
}

fn row(row: &HandoverRow) -> TableRow {
    let (kind, tone) = match row.turnover {
        Turnover::Gap(_) => ("gap", Tone::Plain),
        Turnover::Overlap(_) => ("overlap", Tone::Warn),
    };
    let charter = match row.violation() {
        Some(violation) => TableCell::toned(violation, Tone::Bad),
        None => TableCell::dim(row.terms_text()),
    };
    TableRow {
        cells: vec![
            TableCell::toned(kind, tone),
            TableCell::plain(format_duration(row.turnover.millis())),
            TableCell::plain(&row.resource),
            TableCell::plain(&row.from),
            TableCell::plain(&row.to),
            TableCell::plain(row.reason.replace('_', " ")),
            charter,
            TableCell::plain(format_time(row.at_ms)),
        ],
        resource: Some(row.resource.clone()),
    }
}
