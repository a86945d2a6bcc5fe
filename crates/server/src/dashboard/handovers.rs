//! Changes of holder: the gap or overlap of each, compared with the charter, slowest first.

use leasehold_wire::v1;
use maud::{Markup, html};

use super::resource::{TimelineView, turnover_text};
use super::text::{self, date_time, duration, name, plural};
use super::timeline::{ResourceTimeline, Turnover};

/// What the charter of a resource says about a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverTerms {
    /// Both may hold it for a moment; otherwise no one does.
    pub overlaps: bool,
    /// How long the predecessor may drain.
    pub drain_ms: u64,
}

impl HandoverTerms {
    /// The terms of a message; none if it has no mode.
    pub fn of(terms: v1::HandoffTerms) -> Option<Self> {
        let overlaps = match v1::HandoffMode::try_from(terms.mode).ok()? {
            v1::HandoffMode::Gap => false,
            v1::HandoffMode::Overlap => true,
            v1::HandoffMode::Unspecified => return None,
        };
        Some(Self { overlaps, drain_ms: terms.drain_ms })
    }
}

/// One change of holder.
#[derive(Clone, Debug)]
pub struct HandoverRow {
    /// The resource.
    pub resource: String,
    /// The holder before.
    pub from: String,
    /// The holder after.
    pub to: String,
    /// When the second was granted.
    pub at_ms: u64,
    /// The token number of the second.
    pub token: u64,
    /// Why the first lease ended.
    pub reason: String,
    /// The time between them.
    pub turnover: Turnover,
    /// The terms of the charter that covers the resource.
    pub terms: Option<HandoverTerms>,
}

impl HandoverRow {
    /// What the charter does not allow about it.
    pub fn violation(&self) -> Option<&'static str> {
        let HandoverTerms { overlaps, drain_ms } = self.terms?;
        match (overlaps, self.turnover) {
            (false, Turnover::Overlap(ms)) if ms > 0 => Some("the charter allows no overlap"),
            (true, Turnover::Gap(ms)) if ms > 0 && self.reason == "handed_off" => Some("the charter allows no gap"),
            (true, Turnover::Overlap(ms)) if ms > drain_ms => Some("longer than the drain period of the charter"),
            _ => None,
        }
    }

    /// The terms in words.
    pub fn terms_text(&self) -> String {
        match self.terms {
            None => "not declared".to_owned(),
            Some(HandoverTerms { overlaps: false, .. }) => "gap".to_owned(),
            Some(HandoverTerms { drain_ms, .. }) => format!("overlap, drain {}", duration(drain_ms)),
        }
    }
}

/// The changes of holder in the timelines of some resources, violations first, then the slowest.
pub fn rows(timelines: &[ResourceTimeline], terms: impl Fn(&str) -> Option<HandoverTerms>) -> Vec<HandoverRow> {
    let mut rows = Vec::new();
    for timeline in timelines {
        for (index, hold) in timeline.holds.iter().enumerate() {
            let Some(turnover) = hold.turnover else { continue };
            let before = timeline.holds[..index].iter().rev().find(|before| before.slot == hold.slot);
            let Some(before) = before else { continue };
            rows.push(HandoverRow {
                resource: timeline.resource.clone(),
                from: before.holder.clone(),
                to: hold.holder.clone(),
                at_ms: hold.from_ms,
                token: hold.token(),
                reason: before.reason.clone(),
                turnover,
                terms: terms(&timeline.resource),
            });
        }
    }
    rows.sort_by_key(|row| (row.violation().is_none(), std::cmp::Reverse(row.turnover.millis())));
    rows
}

/// The content of the page: the first rows of all. `entries` audit entries were read.
pub fn content(rows: &[HandoverRow], entries: usize, older: Option<u64>) -> Markup {
    html! {
        section.panel {
            @if rows.is_empty() {
                p.empty { "No change of holder in the last " (plural(entries as u64, "audit entry").replace("entrys", "entries")) "." }
            } @else {
                div.scroll { table {
                    thead { tr { th.right { "Gap or overlap" } th { "Resource" } th { "From" } th { "To" } th { "First lease" } th { "Charter" } th.right { "Token" } th { "Time" } } }
                    tbody {
                        @for row in rows.iter().take(100) {
                            tr data-row="" .cell-hole[row.violation().is_some()] {
                                td.right.fit { (turnover_text(row.turnover)) }
                                td { a href=(TimelineView { at: Some(row.at_ms), ..TimelineView::default() }.path(&row.resource)) { (name(&row.resource)) } }
                                td { (name(&row.from)) }
                                td { (name(&row.to)) }
                                td.fit { (row.reason.replace('_', " ")) }
                                td { (terms_text(row)) }
                                td.right.num { (row.token) }
                                td.fit.num { (date_time(row.at_ms)) }
                            }
                        }
                    }
                } }
            }
            div.pager {
                @if let Some(before) = older { a.button href=(format!("/ui/handovers?before={before}")) { "Older" } }
                span.dim { (plural(rows.len() as u64, "change")) " of holder in " (text::count(entries as u64)) " audit entries, slowest first" }
            }
        }
    }
}

fn terms_text(row: &HandoverRow) -> Markup {
    html! {
        @if row.terms.is_some() { (row.terms_text()) } @else { span.dim { (row.terms_text()) } }
        @if let Some(violation) = row.violation() { " " span.pill.bad { (violation) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(turnover: Turnover, mode: v1::HandoffMode, reason: &str) -> HandoverRow {
        HandoverRow {
            resource: "r".into(),
            from: "a".into(),
            to: "b".into(),
            at_ms: 0,
            token: 1,
            reason: reason.into(),
            turnover,
            terms: HandoverTerms::of(v1::HandoffTerms { mode: mode.into(), drain_ms: 1_000 }),
        }
    }

    #[test]
    fn a_change_is_compared_with_its_charter() {
        use v1::HandoffMode::{Gap, Overlap};
        assert!(row(Turnover::Overlap(5), Gap, "handed_off").violation().is_some());
        assert!(row(Turnover::Gap(5), Gap, "handed_off").violation().is_none());
        assert!(row(Turnover::Gap(5), Overlap, "handed_off").violation().is_some());
        assert!(row(Turnover::Gap(5), Overlap, "ttl").violation().is_none(), "a crash is not a handoff");
        assert!(row(Turnover::Overlap(1_001), Overlap, "handed_off").violation().is_some());
        assert!(row(Turnover::Overlap(1_000), Overlap, "handed_off").violation().is_none());
        let undeclared = HandoverRow { terms: None, ..row(Turnover::Overlap(5), Gap, "") };
        assert!(undeclared.violation().is_none());
    }
}
