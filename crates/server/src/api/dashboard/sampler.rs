//! Samples the server's counters for the charts of the dashboard. A sample is one query, which takes constant time.

use leasehold_core::grantor::Grantor;

use super::super::Api;
use crate::clock;
use crate::dashboard::ServerSample;
use crate::dashboard::sample_ring::INTERVAL;

/// Adds a sample every few seconds until the server shuts down.
pub async fn sample(api: Api) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !api.watchers.is_closed() {
        interval.tick().await;
        let metrics = api.metrics.clone();
        let read = |grantor: &Grantor| {
            let (status, coverage) = (grantor.status(), grantor.coverage());
            ServerSample {
                held: status.held as u64,
                waiters: status.waiters as u64,
                ended: status.totals.ended,
                zombies: coverage.zombies(),
                ..ServerSample::default()
            }
        };
        // A query fails while the server starts or shuts down; the next one may succeed.
        if let Ok(sample) = api.read_for_server(read).await {
            let (syncs, sync_micros, turns, turn_micros) = metrics.work_totals();
            let renewals = metrics.requests().renewal_count();
            let wall_ms = clock::now().wall.0;
            api.dashboard.samples.push(ServerSample {
                wall_ms,
                renewals,
                syncs,
                sync_micros,
                turns,
                turn_micros,
                ..sample
            });
        }
    }
}
