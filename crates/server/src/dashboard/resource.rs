//! One resource: its timeline, who holds it and who waits, its targets, and its history.

use leasehold_core::coverage::Hole;
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::leases::{holder_link, lease_id_text, remaining, state_pill, why};
use super::renewal_ages::RenewalAges;
use super::text::{self, count, date_time, duration, name};
use super::timeline::{ResourceTimeline, TimelineSvg, Turnover};
use super::{audit_entry_table, page};

/// Which part of the timeline is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineView {
    /// Start of the range.
    pub from: Option<u64>,
    /// End of the range.
    pub until: Option<u64>,
    /// A marked moment.
    pub at: Option<u64>,
    /// Only entries before this one.
    pub before: Option<u64>,
}

impl TimelineView {
    /// The address of a resource with this view.
    pub fn path(&self, resource: &str) -> String {
        let parts = [("from", self.from), ("until", self.until), ("at", self.at), ("before", self.before)];
        let parts: Vec<String> =
            parts.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}"))).collect();
        let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
        format!("{}{query}", text::resource_path(resource))
    }

    fn range(&self, timeline: &ResourceTimeline) -> (u64, u64) {
        let (first, last) = timeline.range_ms;
        (self.from.unwrap_or(first), self.until.unwrap_or(last).max(self.from.unwrap_or(first) + 1))
    }
}

/// A part of a page, or why its reader does not see it.
pub type Part<T> = Result<T, v1::Problem>;

/// What the page of a resource shows.
pub struct ResourceDetails {
    /// Its name.
    pub resource: String,
    /// Its leases; none if it does not exist now.
    pub view: Part<Option<v1::ResourceView>>,
    /// When its leases were renewed.
    pub renewal_ages: RenewalAges,
    /// Its first waiters.
    pub waiters: Part<Vec<v1::WaiterView>>,
    /// Its targets.
    pub coverage: Part<v1::Coverage>,
    /// Its audit entries, newest first.
    pub entries: Part<Vec<AuditEntryBody>>,
    /// The entry before which there may be older ones.
    pub older: Option<u64>,
    /// The timeline of these entries.
    pub timeline: ResourceTimeline,
    /// Grantor time.
    pub time_ms: u64,
    /// Actions that the reader may take, as links.
    pub actions: Vec<(String, String)>,
}

/// The content of the page.
pub fn content(details: &ResourceDetails, view: TimelineView) -> Markup {
    html! {
        h1 { (name(&details.resource)) }
        (sentence(details))
        section.panel {
            h2 { "Timeline" }
            (timeline(details, view))
        }
        div.grid {
            section.panel { h2 { "Leases" } (leases(details)) }
            section.panel { h2 { "Waiters, in order" } (waiters(details)) }
        }
        section.panel { h2 { "Targets" } (targets(details)) }
        section.panel { h2 { "Changes of holder" } (turnovers(details)) }
        section.panel {
            h2 { "History" }
            (entries(details, view))
        }
    }
}

fn sentence(details: &ResourceDetails) -> Markup {
    html! {
        p.sentence {
            @match &details.view {
                Ok(Some(view)) => { (state_pill(view)) " " (text::visible(&why(view, &details.renewal_ages, details.time_ms))) }
                Ok(None) => { span.pill { "free" } " No one holds it and no one waits." }
                Err(problem) => (text::visible(&problem.message)),
            }
            @for (label, path) in &details.actions { " " a.button href=(path) { (label) } }
        }
    }
}

fn timeline(details: &ResourceDetails, view: TimelineView) -> Markup {
    let timeline = &details.timeline;
    if let Err(problem) = &details.entries {
        return page::not_allowed(problem);
    }
    if timeline.instants.is_empty() {
        return html! { p.empty { "Nothing has happened to this resource in the retained audit log." } };
    }
    let range = view.range(timeline);
    let svg = TimelineSvg { range_ms: Some(range), moment_ms: view.at, has_links: true, standalone: false };
    let scale = svg.scale(timeline);
    let points: Vec<String> = scale
        .segments()
        .iter()
        .map(|segment| (segment.x.0, segment.ms.0))
        .chain(scale.segments().last().map(|segment| (segment.x.1, segment.ms.1)))
        .map(|(x, ms)| format!("{x:.1}:{ms}"))
        .collect();
    let link =
        |from: u64, until: u64| TimelineView { from: Some(from), until: Some(until), ..view }.path(&details.resource);
    let (width, middle) = (range.1 - range.0, range.0 + (range.1 - range.0) / 2);
    let is_zoomed = view.from.is_some() || view.until.is_some();
    html! {
        div.timeline-tools {
            a.button href=(link(middle.saturating_sub(width / 4), middle + width / 4 + 1)) { "Zoom in" }
            @if is_zoomed {
                a.button href=(link(range.0.saturating_sub(width / 2), range.1 + width / 2)) { "Zoom out" }
                a.button href=(link(range.0.saturating_sub(width / 2), range.1 - width / 2)) { "Earlier" }
                a.button href=(link(range.0 + width / 2, range.1 + width / 2)) { "Later" }
                a.button href=(TimelineView { from: None, until: None, ..view }.path(&details.resource)) { "All" }
            }
            @if view.at.is_some() { a.button href=(TimelineView { at: None, ..view }.path(&details.resource)) { "Clear the moment" } }
            span.dim { (date_time(range.0)) " to " (date_time(range.1)) " UTC, " (duration(width)) }
        }
        div.scroll.timeline-view data-scale=(points.join(" ")) { (svg.draw(timeline)) }
        (timeline_key(!timeline.renewals.is_empty()))
    }
}

