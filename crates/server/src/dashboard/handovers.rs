//! Changes of holder: the gap or overlap of each, compared with the charter, slowest first.

use leasehold_wire::v1;
use maud::{Markup, html};

use super::resource::{TimelineView, turnover_text};
use super::text::{self, date_time, duration, name, plural};
use super::timeline::{HoldSpan, ResourceTimeline, Turnover};

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

/// The audit entries of one page. A change of holder belongs to the page with the grant of the later holder, so that each is on one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandoverPage {
    /// The oldest entry.
    pub first: u64,
    /// The newest entry.
    pub last: u64,
    /// Number of entries, without those that the reader may not see.
    pub entries: usize,
    /// The entry before which there may be older ones.
    pub older: Option<u64>,
}

impl HandoverPage {
    /// Whether a lease was granted in this page.
    pub fn has_grant(&self, hold: &HoldSpan) -> bool {
        hold.granted_entry.is_some_and(|entry| (self.first..=self.last).contains(&entry))
    }

    /// The number of grants of this page whose earlier holder is in no entry, if there was one.
    pub fn grants_without_previous(&self, timelines: &[ResourceTimeline]) -> u64 {
        let holds = timelines.iter().flat_map(|timeline| &timeline.holds);
        holds.filter(|hold| hold.slot.is_some() && hold.previous.is_none() && self.has_grant(hold)).count() as u64
    }

    /// Whether the end of the earlier holder of a grant of this page is in no entry.
    pub fn has_previous_without_end(&self, timelines: &[ResourceTimeline]) -> bool {
        timelines.iter().any(|timeline| {
            let previous = |hold: &HoldSpan| hold.previous.map(|previous| &timeline.holds[previous]);
            let lacks_end = |hold: &&HoldSpan| previous(hold).is_some_and(|previous| previous.until_ms.is_none());
            timeline.holds.iter().filter(|hold| self.has_grant(hold)).any(|hold| lacks_end(&hold))
        })
    }
}

/// The changes of holder of a page in the timelines of some resources, violations first, then the slowest. The timelines may contain
/// entries before and after the page.
pub fn rows(
    timelines: &[ResourceTimeline],
    page: HandoverPage,
    terms: impl Fn(&str) -> Option<HandoverTerms>,
) -> Vec<HandoverRow> {
    let mut rows = Vec::new();
    for timeline in timelines {
        for (before, hold, turnover) in timeline.turnovers().filter(|(_, hold, _)| page.has_grant(hold)) {
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

/// The content of the page: the first rows of all. Of `without_previous` grants, the earlier holder is not known.
pub fn content(rows: &[HandoverRow], page: HandoverPage, without_previous: u64) -> Markup {
    let HandoverPage { entries, older, .. } = page;
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
                @if without_previous > 0 { span.dim { (plural(without_previous, "grant")) " without a known earlier holder left out" } }
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
