//! Pins: readers pin a position, and a garbage collector deletes only below the lowest live pin.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::command::{Answer, Command};
use leasehold_core::name::Name;

use crate::session_worker::{LeaseCall, Response};
use crate::{Client, Error, Guard, LeaseHandle, Lock, RunError};

/// A pin to acquire. Nothing is sent before [`PinBuilder::acquire`].
#[derive(Clone, Debug)]
#[must_use = "a pin builder does nothing until `acquire`"]
pub struct PinBuilder {
    lock: Lock,
}

/// A pinned position: nothing at or above it is collected while the pin is held. Dropping it unpins.
#[must_use = "dropping a pin unpins its position"]
pub struct PinGuard {
    guard: Guard,
    position: u64,
}

impl Client {
    /// A pin of a reader of the resource.
    pub fn pin(&self, resource: impl Into<String>) -> PinBuilder {
        PinBuilder { lock: self.lock(resource).shared() }
    }

    /// Returns the position below which the caller may delete: `below`, unless a live pin is lower. The answer is recorded first:
    /// no one can pin below it any more, so the caller may delete at any later time, and repeat the call after a crash.
    pub async fn collect(&self, resource: &str, below: u64) -> Result<u64, Error> {
        Name::parse(resource)?;
        let command = Command::Collect { resource, below };
        match self.worker()?.session_call(&command).await?.answer {
            Answer::CollectBelow(below) => Ok(below),
            _ => Err(Error::invalid_reply("an answer other than to a collector")),
        }
    }
}

impl PinBuilder {
    /// Ttl of the pin: how long a reader that died delays the collector at most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Longest time that the pin may be held, renewed or not: how long a reader that hangs delays the collector at most.
    pub fn max_hold(mut self, max: Duration) -> Self {
        self.lock = self.lock.max_hold(max);
        self
    }

    /// Pins a position. Read only after this: what was read before may be gone. A position that may have been collected is refused
    /// with `CONFLICT`; read from a newer one.
    pub async fn acquire(&self, position: u64) -> Result<PinGuard, Error> {
        let guard = self.lock.acquire().await?;
        guard.pin(position).await?;
        Ok(PinGuard { guard, position })
    }
}

impl PinGuard {
    /// The pinned position. If the outcome of a move is unknown, the higher of both, which is protected in either case.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Moves the pin forward or backward. A move backward may be refused with `CONFLICT`; then the pin stays where it is.
    pub async fn move_to(&mut self, position: u64) -> Result<(), Error> {
        let before = self.position;
        // Set before the call: a move whose future is dropped or whose reply is lost may have been executed.
        self.position = before.max(position);
        let moved = self.guard.pin(position).await;
        match &moved {
            Ok(()) => self.position = position,
            Err(error) if error.is_retryable() || error.outcome_unknown() => {}
            Err(_) => self.position = before,
        }
        moved
    }

    /// Runs work that reads under the pin. The work is dropped at the local deadline, before a collector may delete what it reads.
    pub async fn run<T, F, W>(self, work: F) -> Result<T, RunError>
    where
        F: FnOnce(LeaseHandle) -> W,
        W: Future<Output = T>,
    {
        self.guard.run(work).await
    }

    /// Unpins and waits for the confirmation.
    pub async fn release(self) -> Result<(), Error> {
        Ok(self.guard.release().await?)
    }
}

/// State and deadline of the pin.
impl Deref for PinGuard {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.guard.handle()
    }
}

impl fmt::Debug for PinGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinGuard").field("lease", self.guard.handle()).field("position", &self.position).finish()
    }
}

