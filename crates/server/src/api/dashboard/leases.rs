//! `GET /ui/leases`: resources under a prefix, or leases by holder, in an order, or only those that are stuck.

use axum::extract::State;
use leasehold_core::grantor::LeaseSort;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::renewal_ages::renewal_ages;
use super::response::{PageProblem, PageQuery, PageReader, PageResult};
use crate::dashboard::leases::{LeasesForm, LeasesPage, content, listing_content};
use crate::dashboard::{Page, View};
use crate::transport::error_layer::invalid;

/// Resources of one page.
const PAGE: u32 = 50;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeasesQuery {
    prefix: String,
    holder: String,
    sort: String,
    stuck: bool,
    cursor: String,
}

impl LeasesQuery {
    fn into_form(self) -> Result<LeasesForm, PageProblem> {
        let unknown = || invalid("sort", "unknown; use name, age, remaining, last_progress or waiters");
        let sort = match self.sort.as_str() {
            "" => None,
            word => Some(LeaseSort::from_word(word).ok_or_else(unknown)?),
        };
        let (prefix, holder) = (self.prefix.trim().to_owned(), self.holder.trim().to_owned());
        Ok(LeasesForm { prefix, holder, sort, stuck: self.stuck, cursor: self.cursor })
    }
}

/// The page.
pub async fn page(State(api): State<Api>, PageQuery(query): PageQuery<LeasesQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let filter = query.into_form()?;
    let (content, position) = if filter.lists_leases() {
        let request = v1::ListLeasesRequest {
            prefix: filter.prefix.clone(),
            holder: Some(filter.holder.clone()).filter(|holder| !holder.is_empty()),
            stuck: filter.stuck.then_some(true),
            sort: filter.sort.map_or(v1::LeaseSort::Unspecified, v1::LeaseSort::from).into(),
            descending: filter.is_descending(),
            cursor: filter.cursor.clone(),
            limit: PAGE,
            ..v1::ListLeasesRequest::default()
        };
        let (list, position) = api.list_leases(request).await?;
        (listing_content(&filter, &list), position)
    } else {
        let (status, _) = api.status(0).await?;
        let cursor = match filter.cursor.as_str() {
            "" => 0,
            text => text.parse().map_err(|_| invalid("cursor", "not a cursor of this page; start again without it"))?,
        };
        let request = v1::ListRequest { prefix: filter.prefix.clone(), cursor, limit: PAGE, min_position: 0 };
        let (list, position) = api.list(request).await?;
        let first = list.resources.iter().filter_map(|resource| resource.leases.first());
        let page = LeasesPage {
            filter: &filter,
            resources: &list.resources,
            renewal_ages: &renewal_ages(&api, first).await?,
            next: list.next_cursor,
            time_ms: status.time_ms,
            held: status.held,
        };
        (content(&page), position)
    };
    let path = filter.path();
    Ok(reader.render(Page {
        view: Some(View::Leases),
        title: "Leases",
        // A sorted listing reads every lease that matches, and keeps its order while it is read.
        live: filter.sort.is_none().then_some(path.as_str()),
        fixed: html! { h1 { "Leases" } (filter.form()) },
        content,
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
