//! Coverage: resources and targets as a matrix. A hole is red and shows the command that closes it.

use leasehold_core::coverage::Hole;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::resource::close_command;
use super::text::{self, count, duration, name, plural, query_value};

/// One page of the matrix.
pub struct CoveragePage<'a> {
    /// Prefix of whole segments.
    pub prefix: &'a str,
    /// The coverage of each resource.
    pub rows: Vec<v1::Coverage>,
    /// Where the next page starts.
    pub next: Option<u32>,
    /// Whether this is the first page.
    pub is_first: bool,
    /// The wall clock.
    pub now_ms: u64,
}

/// Targets with a column of their own.
const MAX_COLUMNS: usize = 8;

/// The form that sets the prefix.
pub fn form(prefix: &str) -> Markup {
    html! {
        form.filter action="/ui/coverage" method="get" role="search" {
            label { "Prefix" input type="search" name="prefix" value=(prefix) placeholder="jobs/nightly" autocomplete="off" spellcheck="false"; }
            button { "Show" }
        }
    }
}

/// The content of the page.
pub fn content(page: &CoveragePage<'_>) -> Markup {
    let mut columns: Vec<&str> = Vec::new();
    for target in page.rows.iter().flat_map(|row| &row.targets) {
        if !target.name.is_empty() && !columns.contains(&target.name.as_str()) {
            columns.push(&target.name);
        }
    }
    let others = columns.len() > MAX_COLUMNS;
    columns.truncate(MAX_COLUMNS);
    let holes = page.rows.iter().flat_map(|row| &row.targets).filter(|target| !target.hole.is_empty()).count() as u64;
    // A resource without targets has one hole, so that no target means that the reader may not see them.
    let hidden = page.rows.iter().filter(|row| row.targets.is_empty()).count();
    let address = |cursor: u32| format!("/ui/coverage?prefix={}&cursor={cursor}", query_value(page.prefix));
    html! {
        section.panel {
            p.sentence {
                @if page.rows.is_empty() { "No resource here." }
                @else if hidden == page.rows.len() { "You may see the targets of no resource on this page." }
                @else {
                    @if holes > 0 { span.pill.bad { (plural(holes, "hole")) } " A zombie could write there, or it is unknown whether it could." }
                    @else if hidden == 0 { span.pill.good { "covered" } " Every target on this page refuses a stale token." }
                    @else { span.pill.good { "covered" } " Every target that you may see refuses a stale token." }
                    @if hidden > 0 { " You may not see the targets of " (plural(hidden as u64, "resource")) "." }
                }
            }
            @if !page.rows.is_empty() {
                div.scroll { table.matrix {
                    thead { tr {
                        th { "Resource" }
                        @for column in &columns { th { (name(column)) } }
                        @if others { th { "Other targets" } }
                        @if columns.is_empty() { th { "Targets" } }
                    } }
                    tbody { @for row in &page.rows { (matrix_row(row, &columns, others, page.now_ms)) } }
                } }
            }
            div.pager {
                @if !page.is_first { a.button href=(address(0)) { "First page" } }
                @if let Some(next) = page.next { a.button href=(address(next)) { "Next page" } }
                span.dim { (plural(page.rows.len() as u64, "resource")) " on this page. Checks are counted since the server started." }
            }
        }
    }
}

