//! What each page shows, made from its data alone.

mod audit;
mod cluster;
mod coverage;
mod deadlocks;
mod handovers;
mod leases;
mod resource;
mod waits;

use super::job::PageData;
use super::page_content::PageContent;

/// The content of a page at this grantor time and this wall clock.
pub fn content(data: &PageData, time_ms: u64, wall_ms: u64) -> PageContent {
    match data {
        PageData::Leases { leases, next } => PageContent::Table(leases::table(leases, next.is_some())),
        PageData::Waits(resources) => PageContent::Table(waits::table(resources)),
        PageData::Deadlocks(deadlocks) => PageContent::Table(deadlocks::table(deadlocks, time_ms)),
        PageData::Coverage { resources, next } => {
            PageContent::Table(coverage::table(resources, next.is_some(), wall_ms))
        }
        PageData::Handovers { rows, entries } => PageContent::Table(handovers::table(rows, *entries)),
        PageData::Cluster { first, servers } => PageContent::Table(cluster::table(first, servers)),
        PageData::Audit { entries, next } => PageContent::Table(audit::table(entries, next.is_some())),
        PageData::Resource(data) => PageContent::Lines(resource::lines(data, time_ms)),
    }
}
