//! Resources with their leases, page by page.

use leasehold_core::grantor::LeaseSort;
use leasehold_wire::v1;
use maud::{Markup, html};

use super::chart;
use super::hold_reason::{FirstLease, HoldReason};
use super::renewal_ages::RenewalAges;
use super::text::{self, count, duration, name, plural, query_value};

/// Which resources or leases are listed.
#[derive(Clone, Debug, Default)]
pub struct LeasesForm {
    /// Prefix of whole segments.
    pub prefix: String,
    /// Name of a holder; only its leases are listed.
    pub holder: String,
    /// The order of leases; none for the order of resources.
    pub sort: Option<LeaseSort>,
    /// Only leases that are stuck.
    pub stuck: bool,
    /// Where the page starts; empty for the first page.
    pub cursor: String,
}

/// Orders of leases with their labels, and whether the largest is first.
const ORDERS: [(LeaseSort, &str, bool); 5] = [
    (LeaseSort::Name, "leases by name", false),
    (LeaseSort::Age, "held for longest", true),
    (LeaseSort::Remaining, "ending first", false),
    (LeaseSort::LastProgress, "longest without progress", true),
    (LeaseSort::Waiters, "most waiters", true),
];

impl LeasesForm {
    /// The address of a page with this filter.
    pub fn path(&self) -> String {
        let mut path = format!("/ui/leases?prefix={}&holder={}", query_value(&self.prefix), query_value(&self.holder));
        if let Some(sort) = self.sort {
            path.push_str(&format!("&sort={sort}"));
        }
        if self.stuck {
            path.push_str("&stuck=true");
        }
        if !self.cursor.is_empty() {
            path.push_str(&format!("&cursor={}", query_value(&self.cursor)));
        }
        path
    }

    /// The same filter from another place.
    fn at(&self, cursor: impl Into<String>) -> Self {
        Self { cursor: cursor.into(), ..self.clone() }
    }

    /// Whether leases are listed, and not resources.
    pub const fn lists_leases(&self) -> bool {
        !self.holder.is_empty() || self.sort.is_some() || self.stuck
    }

    /// Whether the order has the largest first.
    pub fn is_descending(&self) -> bool {
        ORDERS.iter().any(|(sort, _, descending)| Some(*sort) == self.sort && *descending)
    }

    /// The form that sets the filter.
    pub fn form(&self) -> Markup {
        html! {
            form.filter action="/ui/leases" method="get" role="search" {
                label { "Prefix" input type="search" name="prefix" value=(self.prefix) placeholder="jobs/nightly" autocomplete="off" spellcheck="false"; }
                label { "Holder" input type="search" name="holder" value=(self.holder) placeholder="worker-7" autocomplete="off" spellcheck="false"; }
                label { "List"
                    select name="sort" {
                        option value="" { "resources" }
                        @for (sort, label, _) in ORDERS { option value=(sort) selected[self.sort == Some(sort)] { (label) } }
                    }
                }
                label.check { input type="checkbox" name="stuck" value="true" checked[self.stuck]; "only stuck" }
                button { "Show" }
            }
        }
    }
}

/// One page of resources.
pub struct LeasesPage<'a> {
    /// The filter.
    pub filter: &'a LeasesForm,
    /// The resources.
    pub resources: &'a [v1::ResourceView],
    /// When their first leases were renewed.
    pub renewal_ages: &'a RenewalAges,
    /// The cursor of the next page.
    pub next: Option<u32>,
    /// Grantor time.
    pub time_ms: u64,
    /// Number of all held leases.
    pub held: u64,
}

/// The content of the page.
pub fn content(page: &LeasesPage<'_>) -> Markup {
    html! {
        section.panel {
            @if page.resources.is_empty() {
                (empty(page))
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "Resource" } th.wide { "State" } th { "Holder" } th.right.wide { "Token" } th.wide { "Held for" } th { "Ends unless renewed" }
                        th.right { "Waiters" } th.wide { "Why" }
                    } }
                    tbody { @for resource in page.resources { (row(resource, page.renewal_ages, page.time_ms)) } }
                } }
            }
            div.pager {
                @if !page.filter.cursor.is_empty() { a.button href=(page.filter.at("").path()) { "First page" } }
                @if let Some(next) = page.next { a.button href=(page.filter.at(next.to_string()).path()) { "Next page" } }
                span.dim { (plural(page.resources.len() as u64, "resource")) " on this page, " (plural(page.held, "lease")) " held in all" }
            }
        }
    }
}

