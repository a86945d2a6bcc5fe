//! Listings of held leases: filters, sort keys, and the bounded scans that find them.
//!
//! A scan visits the slots of the lease table in order. A lease keeps its slot as long as it is held, so a listing in slot order
//! neither loses nor repeats it. A sorted listing first collects the keys of all matches in several scans; the server sorts them
//! between turns and then reads the leases of each page by their ids.

use std::fmt;

use super::Grantor;
use super::lookups::covers;
use super::query_budget::QueryBudget;
use super::table::lease::{LeaseExtra, NONE, StoredLease};
use super::view::LeaseView;
use crate::ids::LeaseId;
use crate::limits::{NAME_KEY_STEPS, SLOT_STEPS};

/// Which held leases a listing contains. Every condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseFilter {
    /// Only leases of resources under this prefix of whole segments.
    pub prefix: String,
    /// Only leases of holders with this name.
    pub holder: Option<String>,
    /// Only leases that were granted at least this long ago, in milliseconds.
    pub min_age_ms: Option<u64>,
    /// Only leases that were granted less than this long ago, in milliseconds.
    pub max_age_ms: Option<u64>,
    /// Only leases that are stuck, or only others: see [`ListedLease::stuck`].
    pub stuck: Option<bool>,
    /// Only leases that are being drained, or only others.
    pub draining: Option<bool>,
}

/// What a listing is sorted by, smallest first. Leases with equal values are in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseSort {
    /// The name of the resource.
    Name,
    /// Time since the grant.
    Age,
    /// Time until the lease ends unless its deadline moves.
    Remaining,
    /// Time since the last progress, or since the last renewal if the lease requires no progress.
    LastProgress,
    /// Number of waiters of the resource.
    Waiters,
}

impl LeaseSort {
    /// Every key.
    pub const ALL: [Self; 5] = [Self::Name, Self::Age, Self::Remaining, Self::LastProgress, Self::Waiters];

    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Age => "age",
            Self::Remaining => "remaining",
            Self::LastProgress => "last_progress",
            Self::Waiters => "waiters",
        }
    }

    /// The key with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.word() == word)
    }
}

impl fmt::Display for LeaseSort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The place of a lease in a sorted listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseSortKey {
    /// The value, if the sort key is a number.
    pub number: u64,
    /// The value, if the sort key is a name; empty otherwise.
    pub name: Box<str>,
    /// The lease.
    pub lease: LeaseId,
}

/// A held lease in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLease {
    /// The lease.
    pub lease: LeaseView,
    /// Milliseconds since the grant.
    pub age_ms: u64,
    /// Milliseconds since the last renewal of the lease, or of its session if it lives as long as that. A new tenure renews both.
    pub silent_ms: u64,
    /// Milliseconds since the last progress; `None` if the lease requires none.
    pub idle_ms: Option<u64>,
    /// Whether nothing renewed it for half its ttl, or it made no progress for half the time in which it has to. At the whole time
    /// it ends.
    pub stuck: bool,
    /// Number of waiters of the resource.
    pub waiters: usize,
}

/// How long ago a lease was renewed and made progress.
struct LeaseActivity {
    silent_ms: u64,
    idle_ms: Option<u64>,
    stuck: bool,
}

/// A filter with what it needs from the table, looked up once for a scan.
struct LeaseMatcher<'a> {
    filter: &'a LeaseFilter,
    /// The entry of the holder; none matches if the filter names a holder without one.
    holder: Option<u32>,
}

impl Grantor {
    /// Leases that match a filter and whose resources `is_visible` selects, in slot order from `from`, at most `limit`. Returns the
    /// slot to continue from, if there is more; that is within the budget, but at least one slot further. Every slot costs the same,
    /// so that neither the length of a page nor its cursor shows what is left out.
    pub(super) fn lease_page(
        &self,
        filter: &LeaseFilter,
        from: u32,
        limit: usize,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
    ) -> (Vec<ListedLease>, Option<u32>) {
        let mut found = Vec::new();
        let next = self.scan_leases(filter, from, budget, is_visible, |slot, budget| {
            found.push(self.listed_lease(slot));
            budget.take(QueryBudget::steps_of_views(0, 1));
            found.len() < limit
        });
        (found, next)
    }

    /// The keys of leases that match a filter and whose resources `is_visible` selects, in slot order from `from`, and the slot to
    /// continue from, if there is more.
    pub(super) fn lease_keys(
        &self,
        filter: &LeaseFilter,
        sort: LeaseSort,
        from: u32,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
    ) -> (Vec<LeaseSortKey>, Option<u32>) {
        let mut found = Vec::new();
        let next = self.scan_leases(filter, from, budget, is_visible, |slot, budget| {
            found.push(self.lease_key(slot, sort));
            if sort == LeaseSort::Name {
                budget.take(NAME_KEY_STEPS);
            }
            true
        });
        (found, next)
    }

