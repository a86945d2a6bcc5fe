//! The thread that sends: what a grantor did not take is kept and sent again, as long as there is room.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold_core::command::Command;
use leasehold_core::coverage::Report;
use leasehold_core::limits::REPORTS;
use leasehold_core::token::Cluster;

use super::Shared;
use super::gather::{Counts, entries};
use crate::holder::Handle;
use crate::{Code, Error};

/// Places that wait for a grantor that is not there; what comes on top is counted as missed.
const WAITING: usize = 4_096;

/// Starts the thread. It ends when the reporter is dropped, after one more try.
pub fn start(handle: Arc<Handle>, cluster: Cluster, every: Duration, shared: Arc<Shared>) -> Result<(), Error> {
    let unable = |why: std::io::Error| Error::unavailable(format!("no thread to report with: {why}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
    let work = move || runtime.block_on(drive(&handle, cluster, every, &shared));
    std::thread::Builder::new().name("leasehold-report".into()).spawn(work).map(drop).map_err(unable)
}

async fn drive(handle: &Arc<Handle>, cluster: Cluster, every: Duration, shared: &Shared) {
    let mut waiting = Counts::default();
    loop {
        // Whoever wakes it or the time, whichever is first.
        let _ = tokio::time::timeout(every, shared.wake.notified()).await;
        let stopping = shared.stopping.load(Ordering::Acquire);
        let wanted = shared.wanted.load(Ordering::Acquire);
        shared.gathering.collect(&mut waiting, WAITING);
        let told = send(handle, cluster, shared, &mut waiting).await;
        let _before = shared.tried.send_replace((wanted, told));
        if stopping {
            return;
        }
    }
}

/// Sends batch after batch until nothing is left, or one did not arrive.
async fn send(handle: &Arc<Handle>, cluster: Cluster, shared: &Shared, waiting: &mut Counts) -> Result<(), Error> {
    let names = shared.gathering.names();
    while !waiting.is_empty() {
        let (taken, now) = (waiting.take(REPORTS), Instant::now());
        let reports: Vec<Report<'_>> = taken
            .iter()
            .flat_map(|(target, resource, slot, tally)| entries(&names[*target as usize], resource, *slot, tally, now))
            .collect();
        let Err(failure) = handle.say(&Command::Report { cluster, reports: &reports }).await else {
            continue;
        };
        let error = failure.into_error();
        if is_final(&error) {
            // The same report would be refused for ever, and would hold up all others.
            tracing::warn!("the grantor does not take a report of fences: {error}");
        } else {
            shared.gathering.miss(waiting.put_back(taken, WAITING));
        }
        return Err(error);
    }
    Ok(())
}

fn is_final(error: &Error) -> bool {
    use Code::{InvalidArgument, PermissionDenied, TokenImplausible, TokenInvalid, WrongCluster};
    matches!(error.code(), Some(InvalidArgument | PermissionDenied | TokenImplausible | TokenInvalid | WrongCluster))
}
