//! Held leases: a bar for the time until each ends, its age, and how long it was silent.

use leasehold::json::ListedLeaseBody;

use crate::commands::lease_text::slot_or_access;
use crate::table::format_duration;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

pub fn table(leases: &[ListedLeaseBody], has_next: bool) -> PageTable {
    let columns = vec![
        TableColumn::flexible("RESOURCE"),
        TableColumn::flexible("HOLDER"),
        TableColumn::fixed("NUMBER", 21).shown_from(130),
        TableColumn::fixed("SLOT", 9).shown_from(110),
        TableColumn::fixed("AGE", 7).shown_from(60),
        TableColumn::fixed("ENDS IN", 8),
        TableColumn::fixed("", 10).shown_from(72),
        TableColumn::fixed("SILENT", 7).shown_from(80),
        TableColumn::fixed("IDLE", 7).shown_from(120),
        TableColumn::fixed("WAIT", 5).shown_from(90),
        TableColumn::fixed("STATE", 10).shown_from(50),
    ];
    PageTable {
        columns,
        rows: leases.iter().map(row).collect(),
        empty: if has_next { "Nothing in this part; press ] to search further." } else { "No lease is held here." }
            .to_owned(),
        footer: if has_next { "] next page".to_owned() } else { String::new() },
    }
}

fn row(listed: &ListedLeaseBody) -> TableRow {
    let lease = &listed.lease;
    let ends = match lease.ttl_ms {
        Some(ttl) => TableCell::Countdown { left_ms: lease.remaining_ms, of_ms: ttl },
        None => TableCell::dim("session"),
    };
    let half_gone = lease.ttl_ms.is_some_and(|ttl| listed.silent_ms * 2 > ttl);
    let (state, tone) = match (&lease.draining, listed.stuck) {
        (Some(_), true) => ("stuck drain", Tone::Bad),
        (Some(_), false) => ("draining", Tone::Warn),
        (None, true) => ("stuck", Tone::Bad),
        (None, false) => ("active", Tone::Good),
    };
    TableRow {
        cells: vec![
            TableCell::plain(&lease.resource),
            TableCell::plain(&lease.holder),
            TableCell::plain(&lease.token_number),
            TableCell::dim(slot_or_access(lease)),
            TableCell::plain(format_duration(listed.age_ms)),
            TableCell::plain(format_duration(lease.remaining_ms)),
            ends,
            TableCell::toned(format_duration(listed.silent_ms), if half_gone { Tone::Warn } else { Tone::Plain }),
            TableCell::or_dash(listed.idle_ms.map(format_duration)),
            TableCell::toned(listed.waiters.to_string(), if listed.waiters > 0 { Tone::Strong } else { Tone::Dim }),
            TableCell::toned(state, tone),
        ],
        resource: Some(lease.resource.clone()),
    }
}
