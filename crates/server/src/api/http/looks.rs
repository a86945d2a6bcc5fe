//! What changes nothing, over HTTP.

use std::convert::Infallible;

use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, StreamExt};
use leasehold_core::refusal::Refusal;
use leasehold_wire::json::{
    CharterEntryBody, ClusterBody, DeadlockBody, EndedBody, EventBody, FencesBody, LeaseBody, ProblemBody,
    ResourceBody, ResourcesBody, StatusBody, UsageBody, WaiterBody,
};
use leasehold_wire::{event, read_charter, v1};
use serde::Deserialize;

use super::heard::{Nothing, Question};
use super::told::{At, Problem, Told};
use crate::api::Api;
use crate::api::looks::not_a_name;

/// Which resources, and from where on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
pub struct Page {
    prefix: String,
    from: u32,
    most: u32,
    min_position: u64,
}

/// `GET /v1/leases?prefix=&from=&most=&min_position=`.
pub async fn list(State(api): State<Api>, Question(page): Question<Page>) -> Told<ResourcesBody> {
    let Page { prefix, from, most, min_position } = page;
    At::told(api.list(v1::ListRequest { prefix, from, most, min_position }).await?)
}

/// How new an answer must be.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Least {
    min_position: u64,
}

/// `GET /v1/leases/{name}?min_position=`.
pub async fn show(
    State(api): State<Api>,
    Path(resource): Path<String>,
    Question(Least { min_position }): Question<Least>,
) -> Told<ResourceBody> {
    At::told(api.show(v1::ShowRequest { resource, min_position }).await?)
}

/// `GET /v1/fences/{name}?min_position=`.
pub async fn fences(
    State(api): State<Api>,
    Path(resource): Path<String>,
    Question(Least { min_position }): Question<Least>,
) -> Told<FencesBody> {
    At::told(api.fences(v1::FencesRequest { resource, min_position }).await?)
}

/// Which leases of a holder.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct After {
    after: String,
    most: u32,
}

/// `GET /v1/holders/{holder}?after=TOKEN_NUMBER&most=`.
pub async fn held_by(
    State(api): State<Api>,
    Path(holder): Path<String>,
    Question(After { after, most }): Question<After>,
) -> Told<Vec<LeaseBody>> {
    let after = match after.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| Refusal::Invalid { field: "after", reason: "the last token number told" })?,
    };
    let (seen, position) = api.held_by(v1::HeldByRequest { holder, after, most }).await?;
    Ok(At::all(seen.leases, position))
}

/// Which waiters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct From {
    from: u32,
    most: u32,
}

/// `GET /v1/waiters/{name}?from=&most=`.
pub async fn waiters(
    State(api): State<Api>,
    Path(resource): Path<String>,
    Question(From { from, most }): Question<From>,
) -> Told<Vec<WaiterBody>> {
    let (seen, position) = api.waiters(v1::WaitersRequest { resource, from, most }).await?;
    Ok(At::all(seen.waiters, position))
}

/// How many.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Most {
    most: u32,
}

/// `GET /v1/ends/{name}?most=`: the ends that are remembered in memory.
pub async fn ends(
    State(api): State<Api>,
    Path(resource): Path<String>,
    Question(Most { most }): Question<Most>,
) -> Told<Vec<EndedBody>> {
    let (seen, position) = api.ends(v1::HistoryRequest { resource, most }).await?;
    Ok(At::all(seen.ended, position))
}

/// `GET /v1/deadlocks?most=`.
pub async fn deadlocks(State(api): State<Api>, Question(Most { most }): Question<Most>) -> Told<Vec<DeadlockBody>> {
    let (seen, position) = api.deadlocks(v1::DeadlocksRequest { most }).await?;
    Ok(At::all(seen.deadlocks, position))
}

/// Whose usage.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Whose {
    holder: String,
    after: String,
    most: u32,
}

/// `GET /v1/usage?holder=&after=&most=`.
pub async fn usage(State(api): State<Api>, Question(whose): Question<Whose>) -> Told<Vec<UsageBody>> {
    let Whose { holder, after, most } = whose;
    let (seen, position) = api.usage(v1::UsageRequest { holder, after, most }).await?;
    Ok(At::all(seen.holders, position))
}

/// `GET /v1/status?min_position=`.
pub async fn status(State(api): State<Api>, Question(Least { min_position }): Question<Least>) -> Told<StatusBody> {
    At::told(api.status(min_position).await?)
}

/// `GET /v1/cluster`: every server answers this.
pub async fn cluster(State(api): State<Api>, _: Question<Nothing>) -> Told<ClusterBody> {
    At::told(api.cluster().await)
}

/// Which charters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chartered {
    resource: String,
    after: Option<String>,
    most: u32,
}

/// `GET /v1/charters?resource=&after=&most=`.
pub async fn charters(State(api): State<Api>, Question(which): Question<Chartered>) -> Told<Vec<CharterEntryBody>> {
    let Chartered { resource, after, most } = which;
    let (seen, position) = api.charters(v1::ChartersRequest { resource, after, most }).await?;
    let entry = |entry: v1::CharterEntry| -> Result<CharterEntryBody, Refusal> {
        let charter = read_charter(&entry.charter.unwrap_or_default())?;
        Ok(CharterEntryBody { prefix: entry.prefix, charter: (&charter).into() })
    };
    let charters = seen.charters.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(At::new(charters, position))
}

/// Which events.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watched {
    prefix: String,
}

/// `GET /v1/events?prefix=`: events as they happen, each under the journal position it depends on.
pub async fn events(
    State(api): State<Api>,
    Question(watched): Question<Watched>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let events = api.watch(watched.prefix).map_err(not_a_name)?.map(|seen| {
        let seen = match seen {
            Ok(seen) => seen,
            Err(missed) => {
                return Ok(Event::default().event("problem").json_data(ProblemBody::from(missed)).unwrap_or_default());
            }
        };
        let body = EventBody::from(event(&seen.event, seen.position, &seen.resource, &seen.holder));
        let name = body.event.clone();
        Ok(Event::default().id(seen.position.to_string()).event(name).json_data(body).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
