//! Queries, shared by gRPC and HTTP. The leader answers from a turn, after it has confirmed its authority (E1).

use std::collections::BTreeMap;

use leasehold_core::charter::Charter;
use leasehold_core::grantor::{Query, QueryAnswer, Status, Usage};
use leasehold_core::limits::{QUERY_STEPS, STATE_KEYS};
use leasehold_core::name::{HolderName, Name, NameError, Prefix};
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::secret::SecretDigest;
use leasehold_wire::{
    Code, MAX_LEASES_PER_VIEW, deadlock_view, encode_charter, encode_coverage, encode_handoff_terms, ended_lease,
    lease_bits, lease_id, lease_view, problem, proposal_view, queue_page, resource_view, session_id, state_entries,
    status_view, usage, v1, waiter_view,
};

use super::Api;

/// Most entries of one page.
const MAX_PAGE: usize = 1_000;

/// The result of a query and the journal position it depends on.
pub type QueryResult<T> = Result<(T, u64), v1::Problem>;

/// Entries of a page; zero selects the maximum.
fn page(limit: u32) -> usize {
    if limit == 0 { MAX_PAGE } else { MAX_PAGE.min(limit as usize) }
}

/// Refuses an invalid name. A query would only find nothing, which hides the mistake.
pub fn invalid_name(error: NameError) -> v1::Problem {
    problem(&Refusal::Name(error))
}

/// A holder has more leases than one query may inspect.
fn too_many_leases() -> v1::Problem {
    let max = QUERY_STEPS as u64;
    let message = format!("the holder has about {max} leases or more; list them by prefix instead");
    v1::Problem { limit: "query_steps".into(), max: Some(max), ..v1::Problem::of(Code::ResourceExhausted, message) }
}

