//! The drawing of a timeline as SVG. It contains no script, no style attribute and no address, so that a strict policy allows it.

use leasehold_wire::duration::HumanDuration;
use maud::{Markup, PreEscaped, html};

use super::{HoldSpan, RefusedWrite, ResourceTimeline, TimeScale, Turnover};
use crate::dashboard::text::{clock_seconds, clock_time, count, date_time, duration, plural, shortened};

/// The style sheet of a timeline. A page links it; a standalone file contains it.
pub const STYLE: &str = include_str!("timeline.css");

/// Options of a drawing.
#[derive(Clone, Debug, Default)]
pub struct TimelineSvg {
    /// Only this range is drawn, if there is one.
    pub range_ms: Option<(u64, u64)>,
    /// A moment that is marked.
    pub moment_ms: Option<u64>,
    /// Whether marks link to their audit entries on the same page.
    pub has_links: bool,
    /// Whether the file stands alone: it contains its style and its namespace.
    pub standalone: bool,
}

/// Width of the drawing.
const WIDTH: f64 = 1_180.0;
/// Width of the names on the left.
const GUTTER: f64 = 150.0;
/// Space on the right.
const MARGIN: f64 = 16.0;
/// Height of the axis.
const AXIS: f64 = 34.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;
const LANE: f64 = 28.0;
/// Rows of holders; the others share the last row.
const MAX_ROWS: usize = 14;
/// Half of the width of a label of the axis.
const TICK_ROOM: f64 = 30.0;
/// Width of a letter, about.
const LETTER: f64 = 7.6;

/// Where things are.
struct TimelineLayout<'a> {
    timeline: &'a ResourceTimeline,
    scale: TimeScale,
    range: (u64, u64),
    rows: Vec<&'a str>,
    /// Holders without a row of their own.
    others: usize,
    targets: Vec<&'a str>,
}

impl TimelineLayout<'_> {
    fn row_of(&self, holder: &str) -> usize {
        self.rows.iter().position(|name| *name == holder).unwrap_or(self.rows.len())
    }

    fn row_count(&self) -> usize {
        self.rows.len() + usize::from(self.others > 0)
    }

    fn row_y(&self, row: usize) -> f64 {
        AXIS + ROW * row as f64
    }

    fn lane_y(&self, target: &str) -> Option<f64> {
        let lane = self.targets.iter().position(|name| *name == target)?;
        Some(self.lanes_y() + LANE * lane as f64)
    }

    fn lanes_y(&self) -> f64 {
        self.row_y(self.row_count()) + if self.targets.is_empty() { 0.0 } else { 8.0 }
    }

    fn height(&self) -> f64 {
        self.lanes_y() + LANE * self.targets.len() as f64 + 8.0
    }

    /// Whether a time is drawn.
    fn shows(&self, at: u64) -> bool {
        (self.range.0..=self.range.1).contains(&at)
    }
}

impl TimelineSvg {
    /// The time axis of the drawing.
    pub fn scale(&self, timeline: &ResourceTimeline) -> TimeScale {
        TimeScale::new(&timeline.instants, self.range_ms.unwrap_or(timeline.range_ms), (GUTTER, WIDTH - MARGIN))
    }