/// What the marks of a timeline mean, each with the mark itself.
fn timeline_key(has_renewals: bool) -> Markup {
    let item = |drawing: Markup, text: &str| {
        html! { li { svg viewBox="0 0 20 12" width="20" height="12" aria-hidden="true" { (drawing) } (text) } }
    };
    html! {
        ul.key {
            (item(html! { rect.k-bar y="1" width="20" height="10" rx="2" {} }, "a holder with its token number"))
            (item(html! { rect.k-silent y="1" width="20" height="10" {} rect.k-hatch y="1" width="20" height="10" {} }, "no renewal arrived"))
            (item(html! { path.k-refused d="M6 2l8 8m0-8l-8 8" {} }, "a write that the target refused"))
            (item(html! { polygon.k-claim points="10,0 16,6 10,12 4,6" {} }, "the first report of a target"))
            (item(html! { polygon.k-change points="5,2 15,2 10,10" {} }, "another change"))
            (item(html! { path.k-break d="M8 0l3 3l-4 3l3 3l-2 3M13 0l3 3l-4 3l3 3l-2 3" {} }, "a long time without a change"))
            @if has_renewals { (item(html! { path.k-renewal d="M5 3v6M10 3v6M15 3v6" {} }, "renewals while this page was open")) }
            li.hint { "Drag to zoom, click for a link to a moment" }
        }
    }
}

fn leases(details: &ResourceDetails) -> Markup {
    let view = match &details.view {
        Ok(Some(view)) if !view.leases.is_empty() => view,
        Err(problem) => return page::not_allowed(problem),
        Ok(_) => return html! { p.empty { "No lease is held." } },
    };
    html! {
        div.scroll { table {
            thead { tr { th { "Holder" } th.right { "Token" } th { "Held for" } th { "Ends unless renewed" } th.right { "Progress" } th.wide { "Lease" } } }
            tbody {
                @for lease in view.leases.iter().take(50) {
                    tr data-row="" {
                        td { (holder_link(&lease.holder)) @if lease.predecessor { " " span.pill.warn { "predecessor" } } }
                        td.right.num { (lease.token_number) }
                        td.fit { (duration(details.time_ms.saturating_sub(lease.granted_ms))) }
                        td.fit { (remaining(lease, &details.renewal_ages)) }
                        td.right.num { @if let Some(progress) = lease.progress { (count(progress)) } }
                        td.wide.num.dim { (lease_id_text(lease.lease)) }
                    }
                }
            }
        } }
        @if view.held > 50 { p.empty { (count(view.held - 50)) " more leases." } }
        @if view.capacity > 1 { p.empty { (view.used) " of " (view.capacity) " units used, " (view.confirmed) " committed." } }
    }
}

fn waiters(details: &ResourceDetails) -> Markup {
    let waiters = match &details.waiters {
        Err(problem) => return page::not_allowed(problem),
        Ok(waiters) if waiters.is_empty() => return html! { p.empty { "No one waits." } },
        Ok(waiters) => waiters,
    };
    let total = details.view.as_ref().ok().and_then(Option::as_ref).map_or(0, |view| view.waiters);
    html! {
        div.scroll { table {
            thead { tr { th.right { "#" } th { "Holder" } th.right { "Priority" } th { "Gives up in" } } }
            tbody {
                @for (at, waiter) in waiters.iter().enumerate() {
                    tr data-row="" {
                        td.right.num { (at + 1) }
                        td { (holder_link(&waiter.holder)) @if !waiter.seen_in_tenure { " " span.pill.warn { "not seen since the last change of leader" } } }
                        td.right.num {
                            (waiter.effective_priority)
                            @if waiter.effective_priority != waiter.priority { span.dim { " (own " (waiter.priority) ")" } }
                        }
                        td.fit { (duration(waiter.remaining_ms)) }
                    }
                }
            }
        } }
        @if total > waiters.len() as u64 { p.empty { (count(total - waiters.len() as u64)) " more wait." } }
    }
}

