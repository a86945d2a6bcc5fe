//! Readers pin a position, and a collector deletes only below the lowest live pin.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::command::{Answer, Command};
use leasehold_core::name::Name;

use crate::holder::{Call, Given};
use crate::look::checked;
use crate::{Client, Error, Failure, Guard, Hold, Lock, Stopped};

/// A pin to be asked for. Nothing happens before [`Pin::at`].
#[derive(Clone, Debug)]
#[must_use = "nothing is pinned before a position is named"]
pub struct Pin {
    lock: Lock,
}

/// A position that is pinned: nothing at it or above it is collected for as long as this is held. Dropping it unpins.
#[must_use = "a pin that is dropped protects nothing"]
pub struct Pinned {
    guard: Guard,
    at: u64,
}

impl Client {
    /// A pin among those of a resource's readers.
    pub fn pin(&self, resource: impl Into<String>) -> Pin {
        Pin { lock: self.lock(resource).shared() }
    }

    /// Asks how far one may delete: below this, unless a live pin is lower. What is answered is on record first: nobody pins
    /// below it any more, so it may be deleted at any later time, and asked for again after a crash.
    pub async fn collect(&self, resource: &str, below: u64) -> Result<u64, Error> {
        checked(Name::parse(resource))?;
        let command = Command::Collect { resource, below };
        match self.handle()?.say(&command).await.map_err(Failure::into_error)?.answer {
            Answer::CollectBelow(below) => Ok(below),
            _ => Err(Error::garbled("another answer than to a collector")),
        }
    }
}

impl Pin {
    /// How long a renewal lasts: for so long at most a reader that died keeps the collector waiting.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// The longest a pin may be held, renewed or not: for so long at most a reader that hangs keeps the collector waiting.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.lock = self.lock.max_hold(most);
        self
    }

    /// Pins a position. Look at what is there only after this: what was found before may be gone. A position that may have
    /// been collected is refused with CONFLICT; read from a newer one.
    pub async fn at(&self, at: u64) -> Result<Pinned, Error> {
        let guard = self.lock.acquire().await.map_err(Failure::into_error)?;
        guard.pin(at).await?;
        Ok(Pinned { guard, at })
    }
}

impl Pinned {
    /// The position: while it is not known which of two the grantor has, the higher one, which is kept in any case.
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// Moves the pin, forwards or backwards. Backwards it may be refused with CONFLICT, and then stays where it is.
    pub async fn move_to(&mut self, at: u64) -> Result<(), Error> {
        let before = self.at;
        // Set before it is asked for: a move that is given up, or whose answer is lost, may have been made.
        self.at = before.max(at);
        let moved = self.guard.pin(at).await;
        match &moved {
            Ok(()) => self.at = at,
            Err(error) if error.is_unavailable() || error.is_indeterminate() => {}
            Err(_) => self.at = before,
        }
        moved
    }

    /// Reads under the pin. The work is dropped at the local deadline, before a collector may delete what it reads.
    pub async fn run<T, F, W>(self, work: F) -> Result<T, Stopped>
    where
        F: FnOnce(Hold) -> W,
        W: Future<Output = T>,
    {
        self.guard.run(work).await
    }

    /// Unpins, and waits until that is on record.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await.map_err(Failure::into_error)
    }
}

/// Whether it is still held, and until when.
impl Deref for Pinned {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.guard.hold()
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("hold", self.guard.hold()).field("at", &self.at).finish()
    }
}