    /// Draws a timeline.
    pub fn draw(&self, timeline: &ResourceTimeline) -> Markup {
        let range = self.range_ms.unwrap_or(timeline.range_ms);
        let scale = self.scale(timeline);
        let is_in_range =
            |hold: &&HoldSpan| hold.from_ms <= range.1 && hold.until_ms.is_none_or(|until| until >= range.0);
        let mut rows: Vec<&str> = Vec::new();
        for hold in timeline.holds.iter().filter(is_in_range) {
            if !rows.contains(&hold.holder.as_str()) {
                rows.push(&hold.holder);
            }
        }
        let others = if rows.len() > MAX_ROWS { rows.len() - (MAX_ROWS - 1) } else { 0 };
        // The latest holders have rows of their own.
        let rows = rows.split_off(others);
        let targets = timeline.targets.iter().map(String::as_str).collect();
        let layout = TimelineLayout { timeline, scale, range, rows, others, targets };
        let style = self.standalone.then_some(PreEscaped(STYLE));
        let namespace = self.standalone.then_some("http://www.w3.org/2000/svg");
        let (height, label) = (layout.height(), format!("Timeline of {}", shortened(&timeline.resource, 200)));
        html! {
            svg.timeline xmlns=[namespace] viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height)
                role="img" aria-label=(label) data-from=(range.0) data-until=(range.1) {
                @if let Some(style) = style { style { (style) } }
                defs {
                    pattern #tl-hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                        line.tl-hatch-line x1="0" y1="0" x2="0" y2="6" {}
                    }
                }
                (rows_of(&layout))
                (axis(&layout))
                @for hold in &timeline.holds {
                    @if is_in_range(&hold) { (self.bar(&layout, hold)) }
                }
                @for renewal in timeline.renewals.iter().filter(|renewal| layout.shows(renewal.at_ms)) {
                    @if let Some(hold) = timeline.holds.iter().find(|hold| hold.token() == renewal.token) {
                        @let (x, y) = (layout.scale.x(renewal.at_ms), layout.row_y(layout.row_of(&hold.holder)) + ROW - 4.0);
                        line.tl-renewal x1=(px(x)) x2=(px(x)) y1=(px(y - 5.0)) y2=(px(y)) {}
                    }
                }
                (breaks(&layout))
                @for (entry, at, kind) in timeline.changes.iter().filter(|(_, at, _)| layout.shows(*at)) {
                    (self.change(&layout, *entry, *at, kind))
                }
                (self.target_lanes(&layout))
                @if let Some(at) = self.moment_ms.filter(|at| layout.shows(*at)) {
                    @let x = px(layout.scale.x(at));
                    line.tl-moment x1=(x) x2=(x) y1="0" y2=(height) {}
                    text.tl-change x=(px(layout.scale.x(at) + 4.0)) y="9" font-size="10" { (clock_time(at)) }
                }
            }
        }
    }

    fn linked(&self, entry: Option<u64>, content: Markup) -> Markup {
        match entry.filter(|_| self.has_links) {
            Some(entry) => html! { a href=(format!("#e{entry}")) { (content) } },
            None => content,
        }
    }

    fn bar(&self, layout: &TimelineLayout<'_>, hold: &HoldSpan) -> Markup {
        let y = layout.row_y(layout.row_of(&hold.holder)) + 4.0;
        let end = hold.until_ms.unwrap_or(layout.timeline.range_ms.1);
        let (left, right) = (layout.scale.x(hold.from_ms), layout.scale.x(end));
        let width = (right - left).max(2.0);
        let class = if hold.until_ms.is_none() { "tl-bar tl-bar-open" } else { "tl-bar" };
        let end_class = match hold.state.as_str() {
            "revoked" => "tl-end tl-end-revoked",
            "expired" => "tl-end tl-end-expired",
            _ => "tl-end",
        };
        let letters = ((width - 8.0) / LETTER) as usize;
        let token = hold.token().to_string();
        let label = if letters > token.len() { format!("#{token}") } else { String::new() };
        let silent = hold.silent_from_ms().map(|from| (from, end));
        let overdue = layout.timeline.silent.iter().find(|one| one.token == hold.token() && hold.until_ms.is_none());
        let silent = silent.or(overdue.map(|one| (one.since_ms, layout.timeline.range_ms.1)));
        let content = html! {
            g.tl-hold {
                title { (describe(hold, layout.timeline.now_ms)) }
                rect class=(class) x=(px(left)) y=(px(y)) width=(px(width)) height=(BAR) rx="3" {}
                @if let Some((from, until)) = silent {
                    @let (from, until) = (layout.scale.x(from), layout.scale.x(until));
                    rect.tl-silent x=(px(from)) y=(px(y)) width=(px((until - from).max(1.0))) height=(BAR) {}
                    rect.tl-hatch x=(px(from)) y=(px(y)) width=(px((until - from).max(1.0))) height=(BAR) {}
                }
                @if let Some(from) = hold.drain_from_ms {
                    @let from = layout.scale.x(from);
                    rect.tl-drain x=(px(from)) y=(px(y + BAR - 4.0)) width=(px((right - from).max(2.0))) height="4" {}
                }
                @for (at, _) in hold.tokens.iter().skip(1).filter(|(at, _)| layout.shows(*at)) {
                    @let x = px(layout.scale.x(*at));
                    line.tl-grid x1=(x) x2=(x) y1=(px(y)) y2=(px(y + BAR)) {}
                }
                @if hold.until_ms.is_some_and(|until| layout.shows(until)) {
                    line class=(end_class) x1=(px(right)) x2=(px(right)) y1=(px(y - 1.0)) y2=(px(y + BAR + 1.0)) {}
                }
                @if !label.is_empty() { text.tl-label x=(px(left + 5.0)) y=(px(y + 14.0)) { (label) } }
            }
        };
        html! {
            (self.linked(hold.granted_entry, content))
            @if let Some(turnover) = hold.turnover.filter(|_| layout.shows(hold.from_ms)) {
                @let (class, text) = match turnover {
                    Turnover::Gap(ms) => ("tl-turnover", format!("gap {}", duration(ms))),
                    Turnover::Overlap(ms) => ("tl-turnover tl-overlap", format!("overlap {}", duration(ms))),
                };
                @let room = left - GUTTER;
                @if room > text.len() as f64 * 5.6 + 6.0 {
                    text class=(class) x=(px(left - 5.0)) y=(px(y + 14.0)) text-anchor="end" { (text) }
                }
            }
        }
    }

    fn change(&self, layout: &TimelineLayout<'_>, entry: u64, at: u64, kind: &str) -> Markup {
        let x = layout.scale.x(at);
        let points = format!("{},{} {},{} {},{}", px(x - 4.0), AXIS - 8.0, px(x + 4.0), AXIS - 8.0, px(x), AXIS - 1.0);
        self.linked(
            Some(entry),
            html! { polygon.tl-change points=(points) { title { (kind.replace('_', " ")) " at " (clock_time(at)) } } },
        )
    }

    fn target_lanes(&self, layout: &TimelineLayout<'_>) -> Markup {
        html! {
            @for target in &layout.targets {
                @if let Some(y) = layout.lane_y(target) {
                    @let middle = y + LANE / 2.0;
                    line.tl-grid x1=(GUTTER) x2=(WIDTH - MARGIN) y1=(px(middle)) y2=(px(middle)) {}
                    text.tl-dim x="6" y=(px(middle + 4.0)) { title { "target " (shortened(target, 200)) } "\u{25c7} " (shortened(target, 19)) }
                }
            }
            @for report in layout.timeline.reports.iter().filter(|report| layout.shows(report.at_ms)) {
                @if let Some(y) = layout.lane_y(&report.target) {
                    @let (x, y) = (layout.scale.x(report.at_ms), y + LANE / 2.0);
                    @let points = format!("{},{} {},{} {},{} {},{}", px(x), px(y - 6.0), px(x + 6.0), px(y), px(x), px(y + 6.0), px(x - 6.0), px(y));
                    (self.linked(Some(report.entry), html! {
                        polygon.tl-claim points=(points) {
                            title { "first report of " (shortened(&report.target, 100)) ", " (report.mode) ", at " (clock_time(report.at_ms)) }
                        }
                    }))
                }
            }
            @for refused in layout.timeline.refusals.iter().filter(|refused| layout.shows(refused.at_ms)) {
                @if let Some(y) = layout.lane_y(&refused.target) {
                    @let (x, y) = (layout.scale.x(refused.at_ms), y + LANE / 2.0);
                    @if let Some((from, row_y)) = zombie_origin(layout, refused.presented) {
                        path.tl-tail d=(format!("M{} {} L{} {} L{} {}", px(from), px(row_y), px(x), px(row_y), px(x), px(y - 7.0))) {}
                    }
                    (self.linked(Some(refused.entry), html! {
                        g {
                            title {
                                (shortened(&refused.target, 100)) " refused " (plural(refused.times, "write")) " of "
                                (if refused.holder.is_empty() { "an unknown holder".to_owned() } else { shortened(&refused.holder, 100) })
                                " with token " (refused.presented) " at " (clock_time(refused.at_ms)) "; its mark is " (refused.mark)
                            }
                            path.tl-refused d=(format!("M{} {} l10 10 m0 -10 l-10 10", px(x - 5.0), px(y - 5.0))) {}
                            @if let Some(label) = refused_label(layout, refused, x) { text.tl-refused-text x=(px(x + 10.0)) y=(px(y + 4.0)) { (label) } }
                        }
                    }))
                }
            }
        }
    }
}

