//! The overview: counts, what needs attention, charts of the last hour, and the last changes.

use leasehold_core::lease::EndReason;
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::actions::OperatorAction;
use super::chart::{self, ChartSeries};
use super::sample_ring::SampleChange;
use super::text::{self, count, date_time, duration, plural};
use super::{audit_entry_table, page};

/// What the overview shows. What its reader may not see is a problem.
pub struct Overview {
    /// Status of the grantor.
    pub status: v1::Status,
    /// The cluster.
    pub cluster: v1::ClusterView,
    /// Changes of counters in the last hour.
    pub changes: Result<Vec<SampleChange>, v1::Problem>,
    /// Whether the reader may end a quarantine.
    pub may_waive: bool,
    /// The last changes of the audit log.
    pub last: Result<Vec<AuditEntryBody>, v1::Problem>,
}

/// The content of the page.
pub fn content(overview: &Overview) -> Markup {
    let status = &overview.status;
    let zombies = overview.changes.as_ref().ok().and_then(|changes| changes.last()).map(|change| change.last.zombies);
    html! {
        h1 { "Overview" }
        (notices(overview))
        div.stats {
            (stat("leases held", &count(status.held)))
            (stat("waiters", &count(status.waiters)))
            (stat("sessions", &count(status.sessions)))
            @if let Some(zombies) = zombies { (stat("zombie writes refused", &count(zombies))) }
            (stat("deadlocks", &count(status.deadlocks)))
            (small_stat("leader", if overview.cluster.leader.is_empty() { "none" } else { &overview.cluster.leader }))
            (small_stat("tenure", &count(status.tenure.into())))
            (small_stat("highest token", &status.counter.to_string()))
        }
        @match &overview.changes {
            Ok(changes) if changes.is_empty() => p.empty { "Charts start with the second sample, a few seconds after the start of the server." },
            Ok(changes) => (charts(changes)),
            Err(problem) => section.panel { h2 { "Charts" } (page::not_allowed(problem)) },
        }
        section.panel {
            h2 { "Last changes" }
            @match &overview.last {
                Ok(entries) if entries.is_empty() => p.empty { "The audit log is empty: nothing has been granted yet." },
                Ok(entries) => (audit_entry_table::table(entries, None)),
                Err(problem) => (page::not_allowed(problem)),
            }
        }
    }
}

/// A count with its label.
pub fn stat(label: &str, value: &str) -> Markup {
    html! { div { div.label { (label) } div.value { (value) } } }
}

/// A text with its label.
pub fn small_stat(label: &str, value: &str) -> Markup {
    html! { div { div.label { (label) } div.value.small { (text::visible(value)) } } }
}

fn notices(overview: &Overview) -> Markup {
    let (status, cluster) = (&overview.status, &overview.cluster);
    let last_hour = overview.changes.as_deref().unwrap_or_default();
    let first = last_hour.first().map(|change| change.first);
    let last = last_hour.last().map(|change| change.last);
    let zombies = first.zip(last).map_or(0, |(first, last)| last.zombies.saturating_sub(first.zombies));
    let stalled = last_hour.iter().map(|change| change.ended(EndReason::Ttl)).sum::<f64>() as u64;
    html! {
        ul.notices {
            @if cluster.role == i32::from(v1::Role::Standby) {
                li { "This server is a standby: it shows the state as of its journal position. The leader is " code { (text::visible(&cluster.leader)) } "." }
            }
            @if let Some(left) = status.quarantine_ms {
                li.bad {
                    "Quarantine: nothing is granted for " (duration(left)) ", because of a "
                    (if status.rolled_back { "rollback" } else { "restore" }) "."
                    @if overview.may_waive { " " a.button href=(OperatorAction::Waive.path("")) { "End the quarantine\u{2026}" } }
                }
            }
            @if !cluster.problem.is_empty() { li.bad { "Cluster: " (text::visible(&cluster.problem)) } }
            @if zombies > 0 {
                li { "Targets refused " (plural(zombies, "write")) " of former holders in the last hour. Without a fence, these writes were data loss." }
            }
            @if stalled > 0 {
                li { (plural(stalled, "lease")) " expired in the last hour because no renewal arrived in time." }
            }
        }
    }
}

