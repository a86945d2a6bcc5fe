//! What carries fences' answers to the grantor: gathered beside the writers, sent about once a second, never waited for (F9).
//!
//! ```no_run
//! # #[cfg(feature = "report")]
//! # fn example(client: &leasehold::Client, cluster: leasehold_core::token::Cluster) -> Result<(), leasehold::Error> {
//! use leasehold::report::{Mode, Reporter};
//!
//! let reporter = Reporter::new(client, cluster)?;
//! let observer = reporter.target("postgres:orders", Mode::Forced)?;
//! // let fence = postgres::Fence::new(cluster, name, 0).observed_by(observer);
//! # drop(observer);
//! # Ok(())
//! # }
//! ```

mod gather;
mod send;

pub use leasehold_core::coverage::Mode;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::limits::TARGET_NAME_BYTES;
use leasehold_core::token::Cluster;
use leasehold_fence::{Event, Observer};
use tokio::sync::{Notify, watch};

use crate::{Client, Error};
use gather::Gathering;

/// How often what was gathered is sent.
const EVERY: Duration = Duration::from_secs(1);

/// Tells the grantor what fences of this process answer: which zombies they refused (F6), and the highest number that they
/// have seen (T9, F5). Dropping it sends what is left, without waiting for it.
pub struct Reporter {
    shared: Arc<Shared>,
}

struct Shared {
    gathering: Gathering,
    wake: Notify,
    /// How often somebody wanted everything sent.
    wanted: AtomicU64,
    /// Up to which of these wishes everything was tried, and whether the last try worked.
    tried: watch::Sender<(u64, Result<(), Error>)>,
    stopping: AtomicBool,
}

impl Reporter {
    /// A reporter for fences that check tokens of this cluster, over the client's session.
    pub fn new(client: &Client, cluster: Cluster) -> Result<Self, Error> {
        Self::sending_every(client, cluster, EVERY)
    }

    /// The same, sending so often.
    pub fn sending_every(client: &Client, cluster: Cluster, every: Duration) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            gathering: Gathering::default(),
            wake: Notify::new(),
            wanted: AtomicU64::new(0),
            tried: watch::Sender::new((0, Ok(()))),
            stopping: AtomicBool::new(false),
        });
        send::start(client.handle()?, cluster, every, shared.clone())?;
        Ok(Self { shared })
    }

    /// What a fence of this target is observed by: `fence.observed_by(reporter.target("ledger", Mode::Forced)?)`. Give the
    /// name that the charter declares.
    pub fn target(&self, name: &str, mode: Mode) -> Result<Arc<dyn Observer>, Error> {
        if name.is_empty() || name.len() > TARGET_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(Error::invalid("target", "1 to 128 bytes without control characters"));
        }
        let target = self.shared.gathering.target(name, mode);
        Ok(Arc::new(Observing { shared: self.shared.clone(), target }))
    }

    /// Answers that were not gathered, because too many came at once for too many places. They are missing in the figures.
    pub fn missed(&self) -> u64 {
        self.shared.gathering.missed()
    }

    /// Sends what was gathered up to now, and waits until the grantor has it on record. On an error it is kept, and sent
    /// later.
    pub async fn flush(&self) -> Result<(), Error> {
        let mine = self.shared.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        let mut tried = self.shared.tried.subscribe();
        self.shared.wake.notify_one();
        let told = tried.wait_for(|(upto, _)| *upto >= mine).await;
        told.map_or_else(|_| Err(Error::unavailable("the reporter has ended")), |told| told.1.clone())
    }

    /// Sends what is left, and ends.
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

/// One target's ear.
struct Observing {
    shared: Arc<Shared>,
    target: u32,
}

impl Observer for Observing {
    fn told(&self, event: &Event<'_>) {
        self.shared.gathering.add(self.target, event);
    }
}
