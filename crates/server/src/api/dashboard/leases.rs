//! `GET /ui/leases`: resources under a prefix, or the leases of a holder.

use axum::extract::State;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::renewal_ages::renewal_ages;
use super::response::{PageQuery, PageReader, PageResult};
use crate::dashboard::leases::{LeasesForm, LeasesPage, content, holder_content};
use crate::dashboard::{Page, View};

/// Resources of one page.
const PAGE: u32 = 50;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeasesQuery {
    prefix: String,
    holder: String,
    cursor: u64,
}

/// The page.
pub async fn page(State(api): State<Api>, PageQuery(query): PageQuery<LeasesQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let filter = LeasesForm {
        prefix: query.prefix.trim().to_owned(),
        holder: query.holder.trim().to_owned(),
        cursor: query.cursor,
    };
    let (status, _) = api.status(0).await?;
    let (content, position) = if filter.holder.is_empty() {
        let cursor = u32::try_from(filter.cursor).unwrap_or(u32::MAX);
        let request = v1::ListRequest { prefix: filter.prefix.clone(), cursor, limit: PAGE, min_position: 0 };
        let (list, position) = api.list(request).await?;
        let next = list.next_cursor.map(u64::from);
        let first = list.resources.iter().filter_map(|resource| resource.leases.first());
        let page = LeasesPage {
            filter: &filter,
            resources: &list.resources,
            renewal_ages: &renewal_ages(&api, first).await?,
            next,
            time_ms: status.time_ms,
            held: status.held,
        };
        (content(&page), position)
    } else {
        let request = v1::HeldByRequest { holder: filter.holder.clone(), after: filter.cursor, limit: PAGE };
        let (list, position) = api.held_by(request).await?;
        let is_full = list.leases.len() == PAGE as usize;
        let next = list.leases.last().filter(|_| is_full).map(|lease| lease.token_number);
        let ages = renewal_ages(&api, &list.leases).await?;
        (holder_content(&filter, &list.leases, &ages, next, status.time_ms), position)
    };
    let path = filter.path();
    Ok(reader.render(Page {
        view: Some(View::Leases),
        title: "Leases",
        live: Some(&path),
        fixed: html! { h1 { "Leases" } (filter.form()) },
        content,
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
