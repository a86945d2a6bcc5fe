//! Fence reports: sends to the grantor what the fences of this process decide. They are aggregated next to the writers, sent about
//! once a second, and never waited for (F9).
//!
//! ```no_run
//! # #[cfg(feature = "report")]
//! # async fn example(client: &leasehold::Client) -> Result<(), leasehold::Error> {
//! use leasehold::report::{FenceMode, Reporter};
//!
//! let reporter = Reporter::new(client, client.cluster_id().await?)?;
//! let observer = reporter.target("postgres:orders", FenceMode::Forced)?;
//! // let fence = postgres::Fence::new(&fence_id).with_observer(observer);
//! # drop(observer);
//! # Ok(())
//! # }
//! ```

mod aggregate;
mod send;

pub use leasehold_core::coverage::FenceMode;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::limits::TARGET_NAME_BYTES;
use leasehold_core::token::Cluster;
use leasehold_fence::{FenceEvent, Observer};
use tokio::sync::{Notify, watch};

use crate::{Client, Error};
use aggregate::Aggregator;

/// Default interval between reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reports to the grantor what the fences of this process decide: the zombies they refused (F6) and the highest token number they
/// have seen (T9, F5). Dropping it sends the rest without waiting.
pub struct Reporter {
    shared: Arc<ReporterShared>,
}

struct ReporterShared {
    aggregator: Aggregator,
    wake: Notify,
    /// Number of flushes requested so far.
    flushes: AtomicU64,
    /// The last flush that was attempted, and its result.
    flushed: watch::Sender<(u64, Result<(), Error>)>,
    stopping: AtomicBool,
}

impl Reporter {
    /// A reporter for fences of this cluster, over the client's session.
    pub fn new(client: &Client, cluster: Cluster) -> Result<Self, Error> {
        Self::with_interval(client, cluster, INTERVAL)
    }

    /// A reporter with another interval between reports.
    pub fn with_interval(client: &Client, cluster: Cluster, interval: Duration) -> Result<Self, Error> {
        let shared = Arc::new(ReporterShared {
            aggregator: Aggregator::default(),
            wake: Notify::new(),
            flushes: AtomicU64::new(0),
            flushed: watch::Sender::new((0, Ok(()))),
            stopping: AtomicBool::new(false),
        });
        send::start(client.worker()?, cluster, interval, shared.clone())?;
        Ok(Self { shared })
    }

    /// Observer for the fences of a target: `fence.with_observer(reporter.target("ledger", FenceMode::Forced)?)`. Use the name that
    /// the charter declares.
    pub fn target(&self, name: &str, mode: FenceMode) -> Result<Arc<dyn Observer>, Error> {
        if name.is_empty() || name.len() > TARGET_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(Error::invalid("target", "1 to 128 bytes without control characters"));
        }
        let target = self.shared.aggregator.target(name, mode);
        Ok(Arc::new(TargetObserver { shared: self.shared.clone(), target }))
    }

    /// Number of checks that were not counted, because too many different resources were checked at once.
    pub fn missed(&self) -> u64 {
        self.shared.aggregator.missed()
    }

    /// Sends everything collected so far and waits until the grantor has recorded it. After an error it is sent later.
    pub async fn flush(&self) -> Result<(), Error> {
        let flush = self.shared.flushes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut flushed = self.shared.flushed.subscribe();
        self.shared.wake.notify_one();
        let result = flushed.wait_for(|(last, _)| *last >= flush).await;
        result.map_or_else(|_| Err(Error::unavailable("the reporter has stopped")), |result| result.1.clone())
    }

    /// Sends the rest and stops.
    pub async fn close(self) -> Result<(), Error> {
        self.flush().await
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("missed", &self.missed()).finish_non_exhaustive()
    }
}

/// Observer of one target.
struct TargetObserver {
    shared: Arc<ReporterShared>,
    target: u32,
}

impl Observer for TargetObserver {
    fn on_event(&self, event: &FenceEvent<'_>) {
        self.shared.aggregator.add(self.target, event);
    }
}
