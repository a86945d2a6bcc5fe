//! Test kit: the real grantor in memory, a clock that the test moves, and faults such as pause, partition and expiry. It uses no
//! network and no sleeps.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::GuardState;
//! use leasehold::testing::TestServer;
//!
//! # leasehold::blocking::block_on(async {
//! let server = TestServer::new();
//! let client = server.client("worker-1");
//! let guard = client.lock("jobs/settle").ttl(Duration::from_secs(5)).acquire().await?;
//! server.partition(&client);
//! server.advance(Duration::from_secs(5));
//! assert_eq!(guard.state(), GuardState::Suspended);
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```

pub use crate::in_memory::{BrokenProperty, FAKE_SUSPEND_FILE, tick_renewals};
/// State of a resource, as [`TestServer::show`] returns it.
pub use leasehold_core::grantor::ResourceView;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::charter::Charter;
use leasehold_core::command::{Answer, Command, LeaseSelector, Revoke};
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::EndReason;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::time::Instant;
use leasehold_core::token::Cluster;

use crate::in_memory::{ManualClock, MemoryLink, MemoryServer};
use crate::transport::Transport;
use crate::{Client, ClientBuilder, Error};

/// Time moves in steps of this size, so that holders and grantor act in between as they do in production.
const STEP: Duration = Duration::from_millis(10);
/// Step of the grantor's clock in [`TestServer::expire`]: small enough not to count as a stall.
const GRANTOR_STEP: Duration = Duration::from_millis(50);

/// A grantor in memory. Time does not pass unless [`TestServer::advance`] moves it. Clones share one grantor.
#[derive(Clone, Debug)]
pub struct TestServer(Arc<TestServerInner>);

#[derive(Debug)]
struct TestServerInner {
    time: Arc<AtomicU64>,
    server: Arc<Mutex<MemoryServer>>,
    links: Mutex<Vec<Arc<MemoryLink>>>,
}

impl TestServer {
    /// A grantor of a new cluster.
    pub fn new() -> Self {
        let time = Arc::new(AtomicU64::new(3_600_000_000_000));
        let server = MemoryServer::new(Instant(time.load(Ordering::Acquire)));
        let server = Arc::new(Mutex::new(server));
        Self(Arc::new(TestServerInner { time, server, links: Mutex::default() }))
    }

    /// A client with this holder name, as in a process of its own. It supports leases, recipes and queries of resources; watches
    /// and administrative calls need a real server.
    pub fn client(&self, holder: &str) -> Client {
        self.client_with(|builder| builder.holder(holder))
    }

    /// A client with other settings: `server.client_with(|client| client.session_ttl(MINUTE))`.
    pub fn client_with(&self, configure: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = Arc::new(ManualClock::new(self.0.time.clone()));
        let link = Arc::new(MemoryLink::new(clock, self.0.server.clone(), links.len() as u64 + 1));
        links.push(link.clone());
        configure(ClientBuilder::in_memory(link)).build()
    }

    /// The cluster id, as in tokens.
    pub fn cluster_id(&self) -> Cluster {
        self.server().issuer().cluster
    }

    /// Lets time pass for the grantor and all holders. Every holder that is not paused acts in between and is idle at the end.
    pub fn advance(&self, by: Duration) {
        let mut remaining = by;
        self.settle();
        while !remaining.is_zero() {
            let step = remaining.min(STEP);
            remaining -= step;
            self.0.time.fetch_add(step.as_nanos() as u64, Ordering::AcqRel);
            self.tick();
            self.settle();
        }
    }

    /// Waits until every holder is idle at the current time.
    pub fn settle(&self) {
        let links = self.links();
        links.iter().for_each(|link| link.clock().disturb());
        let disturbances = || links.iter().map(|link| link.clock().disturbances()).sum::<u64>();
        // The last action of one holder can give another one something to do.
        loop {
            let before = disturbances();
            links.iter().for_each(|link| link.clock().wait_idle());
            if disturbances() == before {
                return;
            }
        }
    }

    /// Pauses a holder, like a stopped process, until [`TestServer::resume`]. Earlier requests are completed first; later ones
    /// are not sent.
    pub fn pause(&self, client: &Client) {
        self.settle();
        with_link(client, |link| link.clock().set_paused(true));
    }

    /// Continues a paused holder. It finds out how late it is.
    pub fn resume(&self, client: &Client) {
        with_link(client, |link| link.clock().set_paused(false));
    }

    /// Cuts a holder off from the grantor. Its stream breaks, and no other is opened until [`TestServer::heal`].
    pub fn partition(&self, client: &Client) {
        with_link(client, |link| link.set_cut(true));
        self.settle();
    }

    /// Drops every reply to a holder until its stream breaks: its requests are executed, and it does not learn the outcome.
    pub fn drop_replies(&self, client: &Client) {
        with_link(client, MemoryLink::drop_replies);
    }

    /// Number of replies to a holder that were dropped.
    pub fn dropped_replies(&self, client: &Client) -> usize {
        match client.servers.transport() {
            Transport::Memory(link) => link.dropped_replies(),
            Transport::Network => 0,
        }
    }

    /// Ends a partition. The holder reconnects by itself within a second of its time.
    pub fn heal(&self, client: &Client) {
        with_link(client, |link| link.set_cut(false));
    }

    /// Advances only the grantor's clock until everything that is held on a resource now has ended. Other leases whose time is
    /// over end as well.
    pub fn expire(&self, resource: &str) {
        let held = || self.show(resource).into_iter().flat_map(|view| view.leases).map(|lease| lease.lease);
        // Later leases are not waited for.
        let ending: BTreeSet<LeaseId> = held().collect();
        let max_steps = TTL_MAX_DEFAULT / GRANTOR_STEP.as_millis() as u64;
        for _ in 0..=max_steps {
            if held().all(|lease| !ending.contains(&lease)) {
                break;
            }
            self.server().ahead += GRANTOR_STEP.as_nanos() as u64;
            self.tick();
        }
        self.settle();
    }

    /// Revokes everything that is held on a resource, as an operator does.
    pub fn revoke(&self, resource: &str) -> Result<(), Error> {
        self.revoke_with_grace(resource, Duration::ZERO)
    }

    /// Revokes everything that is held on a resource, with notice to its holders.
    pub fn revoke_with_grace(&self, resource: &str, grace: Duration) -> Result<(), Error> {
        let (which, reason) = (LeaseSelector::Resource(resource), EndReason::Operator);
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.execute(Command::Revoke(Revoke { selector: which, reason, comment: "test", grace_ms }))
    }

    /// Sets the charter of a prefix.
    pub fn set_charter(&self, prefix: &str, charter: Charter) -> Result<(), Error> {
        self.execute(Command::SetCharter { prefix, charter: Box::new(charter), comment: "test" })
    }

    /// Sets the capacity of a resource.
    pub fn set_capacity(&self, resource: &str, units: u32) -> Result<(), Error> {
        self.execute(Command::SetCapacity { resource, units })
    }

    /// The state of a resource, if it has any.
    pub fn show(&self, resource: &str) -> Option<ResourceView> {
        self.server().grantor().show(resource)
    }

    /// Executes a command without a session.
    pub(crate) fn execute(&self, command: Command<'_>) -> Result<(), Error> {
        let answer = self.server().execute(self.now(), command);
        self.settle();
        match answer {
            Answer::Refused(refusal) => Err(Error::from(&refusal)),
            _ => Ok(()),
        }
    }

    fn tick(&self) {
        self.server().tick(self.now());
    }

    fn now(&self) -> Instant {
        Instant(self.0.time.load(Ordering::Acquire))
    }

    fn server(&self) -> MutexGuard<'_, MemoryServer> {
        self.0.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> Vec<Arc<MemoryLink>> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for TestServer {
    fn default() -> Self {
        Self::new()
    }
}

/// Does nothing for a client of a real server.
fn with_link(client: &Client, act: impl FnOnce(&MemoryLink)) {
    if let Transport::Memory(link) = client.servers.transport() {
        act(link);
    }
}
