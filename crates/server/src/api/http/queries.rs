//! HTTP endpoints of queries.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use leasehold_core::grantor::LeaseSort;
use leasehold_core::refusal::Refusal;
use leasehold_wire::duration::HumanDuration;
use leasehold_wire::json::{
    CharterEntryBody, ClusterBody, CoverageBody, DeadlockBody, EndedLeaseBody, EventBody, LeaseBody, ListedLeasesBody,
    ProblemBody, ProposalBody, ResourceBody, ResourcesBody, SealKeySetBody, StateBody, StatusBody, UsageBody,
    WaiterBody,
};
use leasehold_wire::{Code, decode_charter, v1};
use serde::Deserialize;

use super::extract::{NoQuery, PathName, StrictQuery};
use super::respond::{HttpResult, WithPosition, heartbeat};
use super::verbs::LeaseVerb;
use crate::api::Api;
use crate::transport::HttpProblem;
use crate::transport::error_layer::{invalid, method_not_allowed};

/// Parameters of a list of resources.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    prefix: String,
    cursor: u32,
    limit: u32,
    min_position: u64,
}

/// `GET /v1/leases?prefix=&cursor=&limit=&min_position=`.
pub async fn list(State(api): State<Api>, StrictQuery(query): StrictQuery<ListQuery>) -> HttpResult<ResourcesBody> {
    let ListQuery { prefix, cursor, limit, min_position } = query;
    WithPosition::from_query(api.list(v1::ListRequest { prefix, cursor, limit, min_position }).await?)
}

/// Parameters of a list of held leases.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListLeasesQuery {
    prefix: String,
    holder: Option<String>,
    older_than: String,
    younger_than: String,
    stuck: Option<bool>,
    state: String,
    sort: String,
    order: String,
    cursor: String,
    limit: u32,
    min_position: u64,
}

impl ListLeasesQuery {
    fn into_request(self) -> Result<v1::ListLeasesRequest, HttpProblem> {
        let duration = |field, text: &str| match text {
            "" => Ok(None),
            text => match text.parse::<HumanDuration>() {
                Ok(duration) => Ok(Some(duration.millis())),
                Err(error) => Err(HttpProblem::from(invalid(field, &error.to_string()))),
            },
        };
        let state = match self.state.as_str() {
            "" => v1::ListedState::Unspecified,
            "active" => v1::ListedState::Active,
            "draining" => v1::ListedState::Draining,
            _ => return Err(invalid("state", "active or draining").into()),
        };
        let sort = match self.sort.as_str() {
            "" => v1::LeaseSort::Unspecified,
            word => LeaseSort::from_word(word)
                .map(Into::into)
                .ok_or_else(|| invalid("sort", "name, age, remaining, last_progress or waiters"))?,
        };
        let descending = match self.order.as_str() {
            "" | "asc" => false,
            "desc" => true,
            _ => return Err(invalid("order", "asc or desc").into()),
        };
        Ok(v1::ListLeasesRequest {
            older_than_ms: duration("older_than", &self.older_than)?,
            younger_than_ms: duration("younger_than", &self.younger_than)?,
            prefix: self.prefix,
            holder: self.holder,
            stuck: self.stuck,
            state: state.into(),
            sort: sort.into(),
            descending,
            cursor: self.cursor,
            limit: self.limit,
            min_position: self.min_position,
        })
    }
}

/// `GET /v1/held-leases?prefix=&holder=&older_than=&younger_than=&stuck=&state=&sort=&order=&cursor=&limit=&min_position=`.
pub async fn list_leases(
    State(api): State<Api>,
    StrictQuery(query): StrictQuery<ListLeasesQuery>,
) -> HttpResult<ListedLeasesBody> {
    WithPosition::from_query(api.list_leases(query.into_request()?).await?)
}

/// The lowest journal position that the answer may depend on.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MinPositionQuery {
    min_position: u64,
}

/// `GET /v1/leases/{name}?min_position=`.
pub async fn show(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(MinPositionQuery { min_position }): StrictQuery<MinPositionQuery>,
) -> Result<WithPosition<ResourceBody>, Response> {
    let is_command = resource.rsplit_once(':').is_some_and(|(_, word)| LeaseVerb::from_word(word).is_some());
    match api.show(v1::ShowRequest { resource, min_position }).await {
        Ok(shown) => Ok(WithPosition::of(shown)),
        // A name may end like a command. One that does not exist is a command with the wrong method.
        Err(problem) if is_command && problem.known_code() == Some(Code::NotFound) => {
            let mut response = HttpProblem::from(method_not_allowed("GET", "POST")).into_response();
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            Err(response)
        }
        Err(problem) => Err(HttpProblem::from(problem).into_response()),
    }
}

/// `GET /v1/coverage/{name}?min_position=`.
pub async fn coverage(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(MinPositionQuery { min_position }): StrictQuery<MinPositionQuery>,
) -> HttpResult<CoverageBody> {
    WithPosition::from_query(api.coverage(v1::CoverageRequest { resource, min_position }).await?)
}

/// Parameters of a list of leases of a holder.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeldByQuery {
    after: String,
    limit: u32,
}

/// `GET /v1/holders/{holder}?after=TOKEN_NUMBER&limit=`.
pub async fn held_by(
    State(api): State<Api>,
    PathName(holder): PathName,
    StrictQuery(HeldByQuery { after, limit }): StrictQuery<HeldByQuery>,
) -> HttpResult<Vec<LeaseBody>> {
    let after = match after.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| Refusal::Invalid {
            field: "after",
            reason: "a token number, the last one of the previous page",
        })?,
    };
    let (list, position) = api.held_by(v1::HeldByRequest { holder, after, limit }).await?;
    Ok(WithPosition::list(list.leases, position))
}

