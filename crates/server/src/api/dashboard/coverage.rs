//! `GET /ui/coverage`: resources and targets as a matrix.

use axum::extract::State;
use futures::future::try_join_all;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::response::{PageQuery, PageReader, PageResult};
use crate::clock;
use crate::dashboard::coverage::{CoveragePage, content, form};
use crate::dashboard::text::query_value;
use crate::dashboard::{Page, View};

/// Resources of one page.
const PAGE: u32 = 25;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoverageQuery {
    prefix: String,
    cursor: u32,
}

/// The page.
pub async fn page(State(api): State<Api>, PageQuery(query): PageQuery<CoverageQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let (prefix, cursor) = (query.prefix.trim().to_owned(), query.cursor);
    let (list, position) =
        api.list(v1::ListRequest { prefix: prefix.clone(), cursor, limit: PAGE, min_position: 0 }).await?;
    let of = |resource: v1::ResourceView| {
        let api = api.clone();
        async move {
            let request = v1::CoverageRequest { resource: resource.resource, min_position: 0 };
            api.coverage(request).await.map(|(coverage, _)| coverage)
        }
    };
    let rows = try_join_all(list.resources.into_iter().map(of)).await?;
    let page = CoveragePage {
        prefix: &prefix,
        rows,
        next: list.next_cursor,
        is_first: cursor == 0,
        now_ms: clock::now().wall.0,
    };
    let path = format!("/ui/coverage?prefix={}&cursor={cursor}", query_value(&prefix));
    Ok(reader.render(Page {
        view: Some(View::Coverage),
        title: "Coverage",
        live: Some(&path),
        fixed: html! { h1 { "Coverage" } (form(&prefix)) },
        content: content(&page),
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
