//! For the tests of programs that hold leases: the real grantor in memory, a clock moved by hand, and the verbs pause,
//! expire and partition. No network, no sleeping.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::State;
//! use leasehold::testing::Grantor;
//!
//! # leasehold::blocking::block_on(async {
//! let grantor = Grantor::new();
//! let client = grantor.client("worker-1");
//! let guard = client.lock("jobs/settle").ttl(Duration::from_secs(5)).acquire().await?;
//! grantor.partition(&client);
//! grantor.advance(Duration::from_secs(5));
//! assert_eq!(guard.state(), State::Suspended);
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```

mod door;
mod hand;
mod slept;
mod world;

pub(crate) use door::{Connection, Door};
pub(crate) use hand::Hand;
pub use slept::SLEPT;
pub(crate) use slept::slept;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::charter::Charter;
use leasehold_core::command::{Answer, Command, Revoke, Which};
use leasehold_core::grantor::ResourceView;
use leasehold_core::ids::LeaseId;
use leasehold_core::lease::Reason;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::time::Instant;

use crate::stream::Link;
use crate::{Client, Endpoints, Error, Options};
use world::World;

/// Time moves in steps of this, so that holders and grantor act in between as they do in service.
const STEP: Duration = Duration::from_millis(10);
/// The grantor's own clock moves in steps that are no stall.
const TICK: Duration = Duration::from_millis(50);

/// A grantor in memory. Time stands still unless [`Grantor::advance`] moves it.
#[derive(Clone, Debug)]
pub struct Grantor(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    time: Arc<AtomicU64>,
    world: Arc<Mutex<World>>,
    doors: Mutex<Vec<Arc<Door>>>,
}

impl Grantor {
    /// A grantor of a new cluster.
    pub fn new() -> Self {
        let time = Arc::new(AtomicU64::new(3_600_000_000_000));
        let world = World::new(Instant(time.load(Ordering::Acquire)));
        Self(Arc::new(Shared { time, world: Arc::new(Mutex::new(world)), doors: Mutex::default() }))
    }

    /// A client of this grantor, as a process of its own. Leases, recipes and looks are there; watches
    /// and what operators do are not.
    pub fn client(&self, holder: &str) -> Client {
        self.client_with(Options { holder: Some(holder.to_owned()), ..Options::default() })
    }

    /// The same with other options.
    pub fn client_with(&self, options: Options) -> Client {
        let mut doors = self.0.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let hand = Arc::new(Hand::new(self.0.time.clone()));
        let door = Arc::new(Door::new(hand, self.0.world.clone(), doors.len() as u64 + 1));
        doors.push(door.clone());
        Client::linked(Endpoints::none(), options, Link::Memory(door))
    }

    /// Lets time pass for everybody. Every holder that is not paused acts in between, and has come to rest at the end.
    pub fn advance(&self, by: Duration) {
        let mut left = by;
        self.settle();
        while !left.is_zero() {
            let step = left.min(STEP);
            left -= step;
            self.0.time.fetch_add(step.as_nanos() as u64, Ordering::AcqRel);
            self.tick();
            self.settle();
        }
    }

    /// Waits until no holder has anything left to do at this moment.
    pub fn settle(&self) {
        let doors = self.doors();
        doors.iter().for_each(|door| door.hand().disturb());
        let disturbed = || doors.iter().map(|door| door.hand().disturbed()).sum::<u64>();
        // What one does last can give another something to do.
        loop {
            let before = disturbed();
            doors.iter().for_each(|door| door.hand().rest());
            if disturbed() == before {
                return;
            }
        }
    }

    /// Stops a holder where it stands, as a stopped process: time passes it by until [`Grantor::resume`]. What it was asked
    /// before is done first, what it is asked from now on is not.
    pub fn pause(&self, client: &Client) {
        self.settle();
        of(client, |door| door.hand().pause(true));
    }

    /// Lets a paused holder go on. It finds out how late it is.
    pub fn resume(&self, client: &Client) {
        of(client, |door| door.hand().pause(false));
    }

    /// Cuts a holder off from the grantor. Its connection breaks, and no other is made until [`Grantor::heal`].
    pub fn partition(&self, client: &Client) {
        of(client, |door| door.cut(true));
        self.settle();
    }

    /// Loses every answer on the way to a holder, until its connection breaks: what it asks happens, and it is not told.
    pub fn deafen(&self, client: &Client) {
        of(client, Door::deafen);
    }

    /// How many answers were lost on the way to a holder.
    pub fn unheard(&self, client: &Client) -> usize {
        match &client.shared.link {
            Link::Memory(door) => door.unheard(),
            Link::Wire => 0,
        }
    }

    /// Joins a holder with the grantor again; it comes back by itself within a second of its time.
    pub fn heal(&self, client: &Client) {
        of(client, |door| door.cut(false));
    }

    /// Moves the grantor's clock alone, until what is held on a resource now has ended; so has everything else that had no
    /// more time left.
    pub fn expire(&self, resource: &str) {
        let held = || self.show(resource).into_iter().flat_map(|shown| shown.leases).map(|lease| lease.lease);
        // Whoever comes after them stays.
        let ends: BTreeSet<LeaseId> = held().collect();
        let most = TTL_MAX_DEFAULT / TICK.as_millis() as u64;
        for _ in 0..=most {
            if held().all(|lease| !ends.contains(&lease)) {
                break;
            }
            self.world().ahead += TICK.as_nanos() as u64;
            self.tick();
        }
        self.settle();
    }

    /// Takes what is held on a resource away, as an operator does.
    pub fn revoke(&self, resource: &str) -> Result<(), Error> {
        let (which, reason) = (Which::Resource(resource), Reason::Operator);
        self.operate(Command::Revoke(Revoke { which, reason, why: "a test", grace_ms: 0 }))
    }

    /// Sets the charter of a prefix.
    pub fn set_charter(&self, prefix: &str, charter: Charter) -> Result<(), Error> {
        self.operate(Command::SetCharter { prefix, charter: Box::new(charter), why: "a test" })
    }

    /// What stands at a resource, if anything does.
    pub fn show(&self, resource: &str) -> Option<ResourceView> {
        self.world().grantor().show(resource)
    }

    /// Does what only operators do.
    pub fn operate(&self, command: Command<'_>) -> Result<(), Error> {
        let answer = self.world().ask(self.now(), command);
        self.settle();
        match answer {
            Answer::Refused(refusal) => Err(Error::from(&refusal)),
            _ => Ok(()),
        }
    }

    fn tick(&self) {
        self.world().tick(self.now());
    }

    fn now(&self) -> Instant {
        Instant(self.0.time.load(Ordering::Acquire))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doors(&self) -> Vec<Arc<Door>> {
        self.0.doors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for Grantor {
    fn default() -> Self {
        Self::new()
    }
}

/// A client of a real server has no door here, and nothing happens to it.
fn of(client: &Client, act: impl FnOnce(&Door)) {
    if let Link::Memory(door) = &client.shared.link {
        act(door);
    }
}
