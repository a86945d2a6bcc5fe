//! Registrations that end with their session, and a list of them that stays current.

mod roster;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use leasehold_core::command::Event;
use leasehold_core::holder::NextStep;
use leasehold_core::name::Prefix;

use crate::hold::lost;
use crate::look::checked;
use crate::{Client, Code, Error, Failure, Guard, Hold, Lock, Stopped, Watch, Watched};
use roster::Roster;
pub use roster::{Change, Instance};

/// The pause before a registration that was not had is asked for again, in milliseconds.
const PAUSE: u64 = 500;
/// Entries of one page of a listing.
const PAGE: u32 = 500;

/// A registration to be made. Nothing happens before [`Announce::register`].
#[derive(Clone, Debug)]
#[must_use = "nothing is registered before it is asked for"]
pub struct Announce {
    client: Client,
    lock: Lock,
}

/// A registration that stands. It ends when this is dropped, and with the client's session.
#[must_use = "a registration that is dropped ends"]
pub struct Registration(Guard);

impl Client {
    /// An instance of a service, to be found by [`Client::discover`]: the lease on `service/instance`.
    pub fn announce(&self, service: &str, instance: &str) -> Announce {
        Announce { client: self.clone(), lock: self.lock(format!("{service}/{instance}")) }
    }

    /// The instances of a service: those that are there, and then every change. The watch begins before the list is read,
    /// so that nothing falls in between.
    pub async fn discover(&self, service: &str) -> Result<Discovery, Error> {
        checked(Prefix::parse(service))?;
        let (watch, roster) = (None, Roster::new(service));
        let mut discovery =
            Discovery { client: self.clone(), watch, roster, behind: true, unseen: None, changes: VecDeque::new() };
        discovery.catch_up().await?;
        discovery.changes.clear();
        Ok(discovery)
    }
}

impl Announce {
    /// Words for those who look: an address, a version. At most 4,096 bytes.
    pub fn details(mut self, text: &str) -> Self {
        self.lock = self.lock.metadata(text);
        self
    }

    /// How long a renewal lasts: for so long at most an instance that died is still found.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// How long to wait for an earlier instance of the same name to end.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lock = self.lock.wait(wait);
        self
    }

    /// Registers. A name that is taken is refused with BUSY: two instances of one name are never found.
    pub async fn register(&self) -> Result<Registration, Error> {
        self.lock.acquire().await.map(Registration).map_err(Failure::into_error)
    }

    /// Registers and stays registered: again after every expiry, never after a revocation (L6). Tells each registration, and
    /// returns why it is over. Dropping this future ends the registration.
    pub async fn stay(&self, mut told: impl FnMut(&Registration)) -> Error {
        loop {
            match self.register().await {
                Ok(registration) => {
                    told(&registration);
                    let loss = registration.lost().await;
                    if Stopped::Lost(loss).next_step() != NextStep::AcquireAgain {
                        return lost(loss);
                    }
                }
                Err(error) if error.is_unavailable() || error.is_indeterminate() || is_taken(&error) => {
                    match self.client.handle() {
                        Ok(handle) => handle.sleep_ms(PAUSE).await,
                        Err(error) => return error,
                    }
                }
                Err(error) => return error,
            }
        }
    }
}

fn is_taken(error: &Error) -> bool {
    matches!(error.code(), Some(Code::Busy | Code::Timeout))
}

impl Registration {
    /// Ends it, and waits until that is on record.
    pub async fn end(self) -> Result<(), Error> {
        self.0.release().await.map_err(Failure::into_error)
    }
}

/// Whether it stands, and until when.
impl Deref for Registration {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.0.hold()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(self.0.hold()).finish()
    }
}

/// The instances of a service, as far as they were heard of. It changes only inside of [`Discovery::next`].
#[derive(Debug)]
pub struct Discovery {
    client: Client,
    watch: Option<Watch>,
    roster: Roster,
    /// Events may have been missed: the list must be read anew.
    behind: bool,
    /// A resource where something was granted, which must be looked at.
    unseen: Option<String>,
    changes: VecDeque<Change>,
}

impl Discovery {
    /// Who is there, in the order of names.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.roster.instances()
    }

    /// The next change. Where events were missed, the list is read anew, and what differs is told like any other change. An
    /// error means that no server could be asked; call again, and nothing is lost by it. Cancel-safe.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            self.catch_up().await?;
            if !self.changes.is_empty() {
                continue;
            }
            let watch = self.watch.as_mut().expect("whoever has caught up watches");
            match watch.next().await {
                Ok(Watched::Event(happened)) => match happened.event {
                    Event::Granted { .. } => self.unseen = Some(happened.resource().to_owned()),
                    Event::Ended { number, .. } => {
                        self.changes.extend(self.roster.ended(happened.resource(), number.get()));
                    }
                    _ => {}
                },
                Ok(Watched::Again) => self.behind = true,
                Err(error) => {
                    (self.watch, self.behind) = (None, true);
                    return Err(error);
                }
            }
        }
    }

    /// Does what is left to do before the next event. What was begun and dropped is done again.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.watch.is_none() {
            self.watch = Some(self.client.watch(self.roster.service()).await?);
            self.behind = true;
        }
        if self.behind {
            let mut listing = self.client.list(self.roster.service(), 0);
            let mut found = Vec::new();
            while let Some(page) = listing.page(PAGE).await? {
                found.extend(page.into_iter().flat_map(|resource| resource.leases));
            }
            self.changes.extend(self.roster.listed(&found));
            (self.behind, self.unseen) = (false, None);
        }
        if let Some(resource) = &self.unseen {
            let found = match self.client.show(resource).await {
                Ok(shown) => shown.leases,
                Err(error) if error.code() == Some(Code::NotFound) => Vec::new(),
                Err(error) => return Err(error),
            };
            self.changes.extend(self.roster.shown(resource, &found));
            self.unseen = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