fn empty(page: &LeasesPage<'_>) -> Markup {
    html! {
        p.empty {
            @if page.next.is_some() {
                "No resource in this part matches. The next page continues the search."
            } @else if !page.filter.prefix.is_empty() {
                "No resource under " (name(&page.filter.prefix)) ". A prefix consists of whole segments: "
                code { "jobs" } " covers " code { "jobs/a" } ", and not " code { "jobs2" } "."
            } @else if page.held > 0 {
                "You may see none of the leases that are held here."
            } @else {
                "No lease is held. Acquire one: " code { "leasehold acquire jobs/demo --holder me --ttl 60s" }
            }
        }
    }
}

fn row(resource: &v1::ResourceView, ages: &RenewalAges, time_ms: u64) -> Markup {
    let first = resource.leases.first();
    html! {
        tr data-row="" {
            td.main { (text::resource_link(&resource.resource)) }
            td.fit.wide { (state_pill(resource)) }
            td.holder {
                @if let Some(lease) = first { (holder_link(&lease.holder)) }
                @if resource.held > 1 { " " span.dim { "and " (count(resource.held - 1)) " more" } }
            }
            td.right.num.wide { @if let Some(lease) = first { (lease.token_number) } }
            td.fit.wide { @if let Some(lease) = first { (duration(time_ms.saturating_sub(lease.granted_ms))) } }
            td.fit { @if let Some(lease) = first { (remaining(lease, ages)) } }
            td.right.num { @if resource.waiters > 0 { (count(resource.waiters)) } }
            td.wide.dim { (why(resource, ages, time_ms)) }
        }
    }
}

/// A link to the leases of a holder.
pub fn holder_link(holder: &str) -> Markup {
    html! { a href=(format!("/ui/leases?holder={}", query_value(holder))) { (name(holder)) } }
}

/// The remaining time of a lease, which shrinks.
pub fn remaining(lease: &v1::LeaseView, ages: &RenewalAges) -> Markup {
    html! {
        (duration(lease.remaining_ms))
        @if let Some(ttl) = lease.ttl_ms { (chart::countdown(lease.remaining_ms, ttl, ages.is_overdue(lease))) }
        @else { span.dim { " with its session" } }
    }
}

/// The state of a resource in one word.
pub fn state_pill(resource: &v1::ResourceView) -> Markup {
    let draining = resource.draining || resource.leases.iter().any(|lease| lease.draining != 0);
    let (class, word) = match () {
        () if resource.held_for_operator => ("pill bad", "blocked"),
        () if draining => ("pill warn", "draining"),
        () if resource.held > 0 => ("pill good", "held"),
        () => ("pill", "free"),
    };
    html! { span class=(class) { (word) } }
}

/// Why a resource is held or free, in one sentence.
pub fn why(resource: &v1::ResourceView, ages: &RenewalAges, time_ms: u64) -> String {
    let first = resource.leases.first().map(|lease| FirstLease {
        holder: &lease.holder,
        held_ms: time_ms.saturating_sub(lease.granted_ms),
        ttl_ms: lease.ttl_ms,
        silent_ms: ages.of(lease),
        draining: draining_reason(lease).map(|reason| (reason, lease.drain_ms)),
    });
    let reason = HoldReason {
        held: resource.held,
        first,
        waiters: resource.waiters,
        held_for_operator: resource.held_for_operator,
        confirmed: resource.confirmed,
        capacity: resource.capacity,
    };
    reason.sentence()
}

/// Why a lease is being drained.
fn draining_reason(lease: &v1::LeaseView) -> Option<&'static str> {
    let reason = v1::EndReason::try_from(lease.draining).ok().filter(|reason| *reason != v1::EndReason::Unspecified)?;
    Some(Option::from(reason).map_or("", |reason: leasehold_core::lease::EndReason| reason.word()))
}

/// Leases of a listing, in its order.
pub fn listing_content(filter: &LeasesForm, list: &v1::ListedLeases) -> Markup {
    let ages = RenewalAges::new(&list.leases);
    html! {
        section.panel {
            @if list.leases.is_empty() {
                p.empty {
                    @if !list.next_cursor.is_empty() { "No lease in this part matches. The next page continues the search." }
                    @else if filter.stuck { "No lease that you may see is stuck: each was renewed, and made the progress that it has to." }
                    @else if !filter.holder.is_empty() { (name(&filter.holder)) " holds nothing that you may see." }
                    @else { "No lease that you may see is held here." }
                }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "Resource" } th { "Holder" } th.right.wide { "Token" } th { "Held for" } th { "Ends unless renewed" }
                        th.wide { "Renewed" } th { "Last progress" } th.right.wide { "Waiters" }
                    } }
                    tbody { @for listed in &list.leases { @if let Some(lease) = &listed.lease { (listed_row(listed, lease, &ages)) } } }
                } }
            }
            div.pager {
                @if !filter.cursor.is_empty() { a.button href=(filter.at("").path()) { "First page" } }
                @if !list.next_cursor.is_empty() { a.button href=(filter.at(list.next_cursor.as_str()).path()) { "Next page" } }
                span.dim {
                    (plural(list.leases.len() as u64, "lease")) " on this page"
                    @if filter.sort.is_some() { ". A sorted page does not update itself." }
                }
            }
        }
    }
}

