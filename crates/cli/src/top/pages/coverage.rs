//! Targets of resources, and holes in their fences.

use leasehold::json::{CoverageBody, TargetCoverageBody};
use leasehold_core::coverage::Hole;

use crate::table::format_duration;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

pub fn table(resources: &[CoverageBody], has_next: bool, wall_ms: u64) -> PageTable {
    let mut rows = Vec::new();
    for resource in resources {
        rows.extend(resource.targets.iter().map(|target| row(&resource.resource, target, wall_ms)));
    }
    let holes = resources.iter().flat_map(|one| &one.targets).filter(|target| target.hole.is_some()).count();
    let holes = if holes == 1 { "1 hole".to_owned() } else { format!("{holes} holes") };
    PageTable {
        columns: vec![
            TableColumn::flexible("RESOURCE"),
            TableColumn::flexible("TARGET"),
            TableColumn::fixed("FENCE", 13),
            TableColumn::fixed("CHECKS", 8).shown_from(90),
            TableColumn::fixed("LAST", 8).shown_from(100),
            TableColumn::fixed("ZOMBIES", 8).shown_from(80),
            TableColumn::flexible("NEXT STEP").shown_from(120),
        ],
        empty: "No resource here.".to_owned(),
        footer: format!("{holes} on this page{}", if has_next { "   ] next page" } else { "" }),
        rows,
    }
}

fn row(resource: &str, target: &TargetCoverageBody, wall_ms: u64) -> TableRow {
    let sum = |value: fn(&leasehold::json::TargetSlotBody) -> u64| target.slots.iter().map(value).sum::<u64>();
    let zombies = sum(|slot| slot.zombies);
    let last = target.slots.iter().filter_map(|slot| slot.checked_ms).max();
    let (fence, advice) = match &target.hole {
        Some(hole) => {
            let advice = Hole::from_word(hole).map_or("", Hole::advice);
            (TableCell::toned(hole.replace('_', " "), Tone::Bad), TableCell::toned(advice, Tone::Warn))
        }
        None => (TableCell::toned(target.mode.as_deref().unwrap_or("covered"), Tone::Good), TableCell::plain("")),
    };
    let name = Some(&target.name).filter(|name| !name.is_empty());
    TableRow {
        cells: vec![
            TableCell::plain(resource),
            TableCell::or_dash(name),
            fence,
            TableCell::plain(sum(|slot| slot.checks).to_string()),
            TableCell::or_dash(last.map(|at| format_duration(wall_ms.saturating_sub(at)))),
            TableCell::toned(zombies.to_string(), if zombies > 0 { Tone::Bad } else { Tone::Dim }),
            advice,
        ],
        resource: Some(resource.to_owned()),
    }
}