impl Api {
    /// A resource with its leases and waiters.
    pub async fn show(&self, request: v1::ShowRequest) -> QueryResult<v1::ResourceView> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        let query = Query::Show { resource: request.resource, leases: MAX_LEASES_PER_VIEW };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Resource(view) => Some(view),
            _ => None,
        };
        let (view, position) = self.query_at("show", request.min_position, query, convert).await?;
        let missing = || problem(&Refusal::NotFound(RefusalSubject::Resource));
        Ok((resource_view(&view.ok_or_else(missing)?), position))
    }

    /// Resources under a prefix.
    pub async fn list(&self, request: v1::ListRequest) -> QueryResult<v1::ResourceList> {
        Prefix::parse(&request.prefix).map_err(invalid_name)?;
        let v1::ListRequest { prefix, cursor, limit, min_position } = request;
        let query = Query::List { prefix, from: cursor, limit: page(limit), leases: MAX_LEASES_PER_VIEW };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Resources(found, next) => Some((found, next)),
            _ => None,
        };
        let ((found, next_cursor), position) = self.query_at("list", min_position, query, convert).await?;
        let resources = found.iter().map(resource_view).collect();
        Ok((v1::ResourceList { resources, next_cursor, position }, position))
    }

    /// Leases of the holders with a name.
    pub async fn held_by(&self, request: v1::HeldByRequest) -> QueryResult<v1::LeaseList> {
        HolderName::parse(&request.holder).map_err(invalid_name)?;
        let query = Query::HeldBy { holder: request.holder, after: request.after, limit: page(request.limit) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Leases(leases) => Some(leases),
            _ => None,
        };
        let (leases, position) = self.query_at("held_by", 0, query, convert).await?;
        let leases = leases.ok_or_else(too_many_leases)?;
        Ok((v1::LeaseList { leases: leases.iter().map(lease_view).collect() }, position))
    }

    /// Leases of a session, for its owner.
    pub async fn session_leases(
        &self,
        request: v1::SessionLeasesRequest,
        secret: Option<SecretDigest>,
    ) -> QueryResult<v1::SessionLeaseList> {
        let v1::SessionLeasesRequest { session, after, limit } = request;
        let (session, after) = (session_id(session), after.map(lease_id));
        let query = Query::SessionLeases { session, secret, after, limit: page(limit) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::SessionLeases(leases, next) => Some((leases, next)),
            _ => None,
        };
        let ((leases, next), position) = self.query_at("session_leases", 0, query, convert).await?;
        let leases = leases.iter().map(lease_view).collect();
        Ok((v1::SessionLeaseList { leases, next: next.map(lease_bits) }, position))
    }

    /// Waiters of a resource.
    pub async fn waiters(&self, request: v1::WaitersRequest) -> QueryResult<v1::WaiterList> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        let v1::WaitersRequest { resource, offset, limit } = request;
        let query = Query::Waiters { resource, from: offset as usize, limit: page(limit) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Waiters(waiters) => Some(waiters),
            _ => None,
        };
        let (waiters, position) = self.query_at("waiters", 0, query, convert).await?;
        Ok((v1::WaiterList { waiters: waiters.iter().map(waiter_view).collect() }, position))
    }

    /// Recent deadlocks, latest last.
    pub async fn deadlocks(&self, request: v1::DeadlocksRequest) -> QueryResult<v1::DeadlockList> {
        let query = Query::Deadlocks { limit: page(request.limit) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Deadlocks(found) => {
                Some(v1::DeadlockList { deadlocks: found.into_iter().map(deadlock_view).collect() })
            }
            _ => None,
        };
        self.query_at("deadlocks", 0, query, convert).await
    }

    /// Proposals that wait for an approval, by number.
    pub async fn proposals(&self) -> QueryResult<v1::ProposalList> {
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Proposals(found) => {
                Some(v1::ProposalList { proposals: found.into_iter().map(proposal_view).collect() })
            }
            _ => None,
        };
        self.query_at("proposals", 0, Query::Proposals, convert).await
    }

    /// Ended leases of a resource that are still in memory, latest first.
    pub async fn ended_leases(&self, request: v1::HistoryRequest) -> QueryResult<v1::EndedLeaseList> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        let query = Query::EndedLeases { resource: request.resource, limit: page(request.limit) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::EndedLeases(ended) => {
                Some(v1::EndedLeaseList { leases: ended.iter().map(ended_lease).collect() })
            }
            _ => None,
        };
        self.query_at("history", 0, query, convert).await
    }

    /// The small state of a resource.
    pub async fn state(&self, request: v1::StateRequest) -> QueryResult<v1::StateList> {
        let v1::StateRequest { resource, after, limit, min_position, key } = request;
        // A resource has few keys, so that one of them is found among all.
        let limit = if key.is_some() { STATE_KEYS } else { page(limit) };
        let query = Query::State { resource, after, limit };
        let convert = move |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::State(mut values) => {
                values.retain(|(found, _)| key.as_deref().is_none_or(|key| *found == key));
                Some(state_entries(values))
            }
            _ => None,
        };
        self.query_at("state", min_position, query, convert).await
    }

    /// A queue, with its dead letters if a limit is given.
    pub async fn queue(&self, request: v1::QueueRequest) -> QueryResult<v1::QueueView> {
        let v1::QueueRequest { queue, after, limit, min_position } = request;
        let query = Query::Queue { queue, after, limit: limit.map_or(0, page) };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Queue(found) => Some(queue_page(found)),
            _ => None,
        };
        self.query_at("queue", min_position, query, convert).await
    }

    /// Usage by holder; holders without a counter of their own come first, together and without a name.
    pub async fn usage(&self, request: v1::UsageRequest) -> QueryResult<v1::UsageList> {
        if !request.holder.is_empty() {
            HolderName::parse(&request.holder).map_err(invalid_name)?;
            let query = Query::Usage { holder: request.holder.clone() };
            let convert = |answer: QueryAnswer<'_>| match answer {
                QueryAnswer::Usage(used) => Some(used),
                _ => None,
            };
            let (used, position) = self.query_at("usage", 0, query, convert).await?;
            let holders = used.iter().map(|used| usage(&request.holder, used)).collect();
            return Ok((v1::UsageList { holders }, position));
        }
        let (is_first, limit) = (request.after.is_empty(), page(request.limit));
        let query = Query::UsagePage { after: request.after, limit };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::UsagePage(counted, others) => Some((counted, others)),
            _ => None,
        };
        let ((counted, others), position) = self.query_at("usage", 0, query, convert).await?;
        let rest = (is_first && others != Usage::default()).then(|| usage("", &others));
        let counted = counted.iter().map(|(holder, used)| usage(holder, used));
        Ok((v1::UsageList { holders: rest.into_iter().chain(counted).take(limit).collect() }, position))
    }

    /// Targets of a resource and holes in their coverage.
    pub async fn coverage(&self, request: v1::CoverageRequest) -> QueryResult<v1::Coverage> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        let query = Query::Coverage { resource: request.resource.clone() };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Coverage(targets) => Some(targets),
            _ => None,
        };
        let (targets, position) = self.query_at("coverage", request.min_position, query, convert).await?;
        Ok((encode_coverage(&request.resource, &targets), position))
    }

    /// Status of the grantor.
    pub async fn status(&self, min_position: u64) -> QueryResult<v1::Status> {
        let (status, position) = self.query_at("status", min_position, Query::Status, status_of).await?;
        Ok((status_view(&status, position), position))
    }

    /// Charters by prefix, or the charter that applies to a resource.
    pub async fn charters(&self, request: v1::ChartersRequest) -> QueryResult<v1::Charters> {
        let v1::ChartersRequest { resource, after, limit } = request;
        let query = if resource.is_empty() {
            Query::Charters { after, limit: page(limit) }
        } else {
            Name::parse(&resource).map_err(invalid_name)?;
            Query::CharterOf { resource }
        };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::Charters(found) => {
                let entry = |(prefix, charter): (&str, &Charter)| v1::CharterEntry {
                    prefix: prefix.into(),
                    charter: Some(encode_charter(charter)),
                };
                Some(v1::Charters { charters: found.into_iter().map(entry).collect() })
            }
            _ => None,
        };
        self.query_at("charters", 0, query, convert).await
    }
}

impl Api {
    /// The terms of handoffs that charters declare for resources.
    pub async fn handoff_terms(&self, resources: Vec<String>) -> QueryResult<BTreeMap<String, v1::HandoffTerms>> {
        let query = Query::ChartersOf { resources: resources.clone() };
        let convert = |answer: QueryAnswer<'_>| match answer {
            QueryAnswer::ChartersOf(found) => {
                let terms = |charter: Option<&Charter>| charter.and_then(|charter| charter.handoff);
                Some(found.into_iter().map(terms).collect::<Vec<_>>())
            }
            _ => None,
        };
        let (found, position) = self.query_at("charters", 0, query, convert).await?;
        let declared = resources.into_iter().zip(found);
        let declared = declared.filter_map(|(resource, terms)| Some((resource, encode_handoff_terms(terms?))));
        Ok((declared.collect(), position))
    }
}

/// The status in the answer to [`Query::Status`].
pub fn status_of(answer: QueryAnswer<'_>) -> Option<Box<Status>> {
    match answer {
        QueryAnswer::Status(status) => Some(status),
        _ => None,
    }
}
