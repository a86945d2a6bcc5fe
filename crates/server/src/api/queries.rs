//! Queries, shared by gRPC and HTTP. The leader answers from a turn, after it has confirmed its authority (E1).

use leasehold_core::charter::Charter;
use leasehold_core::grantor::{Grantor, QueryBudget, Usage};
use leasehold_core::limits::QUERY_STEPS;
use leasehold_core::name::{HolderName, Name, NameError, Prefix};
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_wire::{
    Code, MAX_LEASES_PER_VIEW, deadlock_view, encode_charter, encode_coverage, ended_lease, lease_view, problem,
    queue_view, resource_view, state_list, status_view, usage, v1, waiter_view,
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
        let name = request.resource;
        let query = self.query_at("show", request.min_position, move |grantor| {
            grantor.show_first(&name, MAX_LEASES_PER_VIEW, &mut QueryBudget::default())
        });
        let (view, position) = query.await?;
        let missing = || problem(&Refusal::NotFound(RefusalSubject::Resource));
        Ok((resource_view(&view.ok_or_else(missing)?), position))
    }

    /// Resources under a prefix.
    pub async fn list(&self, request: v1::ListRequest) -> QueryResult<v1::ResourceList> {
        Prefix::parse(&request.prefix).map_err(invalid_name)?;
        let query = move |grantor: &Grantor| {
            let (limit, budget) = (page(request.limit), &mut QueryBudget::default());
            grantor.list(&request.prefix, request.cursor, limit, MAX_LEASES_PER_VIEW, budget)
        };
        let ((found, next_cursor), position) = self.query_at("list", request.min_position, query).await?;
        let resources = found.iter().map(resource_view).collect();
        Ok((v1::ResourceList { resources, next_cursor, position }, position))
    }

    /// Leases of the holders with a name.
    pub async fn held_by(&self, request: v1::HeldByRequest) -> QueryResult<v1::LeaseList> {
        HolderName::parse(&request.holder).map_err(invalid_name)?;
        let query = move |grantor: &Grantor| {
            grantor.held_page(&request.holder, request.after, page(request.limit), &mut QueryBudget::default())
        };
        let (leases, position) = self.query_at("held_by", 0, query).await?;
        let leases = leases.ok_or_else(too_many_leases)?;
        Ok((v1::LeaseList { leases: leases.iter().map(lease_view).collect() }, position))
    }

    /// Waiters of a resource.
    pub async fn waiters(&self, request: v1::WaitersRequest) -> QueryResult<v1::WaiterList> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        let query = move |grantor: &Grantor| {
            grantor.waiters_page(&request.resource, request.offset as usize, page(request.limit))
        };
        let (waiters, position) = self.query_at("waiters", 0, query).await?;
        Ok((v1::WaiterList { waiters: waiters.iter().map(waiter_view).collect() }, position))
    }

    /// Recent deadlocks, latest last.
    pub async fn deadlocks(&self, request: v1::DeadlocksRequest) -> QueryResult<v1::DeadlockList> {
        self.query_at("deadlocks", 0, move |grantor| {
            let mut deadlocks: Vec<_> = grantor.deadlocks().map(deadlock_view).collect();
            deadlocks.drain(..deadlocks.len().saturating_sub(page(request.limit)));
            v1::DeadlockList { deadlocks }
        })
        .await
    }

    /// Ended leases of a resource that are still in memory, latest first.
    pub async fn ended_leases(&self, request: v1::HistoryRequest) -> QueryResult<v1::EndedLeaseList> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        self.query_at("history", 0, move |grantor| v1::EndedLeaseList {
            leases: grantor.history(&request.resource, page(request.limit)).iter().map(ended_lease).collect(),
        })
        .await
    }

    /// The small state of a resource.
    pub async fn state(&self, request: v1::StateRequest) -> QueryResult<v1::StateList> {
        self.query_at("state", request.min_position, move |grantor| {
            state_list(grantor.state(), &request.resource, &request.after, page(request.limit))
        })
        .await
    }

    /// A queue, with its dead letters if a limit is given.
    pub async fn queue(&self, request: v1::QueueRequest) -> QueryResult<v1::QueueView> {
        self.query_at("queue", request.min_position, move |grantor| {
            let (now, limit) = (grantor.status().time, request.limit.map_or(0, page));
            queue_view(grantor.queues(), now, &request.queue, request.after, limit)
        })
        .await
    }

    /// Usage by holder; holders without a counter of their own come first, together and without a name.
    pub async fn usage(&self, request: v1::UsageRequest) -> QueryResult<v1::UsageList> {
        if !request.holder.is_empty() {
            HolderName::parse(&request.holder).map_err(invalid_name)?;
        }
        if !request.holder.is_empty() {
            let holder = request.holder.clone();
            let (used, position) = self.query_at("usage", 0, move |grantor| grantor.usage(&holder)).await?;
            let holders = used.iter().map(|used| usage(&request.holder, used)).collect();
            return Ok((v1::UsageList { holders }, position));
        }
        let (is_first, limit) = (request.after.is_empty(), page(request.limit));
        let query = move |grantor: &Grantor| grantor.usage_page(&request.after, limit);
        let ((counted, others), position) = self.query_at("usage", 0, query).await?;
        let rest = (is_first && others != Usage::default()).then(|| usage("", &others));
        let counted = counted.iter().map(|(holder, used)| usage(holder, used));
        Ok((v1::UsageList { holders: rest.into_iter().chain(counted).take(limit).collect() }, position))
    }

    /// Targets of a resource and holes in their coverage.
    pub async fn coverage(&self, request: v1::CoverageRequest) -> QueryResult<v1::Coverage> {
        Name::parse(&request.resource).map_err(invalid_name)?;
        self.query_at("coverage", request.min_position, move |grantor| {
            encode_coverage(&request.resource, &grantor.targets(&request.resource))
        })
        .await
    }

    /// Status of the grantor.
    pub async fn status(&self, min_position: u64) -> QueryResult<v1::Status> {
        let (status, position) = self.query_at("status", min_position, |grantor| grantor.status()).await?;
        Ok((status_view(&status, position), position))
    }

    /// Charters by prefix, or the charter that applies to a resource.
    pub async fn charters(&self, request: v1::ChartersRequest) -> QueryResult<v1::Charters> {
        if !request.resource.is_empty() {
            Name::parse(&request.resource).map_err(invalid_name)?;
        }
        self.query_at("charters", 0, move |grantor| {
            let entry = |(prefix, found): (&str, &Charter)| v1::CharterEntry {
                prefix: prefix.into(),
                charter: Some(encode_charter(found)),
            };
            if !request.resource.is_empty() {
                return v1::Charters {
                    charters: grantor.charter_of(&request.resource).into_iter().map(entry).collect(),
                };
            }
            let later =
                grantor.charters().filter(|(prefix, _)| request.after.as_deref().is_none_or(|after| *prefix > after));
            v1::Charters { charters: later.take(page(request.limit)).map(entry).collect() }
        })
        .await
    }
}