/// The text next to a refused write: as long as the next mark of the lane leaves room for.
fn refused_label(layout: &TimelineLayout<'_>, refused: &RefusedWrite, x: f64) -> Option<String> {
    let later =
        layout.timeline.refusals.iter().filter(|other| other.target == refused.target && other.at_ms > refused.at_ms);
    let next = later.map(|other| layout.scale.x(other.at_ms) - 8.0).fold(WIDTH - 2.0, f64::min);
    let times = if refused.times > 1 { format!("\u{d7}{}", count(refused.times)) } else { String::new() };
    let long = format!("refused {times}").trim_end().to_owned();
    let room = (next - x - 10.0) / LETTER;
    [long, times].into_iter().find(|label| !label.is_empty() && label.chars().count() as f64 <= room)
}

/// Where the lease of a zombie ended: from there on it only believed that it held.
fn zombie_origin(layout: &TimelineLayout<'_>, presented: u64) -> Option<(f64, f64)> {
    let of = |hold: &&HoldSpan| hold.tokens.iter().any(|(_, number)| *number == presented);
    let hold = layout.timeline.holds.iter().find(of)?;
    let row = layout.row_of(&hold.holder);
    Some((layout.scale.x(hold.until_ms?), layout.row_y(row) + 4.0 + BAR / 2.0))
}