/// Reasons of ends with the classes of their colors, in groups that a reader distinguishes.
const REASONS: [(&str, &str, &[EndReason]); 5] = [
    ("released", "c1", &[EndReason::Released, EndReason::HandedOff]),
    ("session", "c6", &[EndReason::Session, EndReason::Restored]),
    ("expired", "c3", &[EndReason::Ttl, EndReason::Stalled, EndReason::MaxHold]),
    ("preempted", "c5", &[EndReason::Priority, EndReason::Deadlock]),
    ("revoked", "c4", &[EndReason::Operator, EndReason::Policy]),
];

fn charts(changes: &[SampleChange]) -> Markup {
    let series = |name, class, value: &dyn Fn(&SampleChange) -> f64| ChartSeries {
        name,
        class,
        values: changes.iter().map(value).collect(),
    };
    let whole = |value: f64| count(value.round() as u64);
    let one_decimal = |value: f64| format!("{value:.1}");
    let millis = |value: f64| format!("{value:.2} ms");
    let held = [
        series("held", "c1", &|change| change.last.held as f64),
        series("waiters", "c3", &|change| change.last.waiters as f64),
    ];
    let ends = REASONS.map(|(name, class, reasons)| {
        series(name, class, &|change| reasons.iter().map(|reason| change.ended(*reason)).sum())
    });
    let latency =
        [series("journal sync", "c2", &|change| change.sync_ms()), series("turn", "c5", &|change| change.turn_ms())];
    let from = changes.first().map_or(0, |change| change.first.wall_ms);
    html! {
        div.grid.charts {
            section.panel { (chart::lines("Leases and waiters", &held, whole)) }
            section.panel { (chart::stacked_bars("Ends by reason", &ends, whole)) }
            section.panel { (chart::lines("Renewals per second", &[series("renewals/s", "c1", &|change| change.renewals_per_second())], one_decimal)) }
            section.panel { (chart::lines("Latency, mean", &latency, millis)) }
            section.panel { (chart::stacked_bars("Refused zombie writes", &[series("refused", "c4", &|change| change.zombies())], whole)) }
        }
        p.proof { "Since " (date_time(from)) ", in the memory of this server." }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_ring::{SampleRing, ServerSample};
    use super::*;

    fn overview(changes: Vec<SampleChange>) -> Overview {
        Overview {
            status: v1::Status::default(),
            cluster: v1::ClusterView::default(),
            changes: Ok(changes),
            may_waive: false,
            last: Ok(Vec::new()),
        }
    }

    #[test]
    fn charts_and_notices_show_the_changes_of_the_last_hour() {
        let ring = SampleRing::default();
        let mut ended = [0; EndReason::ALL.len()];
        ring.push(ServerSample { wall_ms: 1_000, ended, ..ServerSample::default() });
        ended[usize::from(EndReason::Ttl.code())] = 4;
        ring.push(ServerSample { wall_ms: 6_000, ended, zombies: 9, held: 7, renewals: 50, ..ServerSample::default() });
        let page = content(&overview(ring.changes(10))).into_string();
        for part in ["Ends by reason", "expired <b>4</b>", "renewals/s <b>10.0</b>", "held <b>7</b>"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        assert!(page.contains("4 leases expired in the last hour"), "{page}");
        assert!(page.contains("Targets refused 9 writes of former holders"), "{page}");
        let quiet = content(&overview(Vec::new())).into_string();
        assert!(quiet.contains("Charts start with the second sample") && !quiet.contains("<li"), "{quiet}");
    }

    #[test]
    fn a_quarantine_and_a_problem_of_the_cluster_are_named() {
        let status = v1::Status { quarantine_ms: Some(90_000), rolled_back: true, ..Default::default() };
        let cluster = v1::ClusterView { problem: "no <etcd>".into(), ..Default::default() };
        let page = content(&Overview { status, cluster, ..overview(Vec::new()) }).into_string();
        assert!(page.contains("nothing is granted for 1 min 30 s, because of a rollback"), "{page}");
        assert!(page.contains("no &lt;etcd&gt;"), "{page}");
    }
}