fn listed_row(listed: &v1::ListedLease, lease: &v1::LeaseView, ages: &RenewalAges) -> Markup {
    html! {
        tr data-row="" {
            td.main { (text::resource_link(&lease.resource)) }
            td.holder { (holder_link(&lease.holder)) @if listed.stuck { " " span.pill.warn { "stuck" } } }
            td.right.num.wide { (lease.token_number) }
            td.fit { (duration(listed.age_ms)) }
            td.fit { (remaining(lease, ages)) }
            td.fit.wide { (duration(listed.silent_ms)) " ago" }
            td.fit {
                @match listed.idle_ms { Some(idle) => { (duration(idle)) " ago" }, None => span.dim { "not required" } }
                @if let Some(progress) = lease.progress { span.dim { " (" (count(progress)) ")" } }
            }
            td.right.num.wide { @if listed.waiters > 0 { (count(listed.waiters)) } }
        }
    }
}

/// A lease id as text.
pub fn lease_id_text(bits: u64) -> String {
    leasehold_wire::lease_id(bits).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> v1::LeaseView {
        v1::LeaseView {
            holder: "w-7".into(),
            ttl_ms: Some(10_000),
            remaining_ms: 8_000,
            granted_ms: 1_000,
            ..v1::LeaseView::default()
        }
    }

    #[test]
    fn one_sentence_says_why_a_resource_is_held_or_free() {
        let held = v1::ResourceView { leases: vec![lease()], held: 1, waiters: 3, ..Default::default() };
        let ages =
            RenewalAges::new(&[v1::ListedLease { lease: Some(lease()), silent_ms: 2_000, ..Default::default() }]);
        assert_eq!(why(&held, &ages, 541_000), "Held by w-7 for 9 min, renewed 2.0 s ago; 3 wait.");
        let ended = RenewalAges::default();
        assert_eq!(why(&held, &ended, 541_000), "Held by w-7 for 9 min; 3 wait.");
        let draining = v1::LeaseView { draining: v1::EndReason::HandedOff.into(), drain_ms: 5_000, ..lease() };
        let drained = v1::ResourceView { leases: vec![draining], held: 2, ..Default::default() };
        assert_eq!(
            why(&drained, &ages, 2_000),
            "Held by w-7 and 1 other for 1.0 s, asked to stop (handed off), ends in 5.0 s."
        );
        assert_eq!(why(&v1::ResourceView::default(), &ages, 0), "Free: no one holds it and no one waits.");
        let blocked = v1::ResourceView { held_for_operator: true, waiters: 1, ..Default::default() };
        assert_eq!(why(&blocked, &ages, 0), "Blocked after a revocation until an operator frees it; 1 waits.");
    }

    #[test]
    fn a_lease_that_ends_soon_and_was_renewed_is_not_overdue() {
        // The longest hold leaves 3 s of a ttl of 10 s.
        let limited = v1::LeaseView { remaining_ms: 3_000, ..lease() };
        let listed = |silent_ms| v1::ListedLease { lease: Some(limited.clone()), silent_ms, ..Default::default() };
        let (renewed, silent) = (RenewalAges::new(&[listed(40)]), RenewalAges::new(&[listed(5_001)]));
        assert!(!renewed.is_overdue(&limited) && silent.is_overdue(&limited));
        assert!(!remaining(&limited, &renewed).into_string().contains("overdue"));
        assert!(remaining(&limited, &silent).into_string().contains("overdue"));
        let held = v1::ResourceView { leases: vec![limited], held: 1, ..Default::default() };
        assert_eq!(why(&held, &renewed, 2_000), "Held by w-7 for 1.0 s, renewed 40 ms ago.");
    }

    #[test]
    fn the_filter_of_a_page_is_in_its_address() {
        let filter = LeasesForm { prefix: "a/b&c".into(), holder: "\"x\"".into(), ..LeasesForm::default() };
        assert_eq!(filter.path(), "/ui/leases?prefix=a%2Fb%26c&holder=%22x%22");
        let sorted =
            LeasesForm { sort: Some(LeaseSort::Age), stuck: true, cursor: "7".into(), ..LeasesForm::default() };
        assert_eq!(sorted.path(), "/ui/leases?prefix=&holder=&sort=age&stuck=true&cursor=7");
        assert!(sorted.is_descending() && sorted.lists_leases() && filter.lists_leases());
        assert!(sorted.form().into_string().contains("<option value=\"age\" selected>"));
        assert!(!filter.form().into_string().contains("\"\"x\"\""), "values are escaped");
    }
}