fn rows_of(layout: &TimelineLayout<'_>) -> Markup {
    html! {
        @for (row, holder) in layout.rows.iter().enumerate() {
            (row_background(layout, row, holder, holder))
        }
        @if layout.others > 0 {
            (row_background(layout, layout.rows.len(), &format!("{} earlier holders", layout.others), ""))
        }
    }
}

fn row_background(layout: &TimelineLayout<'_>, row: usize, label: &str, full: &str) -> Markup {
    let y = layout.row_y(row);
    html! {
        @if row.is_multiple_of(2) { rect.tl-row x="0" y=(px(y)) width=(WIDTH) height=(ROW) {} }
        text x="6" y=(px(y + 18.0)) { @if !full.is_empty() { title { (shortened(full, 300)) } } (shortened(label, 21)) }
    }
}

fn axis(layout: &TimelineLayout<'_>) -> Markup {
    let bottom = layout.height() - 4.0;
    let mut day = None;
    let ticks: Vec<(u64, String)> = layout
        .scale
        .ticks(92.0)
        .into_iter()
        .map(|at| {
            let is_next_day = day.replace(at / 86_400_000).is_some_and(|day| day != at / 86_400_000);
            (at, if is_next_day { date_time(at)[5..16].to_owned() } else { tick_label(at) })
        })
        .collect();
    html! {
        text.tl-dim x="6" y="14" { (date_time(layout.range.0).get(..10).unwrap_or_default()) " UTC" }
        @for (at, label) in &ticks {
            @let x = layout.scale.x(*at);
            line.tl-grid x1=(px(x)) x2=(px(x)) y1="20" y2=(px(bottom)) {}
            text.tl-dim x=(px(x.min(WIDTH - TICK_ROOM))) y="14" text-anchor="middle" { (label) }
        }
        @let now = layout.timeline.now_ms;
        @if layout.shows(now) && now == layout.timeline.range_ms.1 {
            @let x = px(layout.scale.x(now));
            line.tl-now x1=(x) x2=(x) y1="20" y2=(px(bottom)) { title { "now" } }
        }
    }
}

fn tick_label(at: u64) -> String {
    match at % 1_000 {
        0 => clock_seconds(at),
        _ => clock_time(at),
    }
}

/// Compressed stretches, with their real duration.
fn breaks(layout: &TimelineLayout<'_>) -> Markup {
    let bottom = layout.height() - 4.0;
    html! {
        @for segment in layout.scale.segments().iter().filter(|segment| segment.compressed) {
            @let (left, right) = segment.x;
            @let (a, b) = (left + (right - left) * 0.35, left + (right - left) * 0.65);
            @let text = duration(segment.ms.1 - segment.ms.0);
            g {
                title { (text) " without a change, drawn shorter" }
                rect.tl-break x=(px(a)) y="22" width=(px(b - a)) height=(px(bottom - 22.0)) {}
                path.tl-break-line d=(zigzag(a, bottom)) {}
                path.tl-break-line d=(zigzag(b, bottom)) {}
                text.tl-dim x=(px((left + right) / 2.0)) y="30" text-anchor="middle" font-size="10" { (text) }
            }
        }
    }
}

