//! Queries: each is one action, checked before anything is read, and filtered by what its caller may see (A4, A5, A7).
//!
//! A name that may not be seen answers like one that does not exist. In a scan it costs as much as a vacant slot, so that pages and
//! cursors do not show it either.

use super::lease_listing::{LeaseFilter, LeaseSort, LeaseSortKey, ListedLease};
use super::query_budget::QueryBudget;
use super::{
    ContendedResourceView, Deadlock, EndedLease, Grantor, LeaseView, ProposalView, ResourceView, Status, Usage,
    WaiterView,
};
use crate::access::{Action, Caller, ReadScope};
use crate::charter::Charter;
use crate::coverage::TargetView;
use crate::ids::{LeaseId, SessionId};
use crate::lease::EndReason;
use crate::mutants::{self, Mutant};
use crate::payload::delivery::{MessageView, QueueCounts};
use crate::payload::state::StateValue;
use crate::refusal::{Refusal, RefusalSubject};
use crate::secret::SecretDigest;
use crate::time::GrantorTime;

/// A query of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A resource with its first leases.
    Show {
        /// The resource.
        resource: String,
        /// Most leases in the view.
        leases: usize,
    },
    /// Resources under a prefix.
    List {
        /// The prefix, in whole segments.
        prefix: String,
        /// The slot to continue from.
        from: u32,
        /// Most resources of the page.
        limit: usize,
        /// Most leases in the view of a resource.
        leases: usize,
    },
    /// Held leases that match a filter, in slot order.
    Leases {
        /// The filter.
        filter: LeaseFilter,
        /// The slot to continue from.
        from: u32,
        /// Most leases of the page.
        limit: usize,
    },
    /// Keys of held leases that match a filter, for a sorted listing.
    LeaseKeys {
        /// The filter.
        filter: LeaseFilter,
        /// What the listing is sorted by.
        sort: LeaseSort,
        /// The slot to continue from.
        from: u32,
    },
    /// A page of a sorted listing: those of these leases that are still held and match a filter.
    LeasesWithIds {
        /// The filter.
        filter: LeaseFilter,
        /// The leases; so few that their views are within the budget.
        leases: Vec<LeaseId>,
    },
    /// Leases of the holders with a name.
    HeldBy {
        /// The name.
        holder: String,
        /// Only leases with a higher token number.
        after: u64,
        /// Most leases of the page.
        limit: usize,
    },
    /// Leases of one session, for its owner (A6).
    SessionLeases {
        /// The session.
        session: SessionId,
        /// The digest of the secret that the caller presents.
        secret: Option<SecretDigest>,
        /// Only leases with a higher id.
        after: Option<LeaseId>,
        /// Most leases of the page.
        limit: usize,
    },
    /// Waiters of a resource.
    Waiters {
        /// The resource.
        resource: String,
        /// The position to continue from.
        from: usize,
        /// Most waiters of the page.
        limit: usize,
    },
    /// Resources with waiters, with their first leases and waiters.
    ContendedResources {
        /// The slot to continue from.
        from: u32,
        /// Most resources of the page.
        limit: usize,
        /// Most leases of each resource.
        leases: usize,
        /// Most waiters of each resource.
        waiters: usize,
    },
    /// The latest deadlocks.
    Deadlocks {
        /// Most deadlocks.
        limit: usize,
    },
    /// Ended leases of a resource that are still in memory.
    EndedLeases {
        /// The resource.
        resource: String,
        /// Most leases.
        limit: usize,
    },
    /// State stored under the leases of a resource.
    State {
        /// The resource.
        resource: String,
        /// Only later keys.
        after: String,
        /// Most keys.
        limit: usize,
    },
    /// Counters of a queue, with its dead letters.
    Queue {
        /// The queue.
        queue: String,
        /// Only dead letters with a higher id.
        after: u64,
        /// Most dead letters.
        limit: usize,
    },
    /// Usage of one holder.
    Usage {
        /// The holder.
        holder: String,
    },
    /// Usage by holder.
    UsagePage {
        /// Only later names.
        after: String,
        /// Most holders.
        limit: usize,
    },
    /// Targets of a resource.
    Coverage {
        /// The resource.
        resource: String,
    },
    /// Charters by prefix.
    Charters {
        /// Only later prefixes.
        after: Option<String>,
        /// Most charters.
        limit: usize,
    },
    /// The charter that applies to a resource.
    CharterOf {
        /// The resource.
        resource: String,
    },
    /// The charters that apply to resources.
    ChartersOf {
        /// The resources; so few that their lookups are within the budget.
        resources: Vec<String>,
    },
    /// Proposals that wait for an approval.
    Proposals,
    /// Status and counts.
    Status,
    /// Everything that metrics are read from.
    Metrics,
}