impl Hold {
    /// What the answer says about the lease moves no deadline; renewals do.
    async fn pin(&self, at: u64) -> Result<(), Error> {
        let read = |given| match given {
            Given::Answer(Answer::Current(_)) => Ok(()),
            _ => Err(Error::garbled("another answer than to a pin")),
        };
        self.call(Call::Pin { at }, read).await.map_err(Failure::into_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;
    use crate::testing::Grantor;
    use crate::{Code, State};

    const TTL: Duration = Duration::from_secs(3);

    fn pin(client: &Client, at: u64) -> Result<Pinned, Error> {
        block_on(client.pin("log").ttl(TTL).at(at))
    }

    fn collect(client: &Client, below: u64) -> u64 {
        block_on(client.collect("log", below)).expect("anybody may ask")
    }

    #[test]
    fn a_collector_deletes_only_below_the_lowest_live_pin() {
        let grantor = Grantor::new();
        let (first, second, collector) = (grantor.client("r1"), grantor.client("r2"), grantor.client("gc"));
        let low = pin(&first, 10).expect("nothing was collected");
        let mut high = pin(&second, 20).expect("nothing was collected");
        assert_eq!(collect(&collector, 100), 10);
        block_on(low.release()).expect("it is held");
        assert_eq!(collect(&collector, 100), 20);
        block_on(high.move_to(25)).expect("forwards always goes");
        assert_eq!((collect(&collector, 100), high.position()), (25, 25));
        drop(high);
        grantor.advance(Duration::from_millis(50));
        assert_eq!(collect(&collector, 100), 100);
    }

    #[test]
    fn what_may_have_been_collected_is_not_pinned_and_leaves_no_lease_behind() {
        let grantor = Grantor::new();
        let (reader, collector) = (grantor.client("r1"), grantor.client("gc"));
        assert_eq!(collect(&collector, 10), 10);
        assert_eq!(pin(&reader, 9).expect_err("it may be gone").code(), Some(Code::Conflict));
        let mut held = pin(&reader, 10).expect("nothing at it was collected");
        assert_eq!(block_on(held.move_to(9)).expect_err("it may be gone").code(), Some(Code::Conflict));
        assert_eq!((held.position(), collect(&collector, 100)), (10, 10));
        drop(held);
        grantor.advance(Duration::from_millis(50));
        assert!(grantor.show("log").is_none_or(|shown| shown.leases.is_empty()));
    }

    #[test]
    fn a_reader_that_slept_over_its_pin_stops_before_the_collector_may_delete() {
        let grantor = Grantor::new();
        let (reader, collector) = (grantor.client("r1"), grantor.client("gc"));
        let held = pin(&reader, 10).expect("nothing was collected");
        grantor.partition(&reader);
        let mut stopped_at = None;
        for step in 0..1_000 {
            // The reader's own clock is looked at first: it must have stopped by the time that anything can go.
            if stopped_at.is_none() && held.state() != State::Held {
                stopped_at = Some(step);
            }
            if collect(&collector, 100) > 10 {
                break;
            }
            grantor.advance(Duration::from_millis(10));
        }
        assert!(stopped_at.is_some(), "it was collected under a reader that thought it held");
        grantor.heal(&reader);
        grantor.advance(TTL);
        assert!(matches!(held.state(), State::Lost(_)));
        assert_eq!(pin(&reader, 10).expect_err("it is gone").code(), Some(Code::Conflict));
    }

    #[test]
    fn reading_under_a_pin_that_cannot_be_kept_is_stopped() {
        let grantor = Grantor::new();
        let reader = grantor.client("r1");
        let held = pin(&reader, 10).expect("nothing was collected");
        let work = std::thread::spawn(move || block_on(held.run(|_| std::future::pending::<()>())));
        grantor.partition(&reader);
        grantor.advance(2 * TTL);
        let over = std::time::Instant::now() + Duration::from_secs(60);
        while !work.is_finished() {
            assert!(std::time::Instant::now() < over, "it was never stopped");
            std::thread::yield_now();
        }
        assert_eq!(work.join().expect("it ran"), Err(Stopped::Suspended));
    }

    #[test]
    fn a_reader_that_hangs_keeps_the_collector_waiting_for_its_longest_hold_only() {
        let grantor = Grantor::new();
        let (reader, collector) = (grantor.client("r1"), grantor.client("gc"));
        let held = block_on(reader.pin("log").ttl(TTL).max_hold(4 * TTL).at(10)).expect("nothing was collected");
        grantor.advance(3 * TTL);
        assert_eq!((collect(&collector, 100), held.state()), (10, State::Held));
        grantor.advance(2 * TTL);
        assert_eq!(collect(&collector, 100), 100);
        assert_ne!(held.state(), State::Held);
    }

    #[test]
    fn a_move_that_was_given_up_on_its_way_leaves_the_higher_position() {
        let grantor = Grantor::new();
        let (reader, collector) = (grantor.client("r1"), grantor.client("gc"));
        let mut held = pin(&reader, 10).expect("nothing was collected");
        grantor.deafen(&reader);
        {
            let mut moving = std::pin::pin!(held.move_to(25));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(moving.as_mut().poll(&mut context).is_pending());
            grantor.settle();
        }
        let below = collect(&collector, 100);
        assert_eq!((below, held.position()), (25, 25), "nothing that it says to have pinned is collected");
    }
}
