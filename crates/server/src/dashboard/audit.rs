//! The audit log: search by resource, verification of its chain, and export.

use leasehold_wire::json::{AuditEntryBody, AuditVerificationBody};
use maud::{Markup, html};

use super::audit_entry_table;
use super::text::{self, count, query_value};

/// Which entries are shown.
#[derive(Clone, Debug, Default)]
pub struct AuditFilterForm {
    /// A resource; empty for all.
    pub resource: String,
    /// Only entries before this one; zero for the newest.
    pub before: u64,
}

impl AuditFilterForm {
    /// The address of a page with this filter.
    pub fn path(&self) -> String {
        format!("/ui/audit?resource={}&before={}", query_value(&self.resource), self.before)
    }

    /// The form that sets the filter.
    pub fn form(&self) -> Markup {
        html! {
            form.filter action="/ui/audit" method="get" role="search" {
                label { "Resource" input type="search" name="resource" value=(self.resource) placeholder="jobs/nightly" autocomplete="off" spellcheck="false"; }
                button { "Search" }
                a.button href="/ui/audit/verify" { "Verify the chain" }
                a.button href="/v1/audit" download="audit.jsonl" { "Export" }
            }
        }
    }
}

/// The content of the page. Older entries are those before `older`, if there may be any.
pub fn content(filter: &AuditFilterForm, entries: &[AuditEntryBody], older: Option<u64>) -> Markup {
    html! {
        section.panel {
            @if let (true, Some(before)) = (entries.is_empty(), older) {
                p.empty { "No entry is found from entry " (count(before)) " on. Older entries are not searched yet." }
            } @else if entries.is_empty() {
                p.empty { @if filter.resource.is_empty() { "The audit log has no entry that you may see." } @else { "No entry of this resource is retained, or you may see none." } }
            } @else { (audit_entry_table::table(entries, None)) }
            div.pager {
                @if filter.before > 0 { a.button href=(AuditFilterForm { before: 0, ..filter.clone() }.path()) { "Newest" } }
                @if let Some(before) = older {
                    a.button href=(AuditFilterForm { before, ..filter.clone() }.path()) { "Older" }
                }
                span.dim { (count(entries.len() as u64)) " entries on this page" }
            }
        }
    }
}

/// The result of a verification.
pub fn verification(result: &AuditVerificationBody) -> Markup {
    html! {
        h1 { "Audit log" }
        section.panel {
            p.sentence {
                @if result.intact { span.pill.good { "intact" } " Every entry follows from the one before it." }
                @else { span.pill.bad { "damaged" } " " (text::visible(result.problem.as_deref().unwrap_or_default())) }
            }
            dl.facts {
                @if let (Some(first), Some(last)) = (result.first, result.last) { dt { "Entries" } dd { (count(first)) " to " (count(last)) } }
                @if let Some(hash) = &result.hash { dt { "Hash of the last entry" } dd { code { (hash) } } }
                @if let Some(heads) = result.heads { dt { "Signed heads that agree" } dd { (count(heads)) } }
                @if let Some(gaps) = result.gaps { dt { "Entries that report a gap" } dd { (count(gaps)) } }
                @if let Some(file) = &result.file { dt { "File" } dd { (text::visible(file)) " at byte " (result.offset.unwrap_or(0)) } }
            }
            p.empty {
                "The chain has no key: who can write its files can compute another one. Note the last entry and its hash elsewhere, and compare: "
                code { "leasehold audit verify --expect ENTRY:HASH" }
            }
            p { a.button href="/ui/audit" { "Back to the entries" } }
        }
    }
}
