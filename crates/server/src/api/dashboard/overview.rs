//! `GET /`: the overview.

use axum::extract::State;
use leasehold_core::access::Action;
use maud::Markup;

use super::super::Api;
use super::super::http::NoQuery;
use super::response::{PageQuery, PageReader, PageResult};
use crate::dashboard::{Page, View, overview};

/// Bars of a chart.
const CHART_STEPS: usize = 120;
/// Entries of the last changes.
const LAST_CHANGES: usize = 12;

/// The page.
pub async fn page(State(api): State<Api>, _: PageQuery<NoQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let (status, position) = api.status(0).await?;
    let (cluster, _) = api.cluster().await?;
    // The rights are those of the metrics, from which the samples are made.
    let changes = api.authorize_current(Action::Metrics).map(|_| api.dashboard.samples.changes(CHART_STEPS));
    let changes = changes.map_err(|problem| *problem);
    let may_waive = reader.may(&api, Action::WaiveQuarantine, "");
    let last = api.dashboard.entries.latest_visible(&api, LAST_CHANGES).await.map(|found| found.entries);
    let content = overview::content(&overview::Overview { status, cluster, changes, may_waive, last });
    Ok(reader.render(Page {
        view: Some(View::Overview),
        title: "Overview",
        live: Some("/"),
        fixed: Markup::default(),
        content,
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
