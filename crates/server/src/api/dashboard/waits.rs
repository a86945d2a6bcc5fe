//! `GET /ui/waits`: which holders wait for which, and past deadlocks.

use axum::extract::State;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::response::{PageQuery, PageReader, PageResult};
use crate::dashboard::waits::{ContendedResource, WaitOverview, content};
use crate::dashboard::{Page, View};

/// Queries of one page; each reads as much as one query may.
const MAX_QUERIES: usize = 16;
/// Resources with waiters on one page.
const MAX_RESOURCES: usize = 40;
/// Waiters that are shown of each.
const WAITERS: u32 = 10;

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
    let (mut contended, mut next) = (Vec::new(), Some(cursor));
    // Without a wait there is nothing to search for.
    let mut queries = if status.waiters == 0 { MAX_QUERIES } else { 0 };
    while let Some(cursor) = next.filter(|_| queries < MAX_QUERIES && contended.len() < MAX_RESOURCES) {
        queries += 1;
        let request = v1::ListRequest { cursor, ..v1::ListRequest::default() };
        let (list, _) = api.list(request).await?;
        contended.extend(list.resources.into_iter().filter(|resource| resource.waiters > 0));
        next = list.next_cursor;
    }
    if status.waiters == 0 {
        next = None;
    }
    let mut resources = Vec::new();
    for view in contended.into_iter().take(MAX_RESOURCES) {
        let request = v1::WaitersRequest { resource: view.resource.clone(), offset: 0, limit: WAITERS };
        let (list, _) = api.waiters(request).await?;
        resources.push(ContendedResource { view, waiters: list.waiters });
    }
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
