//! The servers of the cluster with their lag, and the members of etcd.

use leasehold::json::ClusterBody;

use crate::table::format_duration;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

pub fn table(first: &ClusterBody, servers: &[(String, Result<ClusterBody, String>)]) -> PageTable {
    let leader = servers.iter().find(|(address, _)| Some(address) == first.leader.as_ref());
    let position = leader.and_then(|(_, status)| status.as_ref().ok()).map(|status| status.position);
    let mut rows: Vec<TableRow> = servers
        .iter()
        .map(|(address, status)| match status {
            Ok(status) => {
                let tone = if status.role == "standby" { Tone::Plain } else { Tone::Good };
                let behind = position.map(|position| position.saturating_sub(status.position).to_string());
                cells([
                    TableCell::plain(address),
                    TableCell::toned(&status.role, tone),
                    TableCell::plain(format_duration(status.role_age_ms)),
                    TableCell::plain(status.position.to_string()),
                    TableCell::or_dash(behind),
                ])
            }
            Err(problem) => cells([
                TableCell::plain(address),
                TableCell::toned("no reply", Tone::Bad),
                TableCell::dim("-"),
                TableCell::dim("-"),
                TableCell::toned(problem, Tone::Bad),
            ]),
        })
        .collect();
    rows.extend(first.etcd.iter().map(|member| {
        let health = match &member.problem {
            Some(problem) => TableCell::toned(problem, Tone::Bad),
            None if member.is_leader => TableCell::toned("healthy, leads", Tone::Good),
            None => TableCell::toned("healthy", Tone::Good),
        };
        let size = format!("{:.1} MiB", member.database_bytes as f64 / f64::from(1 << 20));
        cells([
            TableCell::plain(format!("etcd {}", member.endpoint)),
            health,
            TableCell::dim("-"),
            TableCell::plain(size),
            TableCell::dim(format!("version {}", member.version)),
        ])
    }));
    PageTable {
        columns: vec![
            TableColumn::flexible("SERVER"),
            TableColumn::fixed("ROLE", 15),
            TableColumn::fixed("SINCE", 8),
            TableColumn::fixed("POSITION", 12),
            TableColumn::flexible("BEHIND"),
        ],
        rows,
        empty: "No server is known.".to_owned(),
        footer: first.problem.clone().unwrap_or_default(),
    }
}

fn cells(cells: [TableCell; 5]) -> TableRow {
    TableRow { cells: cells.into(), resource: None }
}