fn zigzag(x: f64, bottom: f64) -> String {
    let mut path = format!("M{} 34", px(x));
    let mut y = 34.0;
    let mut side = 2.5;
    while y + 6.0 < bottom {
        y += 6.0;
        path.push_str(&format!(" L{} {}", px(x + side), px(y)));
        side = -side;
    }
    path
}

/// One sentence about a holder.
pub(super) fn describe(hold: &HoldSpan, now_ms: u64) -> String {
    let holder = shortened(&hold.holder, 100);
    let ttl = hold.ttl_ms.map(|ttl| format!(", ttl {}", HumanDuration::from_millis(ttl))).unwrap_or_default();
    let from = if hold.granted_entry.is_some() { clock_time(hold.from_ms) } else { "earlier".to_owned() };
    let end = match hold.until_ms {
        Some(until) => {
            format!(
                "until {} ({}): {} {}",
                clock_time(until),
                duration(until.saturating_sub(hold.from_ms)),
                hold.state,
                hold.reason
            )
        }
        None => format!("held for {}", duration(now_ms.saturating_sub(hold.from_ms))),
    };
    format!("{holder}, token {}{ttl}, from {from}, {end}", hold.token())
}

/// A coordinate with one decimal.
fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::TimelineContext;
    use super::super::tests::{ended, granted};
    use super::*;

    fn timeline() -> ResourceTimeline {
        let zombie = leasehold_wire::json::AuditEntryBody {
            target: Some("ledger<b>".into()),
            mark: Some("11".into()),
            units: Some(2),
            ..super::super::tests::entry(4, 26_000, "zombie", "", "worker <script>", 10)
        };
        let entries = [
            granted(1, 0, "1.0", "worker <script>", 10),
            ended(2, 20_000, "1.0", "worker <script>", 10, "ttl"),
            granted(3, 20_007, "2.0", "b\u{202e}", 11),
            zombie,
        ];
        let context = TimelineContext { now_ms: 1_700_000_040_000, ..TimelineContext::default() };
        ResourceTimeline::new("jobs/<x>", &entries, context)
    }

    #[test]
    fn names_of_callers_are_text_in_the_drawing() {
        let svg = TimelineSvg { standalone: true, ..TimelineSvg::default() }.draw(&timeline()).into_string();
        assert!(!svg.contains("<script") && !svg.contains("ledger<b>") && !svg.contains('\u{202e}'), "{svg}");
        assert!(svg.contains("worker &lt;script&gt;") && svg.contains("b\\u{202e}"), "{svg}");
        assert!(svg.starts_with("<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
    }

    #[test]
    fn silence_gap_and_refusal_are_drawn() {
        let svg = TimelineSvg { has_links: true, ..TimelineSvg::default() }.draw(&timeline()).into_string();
        assert!(svg.contains("class=\"tl-hatch\""), "{svg}");
        assert!(svg.contains("gap 7 ms"), "{svg}");
        assert!(svg.contains("\u{d7}2") && svg.contains("class=\"tl-tail\""), "{svg}");
        assert!(svg.contains("href=\"#e3\"") && svg.contains("href=\"#e4\""), "{svg}");
        assert!(!svg.contains(" style="), "an inline style is refused by the policy");
    }

    #[test]
    fn a_range_shows_only_its_marks() {
        let options = TimelineSvg { range_ms: Some((1_700_000_000_000, 1_700_000_010_000)), ..TimelineSvg::default() };
        let svg = options.draw(&timeline()).into_string();
        assert!(!svg.contains("\u{d7}2") && !svg.contains("#11"), "{svg}");
    }

    #[test]
    fn many_holders_share_a_row() {
        let mut entries = Vec::new();
        for at in 0..40u64 {
            let lease = format!("{at}.0");
            entries.push(granted(at * 2 + 1, at * 1_000, &lease, &format!("w-{at}"), 10 + at));
            entries.push(ended(at * 2 + 2, at * 1_000 + 900, &lease, &format!("w-{at}"), 10 + at, "released"));
        }
        let timeline = ResourceTimeline::new(
            "jobs/x",
            &entries,
            TimelineContext { now_ms: 1_700_000_041_000, ..Default::default() },
        );
        let svg = TimelineSvg::default().draw(&timeline).into_string();
        assert!(svg.contains("27 earlier holders") && svg.contains("w-39"), "{svg}");
    }
}
