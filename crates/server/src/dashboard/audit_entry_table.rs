//! Tables of audit entries.

use leasehold_wire::json::AuditEntryBody;
use maud::{Markup, html};

use super::text::{self, clock_time, date_time, duration, name};

/// Entries, in the given order. The entry at `moment_ms` is highlighted. Without a resource of its own, each row links to it.
pub fn table(entries: &[AuditEntryBody], moment_ms: Option<u64>) -> Markup {
    rows(entries, moment_ms, true)
}

/// Entries of one resource.
pub fn resource_table(entries: &[AuditEntryBody], moment_ms: Option<u64>) -> Markup {
    rows(entries, moment_ms, false)
}

fn rows(entries: &[AuditEntryBody], moment_ms: Option<u64>, with_resource: bool) -> Markup {
    let nearest = moment_ms.and_then(|moment| entries.iter().min_by_key(|entry| entry.wall_ms.abs_diff(moment)));
    let mut day = String::new();
    let times: Vec<String> = entries
        .iter()
        .map(|entry| {
            let whole = date_time(entry.wall_ms);
            let is_same = whole.starts_with(&day) && !day.is_empty();
            day = whole[..10].to_owned();
            if is_same { clock_time(entry.wall_ms) } else { whole }
        })
        .collect();
    html! {
        div.scroll { table {
            thead { tr {
                th { "Time" } th { "Change" }
                @if with_resource { th { "Resource" } }
                th { "Holder" } th.right { "Token" } th { "Detail" } th.wide { "By" }
            } }
            tbody {
                @for (entry, time) in entries.iter().zip(&times) {
                    @let is_moment = nearest.is_some_and(|nearest| nearest.entry == entry.entry);
                    tr #{ "e" (entry.entry) } .moment[is_moment] data-row="" {
                        td.fit.num title=(format!("audit entry {}", entry.entry)) { (time) }
                        td.fit { span class=(pill(entry)) { (entry.kind.replace('_', " ")) } }
                        @if with_resource {
                            td { @if let Some(resource) = &entry.resource { (text::resource_link(resource)) } }
                        }
                        td { @if let Some(holder) = &entry.holder { (name(holder)) } }
                        td.right.num { @if let Some(number) = &entry.token_number { (number) } }
                        td { (detail(entry)) }
                        td.wide { @if let Some(by) = &entry.by { (name(by)) } }
                    }
                }
            }
        } }
    }
}

fn pill(entry: &AuditEntryBody) -> &'static str {
    match (entry.kind.as_str(), entry.state.as_deref()) {
        ("zombie" | "rolled_back" | "deadlock", _) | ("ended", Some("revoked")) => "pill bad",
        ("ended", Some("expired")) | ("revoked" | "preempted" | "restored", _) => "pill warn",
        ("granted", _) => "pill good",
        ("target_reported" | "handoff" | "charter_set", _) => "pill info",
        _ => "pill",
    }
}

fn detail(entry: &AuditEntryBody) -> Markup {
    html! {
        @if let Some(reason) = &entry.reason {
            // A released lease is released for no other reason.
            @if let Some(state) = entry.state.as_ref().filter(|state| *state != reason) { (state) " " }
            (reason.replace('_', " ")) " "
        }
        @if let Some(ttl) = entry.ttl_ms { "ttl " (duration(ttl)) " " }
        @if let Some(slot) = entry.slot.filter(|slot| *slot > 0) { "slot " (slot) " " }
        @if let Some(target) = &entry.target { "target " (name(target)) " " }
        @if let Some(mark) = &entry.mark { "mark " (mark) " " }
        @if let Some(mode) = &entry.mode { (mode) " " }
        @if entry.kind == "zombie" { @if let Some(times) = entry.units { "refused " (text::plural(times, "write")) " " } }
        @if let Some(mode) = &entry.handoff_mode { (mode) " " }
        @if let Some(to) = &entry.to { "to " (name(to)) " " }
        @if let Some(comment) = &entry.comment { q { (text::visible(comment)) } " " }
        @if let Some(text) = &entry.text { "damaged entry: " code { (text::shortened(text, 200)) } }
    }
}
