//! What changes nothing: every look is answered from a turn, after authority was confirmed.

use std::convert::Infallible;

use axum::extract::{Path, Query, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::{Stream, StreamExt};
use leasehold_core::refusal::{Refusal, What};
use leasehold_wire::json::{
    CharterEntryBody, DeadlockBody, EndedBody, EventBody, LeaseBody, ProblemBody, ResourceBody, ResourcesBody,
    StatusBody, UsageBody, WaiterBody,
};
use leasehold_wire::{
    deadlock_view, ended, event, lease_view, resource_view, status_view, usage_list, v1, waiter_view,
};
use serde::Deserialize;

use super::told::{Problem, Told, json};
use crate::api::Api;

/// Most resources of one page, and most places looked at for it.
const PAGE: usize = 1_000;
const LOOKED_AT: u32 = 1 << 16;

/// Which resources, and from where on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    from: u32,
    #[serde(default)]
    most: Option<usize>,
}

/// `GET /v1/leases?prefix=&from=&most=`.
pub async fn list(State(api): State<Api>, Query(page): Query<Page>) -> Told<ResourcesBody> {
    let most = page.most.unwrap_or(PAGE).min(PAGE);
    let found = api
        .look(move |grantor| {
            let (found, next) = grantor.list(&page.prefix, page.from, most, LOOKED_AT);
            v1::ResourceList { resources: found.iter().map(resource_view).collect(), next, position: 0 }
        })
        .await?;
    json(found.into())
}

/// `GET /v1/leases/{name}`.
pub async fn show(State(api): State<Api>, Path(name): Path<String>) -> Told<ResourceBody> {
    let seen = api.look(move |grantor| grantor.show(&name).map(|view| resource_view(&view))).await?;
    json(seen.ok_or(Refusal::NotFound(What::Resource))?.into())
}

/// `GET /v1/holders/{holder}`.
pub async fn held_by(State(api): State<Api>, Path(holder): Path<String>) -> Told<Vec<LeaseBody>> {
    let seen = api.look(move |grantor| grantor.held_by(&holder).iter().map(lease_view).collect::<Vec<_>>()).await?;
    json(seen.into_iter().map(Into::into).collect())
}

/// `GET /v1/waiters/{name}`.
pub async fn waiters(State(api): State<Api>, Path(name): Path<String>) -> Told<Vec<WaiterBody>> {
    let seen = api.look(move |grantor| grantor.waiters(&name).iter().map(waiter_view).collect::<Vec<_>>()).await?;
    json(seen.into_iter().map(Into::into).collect())
}

/// `GET /v1/history/{name}`.
pub async fn history(State(api): State<Api>, Path(name): Path<String>) -> Told<Vec<EndedBody>> {
    let seen = api.look(move |grantor| grantor.history(&name, PAGE).iter().map(ended).collect::<Vec<_>>()).await?;
    json(seen.into_iter().map(Into::into).collect())
}

/// `GET /v1/deadlocks`.
pub async fn deadlocks(State(api): State<Api>) -> Told<Vec<DeadlockBody>> {
    let seen = api.look(|grantor| grantor.deadlocks().map(deadlock_view).collect::<Vec<_>>()).await?;
    json(seen.into_iter().map(Into::into).collect())
}

/// `GET /v1/usage`.
pub async fn usage(State(api): State<Api>) -> Told<Vec<UsageBody>> {
    let seen = api
        .look(|grantor| {
            let (all, others) = grantor.usage_of_all();
            usage_list(&all, &others)
        })
        .await?;
    json(seen.holders.into_iter().map(Into::into).collect())
}

/// `GET /v1/status`.
pub async fn status(State(api): State<Api>) -> Told<StatusBody> {
    json(api.look(|grantor| status_view(&grantor.status(), 0)).await?.into())
}

/// `GET /v1/charters`.
pub async fn charters(State(api): State<Api>) -> Told<Vec<CharterEntryBody>> {
    let seen = api
        .look(|grantor| {
            let entry = |(prefix, charter): (&str, &leasehold_core::charter::Charter)| CharterEntryBody {
                prefix: prefix.to_owned(),
                charter: charter.into(),
            };
            grantor.charters().map(entry).collect::<Vec<_>>()
        })
        .await?;
    json(seen)
}

/// Which events.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watched {
    #[serde(default)]
    prefix: String,
}

/// `GET /v1/events?prefix=`: events as they happen.
pub async fn events(
    State(api): State<Api>,
    Query(watched): Query<Watched>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let events = api.watch(watched.prefix).map(|seen| {
        let seen = match seen {
            Ok(seen) => seen,
            Err(missed) => {
                return Ok(Event::default().event("problem").json_data(ProblemBody::from(missed)).unwrap_or_default());
            }
        };
        let body = EventBody::from(event(&seen.event, 0, &seen.resource, &seen.holder));
        let name = body.event.clone();
        Ok(Event::default().event(name).json_data(body).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
