//! The sender thread. It keeps reports that were not delivered and sends them again, up to a limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_core::command::Command;
use leasehold_core::coverage::FenceReport;
use leasehold_core::limits::REPORTS;
use leasehold_core::token::Cluster;

use super::ReporterShared;
use super::aggregate::{ReportBuffer, entries};
use crate::Error;
use crate::session_worker::WorkerHandle;

/// Limit on the slots that wait for an unreachable grantor; further checks count as missed.
const MAX_WAITING: usize = 4_096;

/// Starts the thread. It ends when the reporter is dropped, after one more attempt.
pub fn start(
    worker: Arc<WorkerHandle>,
    cluster: Cluster,
    interval: Duration,
    shared: Arc<ReporterShared>,
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::unavailable(format!("cannot start the reporter thread: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let work = move || runtime.block_on(run(&worker, cluster, interval, &shared));
    std::thread::Builder::new().name("leasehold-report".into()).spawn(work).map(drop).map_err(failed)
}

async fn run(worker: &Arc<WorkerHandle>, cluster: Cluster, interval: Duration, shared: &ReporterShared) {
    let mut waiting = ReportBuffer::default();
    loop {
        // A flush or the interval, whichever is first.
        let _ = tokio::time::timeout(interval, shared.wake.notified()).await;
        let stopping = shared.stopping.load(Ordering::Acquire);
        let flush = shared.flushes.load(Ordering::Acquire);
        shared.aggregator.collect(&mut waiting, MAX_WAITING);
        let result = send(worker, cluster, shared, &mut waiting).await;
        let _previous = shared.flushed.send_replace((flush, result));
        if stopping {
            return;
        }
    }
}

/// Sends batches until nothing is left or one fails.
async fn send(
    worker: &Arc<WorkerHandle>,
    cluster: Cluster,
    shared: &ReporterShared,
    waiting: &mut ReportBuffer,
) -> Result<(), Error> {
    let names = shared.aggregator.names();
    while !waiting.is_empty() {
        let (batch, now) = (waiting.take(REPORTS), Instant::now());
        let reports: Vec<FenceReport<'_>> = batch
            .iter()
            .flat_map(|(target, resource, slot, counts)| {
                entries(&names[*target as usize], resource, *slot, counts, now)
            })
            .collect();
        let Err(error) = worker.session_call(&Command::Report { cluster, reports: &reports }).await else {
            continue;
        };
        let error = error.into_error();
        if error.is_permanent() && !error.is_session_ended() {
            // The same report would be refused again, and would block all others.
            tracing::warn!(%error, "grantor rejected a fence report");
        } else {
            shared.aggregator.add_missed(waiting.put_back(batch, MAX_WAITING));
        }
        return Err(error);
    }
    Ok(())
}
