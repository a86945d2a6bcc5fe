//! `GET /ui/waits`: which holders wait for which, and past deadlocks.

use axum::extract::State;
use leasehold_core::grantor::{ContendedResourceView, Query, QueryAnswer};
use leasehold_wire::{resource_view, v1, waiter_view};
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::response::{PageQuery, PageReader, PageResult};
use crate::dashboard::waits::{ContendedResource, WaitOverview, content};
use crate::dashboard::{Page, View};

/// Resources with waiters on one page.
const MAX_RESOURCES: usize = 40;
/// Leases that are shown of each.
const LEASES: usize = 10;
/// Waiters that are shown of each.
const WAITERS: usize = 10;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitsQuery {
    cursor: u32,
    replay: Option<u64>,
}

/// The page.
pub async fn page(State(api): State<Api>, PageQuery(query): PageQuery<WaitsQuery>) -> PageResult {
    let WaitsQuery { cursor, replay } = query;
    let reader = PageReader::current(&api);
    let (status, position) = api.status(0).await?;
    // One query of bounded work: the grantor knows which resources have waiters.
    let query = Query::ContendedResources { from: cursor, limit: MAX_RESOURCES, leases: LEASES, waiters: WAITERS };
    let convert = |answer: QueryAnswer<'_>| match answer {
        QueryAnswer::ContendedResources(found, next) => Some((found, next)),
        _ => None,
    };
    let ((found, next), _) = api.query_at("waiters", 0, query, convert).await?;
    let resource = |found: &ContendedResourceView| ContendedResource {
        view: resource_view(&found.view),
        waiters: found.waiters.iter().map(waiter_view).collect(),
    };
    let resources = found.iter().map(resource).collect();
    let deadlocks = api.deadlocks(v1::DeadlocksRequest { limit: 0 }).await.map(|(list, _)| list.deadlocks);
    let waits = WaitOverview { resources, next, waiters: status.waiters, deadlocks, time_ms: status.time_ms, replay };
    let path = format!("/ui/waits?cursor={cursor}");
    Ok(reader.render(Page {
        view: Some(View::Waits),
        title: "Waits",
        // An update would start a replay again.
        live: replay.is_none().then_some(path.as_str()),
        fixed: html! { h1 { "Waits" } },
        content: content(&waits),
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
