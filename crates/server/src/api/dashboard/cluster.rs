//! `GET /ui/cluster`: the cluster as this server sees it.

use axum::extract::State;
use maud::Markup;

use super::super::Api;
use super::super::http::NoQuery;
use super::response::{PageQuery, PageReader, PageResult};
use crate::dashboard::{Page, View, cluster};

/// The page.
pub async fn page(State(api): State<Api>, _: PageQuery<NoQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let (view, position) = api.cluster().await?;
    // A standby that has not read the journal yet has no status.
    let status = api.status(0).await.ok().map(|(status, _)| status);
    Ok(reader.render(Page {
        view: Some(View::Cluster),
        title: "Cluster",
        live: Some("/ui/cluster"),
        fixed: Markup::default(),
        content: cluster::content(&view, status.as_ref()),
        position: Some(position),
        audit: None,
        principal: "",
        read_only: false,
    }))
}
