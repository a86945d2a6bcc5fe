//! One leads, others wait their turn, and anybody can see who it is. A leader that shuts down hands over at once.

mod observe;

pub use observe::{Leader, Observing};

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, select};
use leasehold_core::holder::NextStep;
use leasehold_core::limits::WAIT_MAX;

use crate::{Client, Code, Error, Failure, Guard, HandOver, Hold, Lock, Stopped};

/// An election: whoever holds its resource leads.
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    resource: String,
    lock: Lock,
}

impl Client {
    /// An election by the name of what is led.
    pub fn election(&self, resource: impl Into<String>) -> Election {
        let resource = resource.into();
        let lock = self.lock(resource.as_str()).wait(Duration::from_millis(WAIT_MAX));
        Election { client: self.clone(), resource, lock }
    }
}

impl Election {
    /// How long a renewal lasts: how long nobody leads if the leader vanishes without a word.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Higher is elected first.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.lock = self.lock.priority(priority);
        self
    }

    /// What everybody is told about this candidate while it leads, such as its address.
    #[must_use]
    pub fn announce(mut self, words: &str) -> Self {
        self.lock = self.lock.metadata(words);
        self
    }

    /// Waits until this client leads, however long. Dropping this takes the candidacy back.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        loop {
            match self.lock.acquire().await.map_err(Failure::into_error) {
                Ok(guard) => return Ok(Leadership { guard }),
                Err(error) if error.code() == Some(Code::Timeout) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Campaigns and leads, again and again, until the work is done or `stop` comes; one that was revoked is not asked for
    /// again. On `stop` it hands over: the work sees [`Hold::draining`] and finishes, and the successor begins when it has,
    /// not when a ttl ran out. None if there was nothing to finish.
    pub async fn lead<T, F, W>(&self, stop: impl Future<Output = ()>, mut work: F) -> Result<Option<T>, Error>
    where
        F: FnMut(Hold) -> W,
        W: Future<Output = T>,
    {
        let mut stop = pin!(stop);
        loop {
            let elected = match select(stop.as_mut(), pin!(self.campaign())).await {
                Either::Left(_) => return Ok(None),
                Either::Right((elected, _)) => elected?,
            };
            let hold = elected.hold().clone();
            let leading = pin!(elected.guard.run(&mut work));
            match select(stop.as_mut(), leading).await {
                Either::Left(((), leading)) => {
                    // Not begun if the way is cut: then the lease goes back when the work returns.
                    let (_, ended) = join(hold.hand_off(HandOver::default()), leading).await;
                    return Ok(ended.ok());
                }
                Either::Right((Ok(done), _)) => return Ok(Some(done)),
                Either::Right((Err(stopped), _)) if stopped.next_step() == NextStep::AcquireAgain => {}
                Either::Right((Err(stopped), _)) => return Err(stopped.into()),
            }
        }
    }
}

/// Being the leader. Whatever the leader writes shows its token; dropping this resigns without waiting for that.
#[must_use = "a leader that is dropped has resigned"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// Resigns and waits until that is on record: the next in line leads at once.
    pub async fn resign(self) -> Result<(), Failure<()>> {
        self.guard.release().await
    }

    /// Hands over as planned: the transfer is announced, `finish` runs, and then the successor leads. With an overlap the
    /// successor is chosen at once and claims when `finish` is done. What does not finish within the drain period is stopped.
    pub async fn hand_over<W: Future>(self, how: HandOver, finish: W) -> Result<W::Output, Stopped> {
        // What cannot be announced is simply given back after the finish.
        let _ = self.guard.hand_off(how).await;
        self.guard.run(|_| finish).await
    }

    /// The guard itself.
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// The lease as the work sees it.
    pub const fn hold(&self) -> &Hold {
        self.guard.hold()
    }
}

impl Deref for Leadership {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.guard.hold()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(self.guard.hold()).finish()
    }
}

#[cfg(test)]
mod tests;