impl LeaseHandle {
    /// Sets the pinned position of this lease. Moves no deadline; only renewals do.
    async fn pin(&self, at: u64) -> Result<(), Error> {
        let decode = |response| match response {
            Response::Answer(Answer::Current(_)) => Ok(()),
            _ => Err(Error::invalid_reply("an answer other than to a pin")),
        };
        Ok(self.call(LeaseCall::Pin { at }, decode).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use crate::testing::TestServer;
    use crate::{Code, GuardState};

    const TTL: Duration = Duration::from_secs(3);

    fn pin(client: &Client, position: u64) -> Result<PinGuard, Error> {
        block_on(client.pin("log").ttl(TTL).acquire(position))
    }

    fn collect(client: &Client, below: u64) -> u64 {
        block_on(client.collect("log", below)).expect("the collector needs no lease")
    }

    #[test]
    fn a_collector_deletes_only_below_the_lowest_live_pin() {
        let server = TestServer::new();
        let (first, second, collector) = (server.client("r1"), server.client("r2"), server.client("gc"));
        let low = pin(&first, 10).expect("the position was not collected");
        let mut high = pin(&second, 20).expect("the position was not collected");
        assert_eq!(collect(&collector, 100), 10);
        block_on(low.release()).expect("the pin is held");
        assert_eq!(collect(&collector, 100), 20);
        block_on(high.move_to(25)).expect("a move forward is always allowed");
        assert_eq!((collect(&collector, 100), high.position()), (25, 25));
        drop(high);
        server.advance(Duration::from_millis(50));
        assert_eq!(collect(&collector, 100), 100);
    }

    #[test]
    fn a_position_that_may_have_been_collected_is_refused_and_leaves_no_lease() {
        let server = TestServer::new();
        let (reader, collector) = (server.client("r1"), server.client("gc"));
        assert_eq!(collect(&collector, 10), 10);
        assert_eq!(pin(&reader, 9).expect_err("the position may have been collected").code(), Some(Code::Conflict));
        let mut held = pin(&reader, 10).expect("nothing at the position was collected");
        assert_eq!(
            block_on(held.move_to(9)).expect_err("the position may have been collected").code(),
            Some(Code::Conflict)
        );
        assert_eq!((held.position(), collect(&collector, 100)), (10, 10));
        drop(held);
        server.advance(Duration::from_millis(50));
        assert!(server.show("log").is_none_or(|view| view.leases.is_empty()));
    }

    #[test]
    fn a_reader_that_missed_its_renewals_stops_before_the_collector_may_delete() {
        let server = TestServer::new();
        let (reader, collector) = (server.client("r1"), server.client("gc"));
        let held = pin(&reader, 10).expect("the position was not collected");
        server.partition(&reader);
        let mut stopped_at = None;
        for step in 0..1_000 {
            // Checks the reader first: it must have stopped before anything can be collected.
            if stopped_at.is_none() && held.state() != GuardState::Held {
                stopped_at = Some(step);
            }
            if collect(&collector, 100) > 10 {
                break;
            }
            server.advance(Duration::from_millis(10));
        }
        assert!(stopped_at.is_some(), "the collector deleted under a reader that believed to hold its pin");
        server.heal(&reader);
        server.advance(TTL);
        assert!(matches!(held.state(), GuardState::Lost(_)));
        assert_eq!(pin(&reader, 10).expect_err("the position was collected").code(), Some(Code::Conflict));
    }

    #[test]
    fn work_under_a_pin_that_cannot_be_renewed_is_stopped() {
        let server = TestServer::new();
        let reader = server.client("r1");
        let held = pin(&reader, 10).expect("the position was not collected");
        let work = std::thread::spawn(move || block_on(held.run(|_| std::future::pending::<()>())));
        server.partition(&reader);
        server.advance(2 * TTL);
        let timeout = std::time::Instant::now() + Duration::from_secs(60);
        while !work.is_finished() {
            assert!(std::time::Instant::now() < timeout, "the work was not stopped in time");
            std::thread::yield_now();
        }
        assert_eq!(work.join().expect("the thread did not panic"), Err(RunError::Suspended));
    }

    #[test]
    fn a_reader_that_hangs_delays_the_collector_for_its_max_hold_only() {
        let server = TestServer::new();
        let (reader, collector) = (server.client("r1"), server.client("gc"));
        let held =
            block_on(reader.pin("log").ttl(TTL).max_hold(4 * TTL).acquire(10)).expect("the position was not collected");
        server.advance(3 * TTL);
        assert_eq!((collect(&collector, 100), held.state()), (10, GuardState::Held));
        server.advance(2 * TTL);
        assert_eq!(collect(&collector, 100), 100);
        assert_ne!(held.state(), GuardState::Held);
    }

    #[test]
    fn a_move_whose_future_is_dropped_leaves_the_higher_position() {
        let server = TestServer::new();
        let (reader, collector) = (server.client("r1"), server.client("gc"));
        let mut held = pin(&reader, 10).expect("the position was not collected");
        server.drop_replies(&reader);
        {
            let mut moving = std::pin::pin!(held.move_to(25));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(moving.as_mut().poll(&mut context).is_pending());
            server.settle();
        }
        let below = collect(&collector, 100);
        assert_eq!((below, held.position()), (25, 25), "nothing at or above the reported position is collected");
    }
}
