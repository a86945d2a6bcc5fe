//! `GET /ui/handovers`: changes of holder, slowest first.

use std::collections::BTreeMap;

use axum::extract::State;
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::{Api, covers};
use super::response::{PageQuery, PageReader, PageResult};
use crate::audit::{AuditQuery, hex};
use crate::dashboard::handovers::{content, rows};
use crate::dashboard::timeline::{ResourceTimeline, TimelineContext};
use crate::dashboard::{Page, View};

/// Audit entries of one page.
const ENTRIES: usize = 1_000;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandoversQuery {
    before: u64,
}

/// The page.
pub async fn page(
    State(api): State<Api>,
    PageQuery(HandoversQuery { before }): PageQuery<HandoversQuery>,
) -> PageResult {
    let reader = PageReader::current(&api);
    let (found, head) = api.audit(AuditQuery { before, limit: ENTRIES, ..AuditQuery::default() }).await?;
    let (charters, position) = api.charters(v1::ChartersRequest::default()).await?;
    let count = found.entries.len();
    let mut resources: BTreeMap<String, Vec<AuditEntryBody>> = BTreeMap::new();
    for (text, hash) in found.entries {
        let entry = AuditEntryBody::of(text, &hash);
        if let Some(resource) = &entry.resource {
            resources.entry(resource.clone()).or_default().push(entry);
        }
    }
    let of = |(resource, entries): (&String, &Vec<AuditEntryBody>)| {
        ResourceTimeline::new(resource, entries, TimelineContext::default())
    };
    let timelines: Vec<ResourceTimeline> = resources.iter().map(of).collect();
    // The longest prefix decides.
    let terms = |resource: &str| {
        let covering = charters.charters.iter().filter(|entry| covers(&entry.prefix, resource));
        let charter = covering.max_by_key(|entry| entry.prefix.len()).and_then(|entry| entry.charter.as_ref());
        charter.and_then(|charter| charter.handoff)
    };
    let rows = rows(&timelines, terms);
    Ok(reader.render(Page {
        view: Some(View::Handovers),
        title: "Handovers",
        live: None,
        fixed: html! { h1 { "Handovers" } },
        content: content(&rows, count, found.next),
        position: Some(position),
        audit: Some((head.entries, hex(&head.hash))),
        principal: "",
        read_only: false,
    }))
}
