//! The cluster: the leader, the servers that stand by, the store of the journal, and the state of this server.

use leasehold_wire::v1;
use maud::{Markup, html};

use super::overview::{small_stat, stat};
use super::text::{self, bytes, count, duration, name};

/// The content of the page. The status is none if the server's state is not ready.
pub fn content(cluster: &v1::ClusterView, status: Option<&v1::Status>) -> Markup {
    let role = v1::Role::try_from(cluster.role).unwrap_or(v1::Role::Unspecified);
    html! {
        h1 { "Cluster" }
        @if !cluster.problem.is_empty() { ul.notices { li.bad { (text::visible(&cluster.problem)) } } }
        div.stats {
            (small_stat("leader", if cluster.leader.is_empty() { "none" } else { &cluster.leader }))
            (small_stat("this server", role_word(role)))
            (small_stat("for", &duration(cluster.role_age_ms)))
            (stat("journal position", &count(cluster.position)))
            @if let Some(status) = status { (stat("generation", &count(status.generation))) (stat("tenure", &count(status.tenure.into()))) }
        }
        div.grid {
            section.panel {
                h2 { "Servers" }
                div.scroll { table {
                    thead { tr { th { "Address" } th { "Role" } } }
                    tbody { @for server in &cluster.servers { tr data-row="" {
                        td { (name(server)) @if *server == cluster.address { span.dim { " (this server)" } } }
                        td {
                            @if *server == cluster.leader { span.pill.good { (if role == v1::Role::Standalone { "standalone" } else { "leader" }) } }
                            @else { span.pill { "standby" } }
                        }
                    } } }
                } }
                @if role == v1::Role::Standalone {
                    p.empty { "The journal is a directory of this server, so no other server can take over." }
                }
            }
            section.panel {
                h2 { "Journal" }
                @if cluster.etcd.is_empty() { p.empty { "Stored by this server." } }
                @else {
                    div.scroll { table {
                        thead { tr { th { "etcd member" } th { "State" } th { "Version" } th.right { "Database" } th.right { "In use" } } }
                        tbody { @for member in &cluster.etcd { tr data-row="" {
                            td { (name(&member.endpoint)) @if member.is_leader { span.dim { " (leads etcd)" } } }
                            td {
                                @if member.healthy { span.pill.good { "healthy" } }
                                @else { span.pill.bad { "not healthy" } " " (text::visible(&member.problem)) }
                            }
                            td { (text::visible(&member.version)) }
                            td.right.fit { (bytes(member.database_bytes)) }
                            td.right.fit { (bytes(member.in_use_bytes)) }
                        } } }
                    } }
                    p.empty { (bytes(cluster.database_bytes)) " of a quota of " (bytes(cluster.quota_bytes)) "." }
                }
            }
            @if let Some(status) = status {
                section.panel {
                    h2 { "State" }
                    dl.facts {
                        dt { "Cluster" } dd { code { (status.cluster) } }
                        dt { "Incarnation" } dd { code { (status.incarnation) } }
                        dt { "Longest ttl" } dd { (duration(status.max_ttl_ms)) }
                        dt { "Grantor time" } dd { (duration(status.time_ms)) " since the first start, without pauses" }
                        dt { "Stalled" } dd { (duration(status.stalled_ms)) " in all" }
                        dt { "Quarantine" }
                        dd { @match status.quarantine_ms { Some(left) => span.pill.bad { "ends in " (duration(left)) }, None => "none" } }
                    }
                }
            }
        }
    }
}

fn role_word(role: v1::Role) -> &'static str {
    match role {
        v1::Role::Leader => "leader",
        v1::Role::Standby => "standby",
        v1::Role::Standalone => "standalone",
        v1::Role::Unspecified => "unknown",
    }
}