fn targets(details: &ResourceDetails) -> Markup {
    let coverage = match &details.coverage {
        Err(problem) => return page::not_allowed(problem),
        // A resource without targets has one hole.
        Ok(coverage) if coverage.targets.is_empty() => return html! { p.empty { "You may not see its targets." } },
        Ok(coverage) => coverage,
    };
    html! {
        div.scroll { table {
            thead { tr { th { "Target" } th { "Fence" } th.right { "Checks" } th.right { "Zombies" } th { "Last check" } } }
            tbody {
                @for target in &coverage.targets {
                    @let hole = Hole::from_word(&target.hole);
                    @let checks: u64 = target.slots.iter().map(|slot| slot.checks).sum();
                    @let zombies: u64 = target.slots.iter().map(|slot| slot.zombies).sum();
                    tr data-row="" .cell-hole[hole.is_some()] {
                        td { @if target.name.is_empty() { span.dim { "none declared" } } @else { (name(&target.name)) } }
                        td {
                            @if let Some(hole) = hole {
                                span.pill.bad { "hole" } " " (hole.advice())
                                (close_command(&details.resource, target))
                            } @else { span.pill.good { (if target.mode.is_empty() { "covered" } else { &target.mode }) } }
                        }
                        td.right.num { (count(checks)) }
                        td.right.num { (count(zombies)) }
                        td.fit { @if let Some(at) = target.slots.iter().filter_map(|slot| slot.checked_ms).max() { (date_time(at)) } @else { span.dim { "none since the start" } } }
                    }
                }
            }
        } }
    }
}

/// The command with which an operator closes a hole, or tests the target.
pub fn close_command(resource: &str, target: &v1::TargetView) -> Markup {
    let command = match Hole::from_word(&target.hole) {
        Some(Hole::NoTarget | Hole::NoMode | Hole::Undeclared) => {
            "leasehold charter apply charter.toml --comment TEXT".to_owned()
        }
        _ => {
            let (resource, target) = (shell_word(resource), shell_word(&target.name));
            format!("leasehold coverage {resource} --probe --target {target}=ADDRESS")
        }
    };
    html! { pre { (text::visible(&command)) } }
}

/// A text as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn turnovers(details: &ResourceDetails) -> Markup {
    let rows: Vec<_> = details.timeline.turnovers().collect();
    html! {
        @if rows.is_empty() { p.empty { "No change of holder in the entries below." } }
        @else {
            div.scroll { table {
                thead { tr { th { "Time" } th { "From" } th { "To" } th.right { "Gap or overlap" } } }
                tbody {
                    @for (previous, hold, turnover) in rows.iter().rev().take(8) {
                        tr data-row="" {
                            td.fit.num { a href=(TimelineView { at: Some(hold.from_ms), ..TimelineView::default() }.path(&details.resource)) { (text::clock_time(hold.from_ms)) } }
                            td { (name(&previous.holder)) }
                            td { (name(&hold.holder)) }
                            td.right.fit { (turnover_text(*turnover)) }
                        }
                    }
                }
            } }
        }
    }
}

/// A gap or an overlap.
pub fn turnover_text(turnover: Turnover) -> Markup {
    match turnover {
        Turnover::Gap(ms) => html! { (duration(ms)) " gap" },
        Turnover::Overlap(ms) => html! { span.pill.warn { (duration(ms)) " overlap" } },
    }
}

fn entries(details: &ResourceDetails, view: TimelineView) -> Markup {
    match &details.entries {
        Err(problem) => page::not_allowed(problem),
        Ok(entries) if entries.is_empty() && details.older.is_none() => {
            html! { p.empty { "The retained audit log has no entry of this resource." } }
        }
        Ok(entries) => html! {
            (audit_entry_table::resource_table(entries, view.at))
            div.pager {
                @if view.before.is_some() { a.button href=(TimelineView { before: None, ..view }.path(&details.resource)) { "Newest" } }
                @if let Some(before) = details.older {
                    a.button href=(TimelineView { before: Some(before), from: None, until: None, ..view }.path(&details.resource)) { "Older" }
                }
                span.dim { (count(entries.len() as u64)) " entries on this page" }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_a_timeline_is_in_its_address() {
        let view = TimelineView { from: Some(1), until: Some(2), at: None, before: None };
        assert_eq!(view.path("a b/c"), "/ui/resource/a%20b/c?from=1&until=2");
        assert_eq!(TimelineView::default().path("a"), "/ui/resource/a");
    }

    #[test]
    fn a_name_in_a_command_is_one_word() {
        assert_eq!(shell_word("jobs/a-1"), "jobs/a-1");
        assert_eq!(shell_word("a b; rm -rf ~'"), "'a b; rm -rf ~'\\'''");
    }
}
