//! Coverage as a text table and as JSON.

use leasehold::json::{TargetCoverageBody, TargetSlotBody};
use serde_json::{Value, json};

use super::probe::{ProbeOutcome, TargetProbe};
use super::verdict::{self, ShownHole};
use crate::styled_text::{Style, StyledText};
use crate::table::{Cell, TextTable, format_time, or_dash};
use crate::target::{TableFinding, TokenProbe, WriteProbe};

/// A target with its probe, if it was probed, and its hole.
pub struct Row {
    target: TargetCoverageBody,
    probe: Option<TargetProbe>,
    pub hole: Option<ShownHole>,
}

impl Row {
    pub fn new(resource: &str, mut target: TargetCoverageBody, probe: Option<TargetProbe>) -> Self {
        let hole = verdict::hole(resource, &target, probe.as_ref());
        // The word that is shown is the one that decides the exit code.
        target.hole = hole.as_ref().map(|hole| hole.word.clone());
        Self { target, probe, hole }
    }
}

/// The result of a probe as a stable word.
const fn probe_word(outcome: &ProbeOutcome) -> &'static str {
    match outcome {
        ProbeOutcome::Report(report) => match report.token {
            TokenProbe::Refused { .. } => "refused",
            TokenProbe::Sealed => "sealed",
            TokenProbe::Lost => "lost",
            TokenProbe::Admitted => "admitted",
            TokenProbe::Missing => "missing",
            TokenProbe::Fresh => "fresh",
            TokenProbe::Foreign(_) => "foreign",
        },
        ProbeOutcome::Failed(_) => "unreachable",
        ProbeOutcome::Skipped(_) => "skipped",
    }
}

/// The mode that a probe established.
const fn established(probe: &TargetProbe) -> Option<&'static str> {
    match &probe.outcome {
        ProbeOutcome::Report(report) => report.established(),
        ProbeOutcome::Failed(_) | ProbeOutcome::Skipped(_) => None,
    }
}

/// The names of the targets.
pub fn names(rows: &[Row]) -> impl Iterator<Item = String> {
    rows.iter().map(|row| row.target.name.clone()).filter(|name| !name.is_empty())
}

pub fn text_table(rows: &[Row], is_wide: bool) -> StyledText {
    let head = [
        "TARGET",
        "SLOT",
        "DECLARED",
        "REPORTED",
        "CHECKS",
        "LAST CHECK",
        "ZOMBIES",
        "LAST ZOMBIE",
        "PROBE",
        "PROBED AS",
        "HOLE",
    ];
    let mut table = TextTable::new(head).with_wide(is_wide, ["AT", "SINCE", "REFUSALS", "PROBED ADDRESS"]);
    for Row { target, probe, hole } in rows {
        let declared = if target.declared { target.mode.clone().unwrap_or_else(|| "?".into()) } else { "-".into() };
        let name = if target.name.is_empty() { "(none)".to_owned() } else { target.name.clone() };
        let slots: Vec<Option<&TargetSlotBody>> =
            if target.slots.is_empty() { vec![None] } else { target.slots.iter().map(Some).collect() };
        for slot in slots {
            let last = slot.and_then(|slot| slot.last_zombie.as_ref()).map(|last| {
                let holder = last.holder.as_deref().unwrap_or("unknown holder");
                format!("{holder}, {} below {}, {}", last.presented, last.mark, format_time(last.at_ms))
            });
            let cells: [Cell; 11] = [
                name.clone().into(),
                or_dash(slot.map(|slot| slot.slot)).into(),
                declared.clone().into(),
                or_dash(slot.map(|slot| slot.mode.clone())).into(),
                or_dash(slot.map(|slot| slot.checks)).into(),
                or_dash(slot.and_then(|slot| slot.checked_ms).map(format_time)).into(),
                or_dash(slot.map(|slot| slot.zombies)).into(),
                or_dash(last).into(),
                or_dash(probe.as_ref().map(|probe| probe_word(&probe.outcome))).into(),
                or_dash(probe.as_ref().and_then(established)).into(),
                hole.as_ref().map_or_else(|| "-".into(), |hole| Cell::styled(hole.word.clone(), Style::Bad)),
            ];
            let wide = [
                or_dash(Some(&target.at).filter(|at| !at.is_empty())),
                or_dash(slot.map(|slot| format_time(slot.since_ms))),
                or_dash(slot.map(|slot| slot.refusals)),
                or_dash(probe.as_ref().and_then(|probe| probe.address.clone())),
            ];
            table.row_with(cells, wide);
        }
    }
    table.text()
}

pub fn json_body(resource: &str, rows: &[Row], holes: &[String]) -> Value {
    let row = |row: &Row| {
        let mut body = json!(row.target);
        if let Some(probe) = &row.probe {
            body["probe"] = probe_body(probe);
        }
        body
    };
    json!({ "resource": resource, "targets": rows.iter().map(row).collect::<Vec<_>>(), "holes": holes })
}

fn probe_body(probe: &TargetProbe) -> Value {
    let mut body = json!({ "result": probe_word(&probe.outcome), "established": established(probe) });
    if let Some(address) = &probe.address {
        body["address"] = json!(address);
    }
    if let Some(limit) = &probe.limit {
        body["limit"] = json!(limit);
    }
    match &probe.outcome {
        ProbeOutcome::Failed(error) | ProbeOutcome::Skipped(error) => body["error"] = json!(error),
        ProbeOutcome::Report(report) => {
            if let TokenProbe::Refused { presented, mark } = report.token {
                body["presented"] = json!(presented.to_string());
                body["mark"] = json!(mark.to_string());
            }
            if let WriteProbe::Attempted { refused, findings } = &report.write {
                let finding = |at: &TableFinding| json!({ "table": at.table, "finding": at.finding });
                body["refused_without_token"] = json!(refused);
                body["findings"] = findings.iter().map(finding).collect();
            }
        }
    }
    body
}