    /// The leases with these ids that are still held, match a filter, and whose resources `is_visible` selects, in this order.
    pub(super) fn leases_with_ids(
        &self,
        filter: &LeaseFilter,
        leases: &[LeaseId],
        is_visible: impl Fn(&str) -> bool,
    ) -> Vec<ListedLease> {
        let matcher = self.lease_matcher(filter);
        let live = leases.iter().filter(|id| self.table.live(**id).is_some()).map(|id| id.slot);
        let matching = live.filter(|slot| self.matches(&matcher, *slot, self.table.lease(*slot), &is_visible));
        matching.map(|slot| self.listed_lease(slot)).collect()
    }

    /// Visits the matching leases in slot order until `visit` returns false or the budget is used up.
    fn scan_leases(
        &self,
        filter: &LeaseFilter,
        from: u32,
        budget: &mut QueryBudget,
        is_visible: impl Fn(&str) -> bool,
        mut visit: impl FnMut(u32, &mut QueryBudget) -> bool,
    ) -> Option<u32> {
        let matcher = self.lease_matcher(filter);
        let end = self.table.leases.slot_count();
        let (mut slot, mut more) = (from, true);
        while slot < end && more && (slot == from || budget.left() > 0) {
            if let Some((_, lease)) = self.table.leases.at(slot)
                && self.matches(&matcher, slot, lease, &is_visible)
            {
                more = visit(slot, budget);
            }
            budget.take(SLOT_STEPS);
            slot += 1;
        }
        (slot < end).then_some(slot)
    }

    fn lease_matcher<'a>(&self, filter: &'a LeaseFilter) -> LeaseMatcher<'a> {
        let names = &self.table.resources.names;
        let holder = filter.holder.as_deref().and_then(|name| self.table.actors.find_holder(name, names));
        LeaseMatcher { filter, holder }
    }

    /// Whether a filter matches a lease. What is cheap to read comes first.
    fn matches(
        &self,
        matcher: &LeaseMatcher<'_>,
        slot: u32,
        lease: &StoredLease,
        is_visible: &impl Fn(&str) -> bool,
    ) -> bool {
        let LeaseFilter { prefix, holder, min_age_ms, max_age_ms, stuck, draining } = matcher.filter;
        let age = self.table.time.since(lease.granted());
        let has_age = min_age_ms.is_none_or(|min| age >= min) && max_age_ms.is_none_or(|max| age < max);
        if !has_age || draining.is_some_and(|draining| draining != self.is_draining(slot)) {
            return false;
        }
        if holder.is_some() && Some(self.table.actors[lease.actor].holder) != matcher.holder {
            return false;
        }
        let name = self.table.resources.name(lease.resource);
        covers(prefix, name)
            && is_visible(name)
            && stuck.is_none_or(|stuck| stuck == self.lease_activity(slot, lease).stuck)
    }

    fn is_draining(&self, slot: u32) -> bool {
        self.table.extra(slot).is_some_and(|extra| extra.drain.is_some())
    }

    /// How long ago a lease was renewed and made progress.
    fn lease_activity(&self, slot: u32, lease: &StoredLease) -> LeaseActivity {
        let now = self.table.time;
        let session = self.table.actors[lease.actor].session;
        let renewal = match lease.follows_session() && session != NONE {
            true => &self.table.session(session).renewal,
            false => &lease.renewal,
        };
        let silent_ms = now.since(renewal.renewed(now));
        let is_silent = silent_ms.saturating_mul(2) >= u64::from(renewal.ttl);
        let progress = self.table.extra(slot).and_then(|extra: &LeaseExtra| extra.progress.as_ref());
        let idle = progress.map(|progress| (now.since(progress.renewal.renewed(now)), u64::from(progress.renewal.ttl)));
        let makes_none = idle.is_some_and(|(idle, window)| idle.saturating_mul(2) >= window);
        LeaseActivity { silent_ms, idle_ms: idle.map(|(idle, _)| idle), stuck: is_silent || makes_none }
    }

    fn waiters_of(&self, resource: u32) -> usize {
        self.table.resources.state(resource).map_or(0, |state| state.queue.len())
    }

    fn listed_lease(&self, slot: u32) -> ListedLease {
        let lease = self.table.lease(slot);
        let LeaseActivity { silent_ms, idle_ms, stuck } = self.lease_activity(slot, lease);
        let (age_ms, waiters) = (self.table.time.since(lease.granted()), self.waiters_of(lease.resource));
        ListedLease { lease: self.lease_view(slot), age_ms, silent_ms, idle_ms, stuck, waiters }
    }

    fn lease_key(&self, slot: u32, sort: LeaseSort) -> LeaseSortKey {
        let lease = self.table.lease(slot);
        let (number, name) = match sort {
            LeaseSort::Name => (0, self.table.resources.name(lease.resource)),
            LeaseSort::Age => (self.table.time.since(lease.granted()), ""),
            LeaseSort::Remaining => (self.remaining(slot), ""),
            LeaseSort::LastProgress => {
                let activity = self.lease_activity(slot, lease);
                (activity.idle_ms.unwrap_or(activity.silent_ms), "")
            }
            LeaseSort::Waiters => (self.waiters_of(lease.resource) as u64, ""),
        };
        LeaseSortKey { number, name: name.into(), lease: self.table.lease_id(slot) }
    }
}
