//! `GET /ui/handovers`: changes of holder, slowest first.

use std::collections::BTreeMap;

use axum::extract::State;
use leasehold_wire::json::AuditEntryBody;
use leasehold_wire::v1;
use maud::html;
use serde::Deserialize;

use super::super::Api;
use super::response::{PageQuery, PageReader, PageResult};
use crate::audit::{AuditHead, AuditQuery, hex};
use crate::dashboard::handovers::{HandoverPage, HandoverTerms, content, rows};
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
    let (entries, older, head) = read(&api, AuditQuery { before, ..AuditQuery::default() }).await?;
    let first = entries.last().map_or(0, |entry| entry.entry);
    let page =
        HandoverPage { first, last: entries.first().map_or(0, |entry| entry.entry), entries: entries.len(), older };
    let mut resources: BTreeMap<String, Vec<AuditEntryBody>> = BTreeMap::new();
    add(&mut resources, entries);
    // The earlier holder may have ended before the page, or, of an overlap, after it.
    if let Some(before) = page.older.filter(|_| page.grants_without_previous(&timelines(&resources)) > 0) {
        add(&mut resources, read(&api, AuditQuery { before, ..AuditQuery::default() }).await?.0);
    }
    if before > 0 && page.has_previous_without_end(&timelines(&resources)) {
        let query = AuditQuery { after: page.last, oldest_first: true, ..AuditQuery::default() };
        add(&mut resources, read(&api, query).await?.0);
    }
    let timelines = timelines(&resources);
    let handed_over = timelines.iter().filter(|timeline| timeline.turnovers().any(|(_, hold, _)| page.has_grant(hold)));
    let (terms, position) = api.handoff_terms(handed_over.map(|timeline| timeline.resource.clone()).collect()).await?;
    let rows = rows(&timelines, page, |resource| terms.get(resource).copied().and_then(HandoverTerms::of));
    Ok(reader.render(Page {
        view: Some(View::Handovers),
        title: "Handovers",
        live: None,
        fixed: html! { h1 { "Handovers" } },
        content: content(&rows, page, page.grants_without_previous(&timelines)),
        position: Some(position),
        audit: Some((head.entries, hex(&head.hash))),
        principal: "",
        read_only: false,
    }))
}

/// Reads at most as many entries as a page has, and where the search continues.
async fn read(api: &Api, query: AuditQuery) -> Result<(Vec<AuditEntryBody>, Option<u64>, AuditHead), v1::Problem> {
    let (found, head) = api.audit(AuditQuery { limit: ENTRIES, ..query }).await?;
    let entries = found.entries.into_iter().map(|(text, hash)| AuditEntryBody::of(text, &hash)).collect();
    Ok((entries, found.next, head))
}

fn add(resources: &mut BTreeMap<String, Vec<AuditEntryBody>>, entries: Vec<AuditEntryBody>) {
    for entry in entries {
        if let Some(resource) = &entry.resource {
            resources.entry(resource.clone()).or_default().push(entry);
        }
    }
}

fn timelines(resources: &BTreeMap<String, Vec<AuditEntryBody>>) -> Vec<ResourceTimeline> {
    let of = |(resource, entries): (&String, &Vec<AuditEntryBody>)| {
        ResourceTimeline::new(resource, entries, TimelineContext::default())
    };
    resources.iter().map(of).collect()
}