fn matrix_row(row: &v1::Coverage, columns: &[&str], others: bool, now_ms: u64) -> Markup {
    let of = |column: &str| row.targets.iter().find(|target| target.name == column);
    let rest: Vec<&v1::TargetView> = row
        .targets
        .iter()
        .filter(|target| !target.name.is_empty() && !columns.contains(&target.name.as_str()))
        .collect();
    let without_target = row.targets.iter().find(|target| target.name.is_empty());
    let width = columns.len().max(1) + usize::from(others);
    html! {
        tr data-row="" {
            td { (text::resource_link(&row.resource)) }
            @if row.targets.is_empty() {
                td.dim colspan=(width) { "not visible to you" }
            } @else if let Some(target) = without_target {
                td.cell-hole colspan=(width) { (cell(&row.resource, target, now_ms)) }
            } @else {
                @for column in columns {
                    @match of(column) {
                        Some(target) => td .cell-hole[!target.hole.is_empty()] { (cell(&row.resource, target, now_ms)) },
                        None => td.dim { "\u{2013}" },
                    }
                }
                @if others {
                    td .cell-hole[rest.iter().any(|target| !target.hole.is_empty())] {
                        @for target in &rest { div { (name(&target.name)) ": " (cell(&row.resource, target, now_ms)) } }
                    }
                }
            }
        }
    }
}

fn cell(resource: &str, target: &v1::TargetView, now_ms: u64) -> Markup {
    let sum = |value: fn(&v1::TargetSlotView) -> u64| target.slots.iter().map(value).sum::<u64>();
    let (checks, zombies) = (sum(|slot| slot.checks), sum(|slot| slot.zombies));
    let checked = target.slots.iter().filter_map(|slot| slot.checked_ms).max();
    html! {
        @if let Some(hole) = Hole::from_word(&target.hole) {
            span.pill.bad { (hole.word().replace('_', " ")) } " " (hole.advice())
            (close_command(resource, target))
        } @else {
            span.pill.good { (if target.mode.is_empty() { "covered" } else { &target.mode }) }
        }
        @if !target.slots.is_empty() {
            div.dim {
                (plural(checks, "check"))
                @if let Some(checked) = checked { ", last " (duration(now_ms.saturating_sub(checked))) " ago" } @else { " since the start" }
                @if zombies > 0 { ", " span.pill.warn { (count(zombies)) " zombie " (if zombies == 1 { "write" } else { "writes" }) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, hole: &str) -> v1::TargetView {
        v1::TargetView { name: name.into(), hole: hole.into(), mode: "forced".into(), ..Default::default() }
    }

    #[test]
    fn a_hole_is_red_and_names_the_command_that_closes_it() {
        let row = |resource: &str, targets| v1::Coverage { resource: resource.into(), targets };
        let rows = vec![
            row("jobs/a", vec![target("ledger", ""), target("<bucket>", "never_reported")]),
            row("jobs/b", vec![target("", "no_target")]),
        ];
        let page = CoveragePage { prefix: "", rows, next: None, is_first: true, now_ms: 0 };
        let page = content(&page).into_string();
        assert_eq!(page.matches("cell-hole").count(), 2, "{page}");
        assert!(
            page.contains("leasehold coverage jobs/a --probe --target &#39;")
                || page.contains("--target '&lt;bucket&gt;'=ADDRESS"),
            "{page}"
        );
        assert!(page.contains("leasehold charter apply"), "{page}");
        assert!(page.contains("2 holes"), "{page}");
    }

    #[test]
    fn what_a_reader_may_not_see_counts_neither_as_covered_nor_as_a_hole() {
        let row = |resource: &str, targets| v1::Coverage { resource: resource.into(), targets };
        let page =
            |rows| content(&CoveragePage { prefix: "", rows, next: None, is_first: true, now_ms: 0 }).into_string();
        let seen = page(vec![row("jobs/a", vec![target("ledger", "")]), row("disks/a", Vec::new())]);
        for part in ["Every target that you may see refuses", "the targets of 1 resource.", "not visible to you"] {
            assert!(seen.contains(part), "no {part} in {seen}");
        }
        assert!(!seen.contains("Every target on this page"), "{seen}");
        let holes = page(vec![row("jobs/a", vec![target("", "no_target")]), row("disks/a", Vec::new())]);
        assert!(holes.contains("1 hole") && holes.contains("the targets of 1 resource."), "{holes}");
        let hidden = page(vec![row("disks/a", Vec::new()), row("disks/b", Vec::new())]);
        assert!(hidden.contains("the targets of no resource") && !hidden.contains("pill"), "{hidden}");
    }
}
