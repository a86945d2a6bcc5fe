//! `GET /ui/audit` and `GET /ui/audit/verify`: the audit log.

use axum::extract::State;
use leasehold_wire::json::AuditEntryBody;
use maud::{Markup, html};
use serde::Deserialize;

use super::super::Api;
use super::super::http::{NoQuery, verification_body};
use super::response::{PageQuery, PageReader, PageResult};
use crate::audit::{AuditQuery, hex};
use crate::dashboard::audit::{AuditFilterForm, content, verification};
use crate::dashboard::{Page, View};

/// Entries of one page.
const ENTRIES: usize = 100;

/// Parameters of the page.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditLogQuery {
    resource: String,
    before: u64,
}

/// The page of entries.
pub async fn page(State(api): State<Api>, PageQuery(query): PageQuery<AuditLogQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let filter = AuditFilterForm { resource: query.resource.trim().to_owned(), before: query.before };
    let resource = Some(filter.resource.clone()).filter(|resource| !resource.is_empty());
    let query = AuditQuery { resource, before: filter.before, limit: ENTRIES, ..AuditQuery::default() };
    let (found, head) = api.audit(query).await?;
    let entries: Vec<_> = found.entries.into_iter().map(|(text, hash)| AuditEntryBody::of(text, &hash)).collect();
    let is_newest = filter.resource.is_empty() && filter.before == 0;
    let path = filter.path();
    Ok(reader.render(Page {
        view: Some(View::Audit),
        title: "Audit log",
        // The newest entries are in memory; a search reads files.
        live: is_newest.then_some(path.as_str()),
        fixed: html! { h1 { "Audit log" } (filter.form()) },
        content: content(&filter, &entries, found.next),
        position: Some(head.position),
        audit: Some((head.entries, hex(&head.hash))),
        principal: "",
        read_only: false,
    }))
}

/// The page of a verification.
pub async fn verify(State(api): State<Api>, _: PageQuery<NoQuery>) -> PageResult {
    let reader = PageReader::current(&api);
    let result = verification_body(api.verify_audit().await?);
    Ok(reader.render(Page {
        view: Some(View::Audit),
        title: "Verification of the audit log",
        live: None,
        fixed: Markup::default(),
        content: verification(&result),
        position: None,
        audit: None,
        principal: "",
        read_only: false,
    }))
}
