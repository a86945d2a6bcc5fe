//! The routes of the dashboard. Each page is made from queries of the API, with the checks of every other caller, in the task of its
//! connection; no turn renders anything.

mod actions;
mod audit;
mod cluster;
mod coverage;
mod entry_cache;
mod handovers;
mod leases;
mod live;
mod overview;
mod renewal_ages;
mod renewal_samples;
mod resource;
mod response;
mod sampler;
mod waits;

use axum::Router;
use axum::routing::get;

use super::Api;

pub use entry_cache::EntryCache;
pub use renewal_samples::RenewalSamples;
pub use sampler::sample;

/// What the dashboard keeps in memory, shared by all of its pages.
#[derive(Debug, Default)]
pub struct DashboardState {
    /// Counters of the last hour.
    pub samples: crate::dashboard::SampleRing,
    /// Renewals that were observed while someone looked at a resource.
    pub renewals: RenewalSamples,
    /// Audit entries of resources that someone looks at.
    pub entries: EntryCache,
}

/// The pages and the files that they load.
pub fn routes() -> Router<Api> {
    Router::new()
        .route("/", get(overview::page))
        .route("/ui/leases", get(leases::page))
        .route("/ui/resource/{*name}", get(resource::page))
        .route("/ui/waits", get(waits::page))
        .route("/ui/coverage", get(coverage::page))
        .route("/ui/handovers", get(handovers::page))
        .route("/ui/cluster", get(cluster::page))
        .route("/ui/actions/{action}", get(actions::preview).post(actions::act))
        .route("/ui/audit", get(audit::page))
        .route("/ui/audit/verify", get(audit::verify))
        .route("/ui/changes", get(live::changes))
        .route("/ui/assets/{name}", get(response::asset_file))
}