/// Parameters of a list of waiters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitersQuery {
    offset: u32,
    limit: u32,
}

/// `GET /v1/waiters/{name}?offset=&limit=`.
pub async fn waiters(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(WaitersQuery { offset, limit }): StrictQuery<WaitersQuery>,
) -> HttpResult<Vec<WaiterBody>> {
    let (list, position) = api.waiters(v1::WaitersRequest { resource, offset, limit }).await?;
    Ok(WithPosition::list(list.waiters, position))
}

/// Parameters of a list of small state.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateQuery {
    key: Option<String>,
    after: String,
    limit: u32,
    min_position: u64,
}

/// `GET /v1/state/{name}?key=&after=&limit=&min_position=`.
pub async fn state(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(query): StrictQuery<StateQuery>,
) -> HttpResult<StateBody> {
    let StateQuery { key, after, limit, min_position } = query;
    WithPosition::from_query(api.state(v1::StateRequest { resource, after, limit, min_position, key }).await?)
}

/// The limit of a list.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitQuery {
    limit: u32,
}

/// `GET /v1/ended-leases/{name}?limit=`: ended leases that are still in memory.
pub async fn ended_leases(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(LimitQuery { limit }): StrictQuery<LimitQuery>,
) -> HttpResult<Vec<EndedLeaseBody>> {
    let (list, position) = api.ended_leases(v1::HistoryRequest { resource, limit }).await?;
    Ok(WithPosition::list(list.leases, position))
}

/// `GET /v1/deadlocks?limit=`.
pub async fn deadlocks(
    State(api): State<Api>,
    StrictQuery(LimitQuery { limit }): StrictQuery<LimitQuery>,
) -> HttpResult<Vec<DeadlockBody>> {
    let (list, position) = api.deadlocks(v1::DeadlocksRequest { limit }).await?;
    Ok(WithPosition::list(list.deadlocks, position))
}

/// `GET /v1/proposals`.
pub async fn proposals(State(api): State<Api>, _: StrictQuery<NoQuery>) -> HttpResult<Vec<ProposalBody>> {
    let (list, position) = api.proposals().await?;
    Ok(WithPosition::list(list.proposals, position))
}

/// Parameters of a list of usage.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuery {
    holder: String,
    after: String,
    limit: u32,
}

/// `GET /v1/usage?holder=&after=&limit=`.
pub async fn usage(State(api): State<Api>, StrictQuery(query): StrictQuery<UsageQuery>) -> HttpResult<Vec<UsageBody>> {
    let UsageQuery { holder, after, limit } = query;
    let (list, position) = api.usage(v1::UsageRequest { holder, after, limit }).await?;
    Ok(WithPosition::list(list.holders, position))
}

/// `GET /v1/status?min_position=`.
pub async fn status(
    State(api): State<Api>,
    StrictQuery(MinPositionQuery { min_position }): StrictQuery<MinPositionQuery>,
) -> HttpResult<StatusBody> {
    WithPosition::from_query(api.status(min_position).await?)
}

/// `GET /v1/keys`: every server answers this.
pub async fn keys(State(api): State<Api>, _: StrictQuery<NoQuery>) -> HttpResult<SealKeySetBody> {
    WithPosition::from_query(api.seal_keys().map_err(HttpProblem)?)
}

/// `GET /v1/cluster`: every server answers this.
pub async fn cluster(State(api): State<Api>, _: StrictQuery<NoQuery>) -> HttpResult<ClusterBody> {
    WithPosition::from_query(api.cluster().await?)
}

/// Parameters of a list of charters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChartersQuery {
    resource: String,
    after: Option<String>,
    limit: u32,
}

/// `GET /v1/charters?resource=&after=&limit=`.
pub async fn charters(
    State(api): State<Api>,
    StrictQuery(query): StrictQuery<ChartersQuery>,
) -> HttpResult<Vec<CharterEntryBody>> {
    let ChartersQuery { resource, after, limit } = query;
    let (list, position) = api.charters(v1::ChartersRequest { resource, after, limit }).await?;
    let entry = |entry: v1::CharterEntry| -> Result<CharterEntryBody, Refusal> {
        let charter = decode_charter(&entry.charter.unwrap_or_default())?;
        Ok(CharterEntryBody { prefix: entry.prefix, charter: (&charter).into() })
    };
    let charters = list.charters.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(WithPosition::new(charters, position))
}

/// Parameters of a watch.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchQuery {
    prefix: String,
}

/// `GET /v1/events?prefix=`: server-sent events, each with the journal position it depends on as its id.
pub async fn events(
    State(api): State<Api>,
    StrictQuery(query): StrictQuery<WatchQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, HttpProblem> {
    let events = api.watch(query.prefix).map_err(HttpProblem)?.map(|watched| {
        let watched = match watched {
            Ok(watched) => watched,
            Err(problem) => {
                return Ok(Event::default().event("problem").json_data(ProblemBody::from(problem)).unwrap_or_default());
            }
        };
        let body = EventBody::from(watched.encode());
        let name = body.event.clone();
        Ok(Event::default().id(watched.position.to_string()).event(name).json_data(body).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(heartbeat()))
}