/// The answer to a query.
pub enum QueryAnswer<'a> {
    /// To [`Query::Show`]; none if there is no such resource, or if it may not be seen.
    Resource(Option<ResourceView>),
    /// To [`Query::List`], with the slot to continue from.
    Resources(Vec<ResourceView>, Option<u32>),
    /// To [`Query::Leases`], with the slot to continue from, and to [`Query::LeasesWithIds`].
    ListedLeases(Vec<ListedLease>, Option<u32>),
    /// To [`Query::LeaseKeys`], with the slot to continue from.
    LeaseKeys(Vec<LeaseSortKey>, Option<u32>),
    /// To [`Query::HeldBy`]; none if the holder has more leases than one query may inspect.
    Leases(Option<Vec<LeaseView>>),
    /// To [`Query::SessionLeases`], by id, and the last id of the page if there are more.
    SessionLeases(Vec<LeaseView>, Option<LeaseId>),
    /// To [`Query::Waiters`].
    Waiters(Vec<WaiterView>),
    /// To [`Query::ContendedResources`], with the slot to continue from.
    ContendedResources(Vec<ContendedResourceView>, Option<u32>),
    /// To [`Query::Deadlocks`], latest last.
    Deadlocks(Vec<&'a Deadlock>),
    /// To [`Query::EndedLeases`], latest first.
    EndedLeases(Vec<EndedLease>),
    /// To [`Query::State`]: keys and values.
    State(Vec<(&'a str, &'a StateValue)>),
    /// To [`Query::Queue`].
    Queue(QueuePage<'a>),
    /// To [`Query::Usage`].
    Usage(Option<Usage>),
    /// To [`Query::UsagePage`], and the usage of all holders that are not counted by name.
    UsagePage(Vec<(String, Usage)>, Usage),
    /// To [`Query::Coverage`].
    Coverage(Vec<TargetView>),
    /// To [`Query::Charters`] and [`Query::CharterOf`]: prefixes and charters.
    Charters(Vec<(&'a str, &'a Charter)>),
    /// To [`Query::ChartersOf`], in its order; none where no charter applies or may be seen.
    ChartersOf(Vec<Option<&'a Charter>>),
    /// To [`Query::Proposals`], by number.
    Proposals(Vec<ProposalView>),
    /// To [`Query::Status`].
    Status(Box<Status>),
    /// To [`Query::Metrics`]: the caller may read everything.
    Everything(&'a Grantor),
}

/// The counters of a queue and a page of its dead letters.
#[derive(Clone, Debug, Default)]
pub struct QueuePage<'a> {
    /// Grantor time.
    pub now: GrantorTime,
    /// Number of messages by state.
    pub counts: QueueCounts,
    /// When the next message can be received.
    pub next: Option<GrantorTime>,
    /// The dead letters.
    pub dead_letters: Vec<MessageView<'a>>,
}

/// The outcome of a query.
pub enum QueryOutcome<'a> {
    /// The answer.
    Answered(QueryAnswer<'a>),
    /// The query is about a name that may not be seen: the answer about a name that does not exist.
    Hidden(QueryAnswer<'a>),
    /// The caller may not make this query at all, or its session is not live.
    Denied(Refusal),
}

impl Query {
    /// The action that a caller needs to be allowed.
    pub const fn action(&self) -> Action {
        match self {
            Self::Show { .. } => Action::Show,
            Self::List { .. } | Self::Leases { .. } | Self::LeaseKeys { .. } | Self::LeasesWithIds { .. } => {
                Action::List
            }
            Self::HeldBy { .. } => Action::HeldBy,
            Self::SessionLeases { .. } => Action::ListSession,
            Self::Waiters { .. } | Self::ContendedResources { .. } => Action::Waiters,
            Self::Deadlocks { .. } => Action::Deadlocks,
            Self::EndedLeases { .. } => Action::EndedLeases,
            Self::State { .. } => Action::State,
            Self::Queue { .. } => Action::Queue,
            Self::Usage { .. } | Self::UsagePage { .. } => Action::Usage,
            Self::Coverage { .. } => Action::Coverage,
            Self::Charters { .. } | Self::CharterOf { .. } | Self::ChartersOf { .. } => Action::Charters,
            Self::Proposals => Action::Proposals,
            Self::Status => Action::Status,
            Self::Metrics => Action::Metrics,
        }
    }

    /// The one name that the query is about, if there is one.
    fn subject(&self) -> Option<&str> {
        match self {
            Self::Show { resource, .. }
            | Self::Waiters { resource, .. }
            | Self::EndedLeases { resource, .. }
            | Self::State { resource, .. }
            | Self::Coverage { resource }
            | Self::CharterOf { resource } => Some(resource),
            Self::Queue { queue, .. } => Some(queue),
            Self::List { .. }
            | Self::Leases { .. }
            | Self::LeaseKeys { .. }
            | Self::LeasesWithIds { .. }
            | Self::HeldBy { .. }
            | Self::SessionLeases { .. }
            | Self::ContendedResources { .. }
            | Self::Deadlocks { .. }
            | Self::Usage { .. }
            | Self::UsagePage { .. }
            | Self::Charters { .. }
            | Self::ChartersOf { .. }
            | Self::Proposals
            | Self::Status
            | Self::Metrics => None,
        }
    }

    /// The answer about a name that does not exist.
    fn unknown(&self, now: GrantorTime) -> QueryAnswer<'static> {
        match self {
            Self::Show { .. } => QueryAnswer::Resource(None),
            Self::Waiters { .. } => QueryAnswer::Waiters(Vec::new()),
            Self::EndedLeases { .. } => QueryAnswer::EndedLeases(Vec::new()),
            Self::State { .. } => QueryAnswer::State(Vec::new()),
            Self::Queue { .. } => QueryAnswer::Queue(QueuePage { now, ..QueuePage::default() }),
            Self::Coverage { .. } => QueryAnswer::Coverage(Vec::new()),
            Self::CharterOf { .. } => QueryAnswer::Charters(Vec::new()),
            Self::List { .. }
            | Self::Leases { .. }
            | Self::LeaseKeys { .. }
            | Self::LeasesWithIds { .. }
            | Self::HeldBy { .. }
            | Self::SessionLeases { .. }
            | Self::ContendedResources { .. }
            | Self::Deadlocks { .. }
            | Self::Usage { .. }
            | Self::UsagePage { .. }
            | Self::Charters { .. }
            | Self::ChartersOf { .. }
            | Self::Proposals
            | Self::Status
            | Self::Metrics => unreachable!("the query is not about one name"),
        }
    }
}

impl Grantor {
    /// Answers a query for a caller.
    pub fn query<'a>(&'a self, caller: &Caller<'_>, query: &Query) -> QueryOutcome<'a> {
        if let Query::SessionLeases { session, secret, after, limit } = query {
            let checked = self.authorize_session(caller, query.action(), *session, *secret);
            let page = checked.and_then(|()| self.session_leases(*session, *after, *limit));
            return page.map_or_else(QueryOutcome::Denied, |(leases, next)| {
                QueryOutcome::Answered(QueryAnswer::SessionLeases(leases, next))
            });
        }
        let scope = match ReadScope::of(caller, query.action()) {
            Ok(scope) => scope,
            Err(refusal) => return QueryOutcome::Denied(refusal),
        };
        if query.subject().is_some_and(|name| !scope.covers(name)) {
            return QueryOutcome::Hidden(query.unknown(self.table.time));
        }
        QueryOutcome::Answered(self.read(query, &scope))
    }

    /// Leases of a live session above an id, by id, and the last id of the page if there are more.
    fn session_leases(
        &self,
        id: SessionId,
        after: Option<LeaseId>,
        limit: usize,
    ) -> Result<(Vec<LeaseView>, Option<LeaseId>), Refusal> {
        let sessions = &self.table.sessions;
        if sessions.live(id.slot, id.reuse).is_none() {
            let ended = sessions.tombstone(id.slot, id.reuse).is_some();
            let absent = Refusal::NotFound(RefusalSubject::Session);
            return Err(if ended { Refusal::Lost(EndReason::Session) } else { absent });
        }
        let ids = self.table.session_leases(id.slot).into_iter().map(|slot| self.table.lease_id(slot));
        let mut later = ids.filter(|lease| after.is_none_or(|after| *lease > after));
        let page: Vec<_> = later.by_ref().take(limit).collect();
        let next = page.last().copied().filter(|_| later.next().is_some());
        Ok((page.into_iter().filter_map(|lease| self.lease(lease)).collect(), next))
    }

    /// Reads what a scope covers.
    fn read(&self, query: &Query, scope: &ReadScope<'_>) -> QueryAnswer<'_> {
        let budget = &mut QueryBudget::default();
        match query {
            Query::Show { resource, leases } => QueryAnswer::Resource(self.show_first(resource, *leases, budget)),
            Query::List { prefix, from, limit, leases } => {
                let (found, next) = self.list_where(prefix, *from, *limit, *leases, budget, |name| scope.covers(name));
                QueryAnswer::Resources(found, next)
            }
            Query::Leases { filter, from, limit } => {
                let (found, next) = self.lease_page(filter, *from, *limit, budget, |name| scope.covers(name));
                QueryAnswer::ListedLeases(found, next)
            }
            Query::LeaseKeys { filter, sort, from } => {
                let (found, next) = self.lease_keys(filter, *sort, *from, budget, |name| scope.covers(name));
                QueryAnswer::LeaseKeys(found, next)
            }
            Query::LeasesWithIds { filter, leases } => {
                QueryAnswer::ListedLeases(self.leases_with_ids(filter, leases, |name| scope.covers(name)), None)
            }
            Query::HeldBy { holder, after, limit } => {
                QueryAnswer::Leases(self.held_where(holder, *after, *limit, budget, |name| scope.covers(name)))
            }
            Query::SessionLeases { .. } => unreachable!("answered before, because it needs a proof"),
            Query::Waiters { resource, from, limit } => {
                QueryAnswer::Waiters(self.waiters_page(resource, *from, *limit))
            }
            Query::ContendedResources { from, limit, leases, waiters } => {
                let (found, next) =
                    self.contended_page(*from, *limit, *leases, *waiters, budget, |name| scope.covers(name));
                QueryAnswer::ContendedResources(found, next)
            }
            Query::Deadlocks { limit } => {
                let mut seen: Vec<_> = self.deadlocks().filter(|deadlock| sees_deadlock(scope, deadlock)).collect();
                seen.drain(..seen.len().saturating_sub(*limit));
                QueryAnswer::Deadlocks(seen)
            }
            Query::EndedLeases { resource, limit } => QueryAnswer::EndedLeases(self.history(resource, *limit)),
            Query::State { resource, after, limit } => {
                let later = self.state().list(resource).filter(|(key, _)| *key > after.as_str());
                QueryAnswer::State(later.take(*limit).collect())
            }
            Query::Queue { queue, after, limit } => {
                let (now, queues) = (self.table.time, self.queues());
                QueryAnswer::Queue(QueuePage {
                    now,
                    counts: queues.counts(queue, now).unwrap_or_default(),
                    next: queues.available_from(queue),
                    dead_letters: queues.dead_letters(queue, *after, *limit),
                })
            }
            Query::Usage { holder } => QueryAnswer::Usage(self.usage(holder)),
            Query::UsagePage { after, limit } => {
                let (counted, others) = self.usage_page(after, *limit);
                QueryAnswer::UsagePage(counted, others)
            }
            Query::Coverage { resource } => QueryAnswer::Coverage(self.targets(resource)),
            Query::Charters { after, limit } => {
                let later = |prefix: &str| after.as_deref().is_none_or(|after| prefix > after);
                let seen = self.charters().filter(|(prefix, _)| later(prefix) && scope.covers(prefix));
                QueryAnswer::Charters(seen.take(*limit).collect())
            }
            Query::CharterOf { resource } => QueryAnswer::Charters(self.charter_of(resource).into_iter().collect()),
            Query::ChartersOf { resources } => {
                let charter = |name: &String| self.charter_of(name).filter(|_| scope.covers(name));
                QueryAnswer::ChartersOf(
                    resources.iter().map(|name| charter(name).map(|(_, charter)| charter)).collect(),
                )
            }
            Query::Proposals => {
                QueryAnswer::Proposals(self.proposals().filter(|proposal| scope.covers(&proposal.resource)).collect())
            }
            Query::Status => QueryAnswer::Status(Box::new(self.status())),
            Query::Metrics => QueryAnswer::Everything(self),
        }
    }
}

/// Removes from a refusal what its caller may not see: members of a deadlock that wait for hidden names.
pub fn hide_names(caller: &Caller<'_>, refusal: &mut Refusal) {
    let Refusal::Deadlock(cycle) = refusal else { return };
    let before = cycle.members.len();
    cycle.members.retain(|member| caller.rights.sees(&member.waits_for) || mutants::on(Mutant::CycleRevealsNames));
    if cycle.members.len() < before {
        // The length of the whole cycle would show how many are left out.
        cycle.length = cycle.members.len() as u64;
    }
}

/// Whether a deadlock may be seen: only as a whole, because its length and its members' names show the rest.
fn sees_deadlock(scope: &ReadScope<'_>, deadlock: &Deadlock) -> bool {
    let cycle = &deadlock.cycle;
    let is_complete = cycle.length == cycle.members.len() as u64;
    scope.covers_all() || (is_complete && cycle.members.iter().all(|member| scope.covers(&member.waits_for)))
}
