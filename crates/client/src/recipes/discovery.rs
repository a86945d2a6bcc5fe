//! Service discovery: registrations that end with their session, and a list of instances that stays current.

mod roster;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use leasehold_core::command::SessionEvent;
use leasehold_core::holder::NextStep;
use leasehold_core::name::Prefix;

use crate::{Client, Code, Error, Guard, LeaseHandle, Lock, RunError, Watch, WatchItem};
use roster::Roster;
pub use roster::{Instance, InstanceChange};

/// Pause before a failed registration is tried again, in milliseconds.
const RETRY_PAUSE: u64 = 500;

/// An instance of a service to register. Nothing is sent before [`ServiceRegistration::register`].
#[derive(Clone, Debug)]
#[must_use = "nothing is registered until `register`"]
pub struct ServiceRegistration {
    client: Client,
    lock: Lock,
}

/// A registered instance. Dropping it, or the end of the client's session, ends the registration.
#[must_use = "dropping a registration ends it"]
pub struct Registration(Guard);

impl Client {
    /// An instance of a service, for [`Client::discover`]: the lease on `service/instance`.
    pub fn service(&self, service: &str, instance: &str) -> ServiceRegistration {
        ServiceRegistration { client: self.clone(), lock: self.lock(format!("{service}/{instance}")) }
    }

    /// The instances of a service now, and a stream of changes. The watch starts before the list is read, so that no change is
    /// missed.
    pub async fn discover(&self, service: &str) -> Result<Discovery, Error> {
        Prefix::parse(service)?;
        let mut follower = RosterFollower {
            client: self.clone(),
            watch: None,
            roster: Roster::new(service),
            outdated: true,
            unread: None,
            changes: VecDeque::new(),
        };
        follower.catch_up().await?;
        follower.changes.clear();
        let instances = follower.roster.instances().map(|instance| (key(instance), instance.clone())).collect();
        let changes = futures::stream::unfold(follower, |mut follower| async move {
            let change = follower.next().await;
            Some((change, follower))
        });
        Ok(Discovery { instances, changes: changes.boxed() })
    }
}

impl ServiceRegistration {
    /// Text for clients of the service, for example an address and a version. At most 4,096 bytes.
    pub fn details(mut self, text: &str) -> Self {
        self.lock = self.lock.metadata(text);
        self
    }

    /// Ttl of the registration: how long an instance that died is still listed at most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Time to wait for an earlier instance of the same name to end.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.lock = self.lock.wait(wait);
        self
    }

    /// Registers the instance. A name in use is refused with `BUSY`: two instances never have the same name.
    pub async fn register(&self) -> Result<Registration, Error> {
        Ok(Registration(self.lock.acquire().await?))
    }

    /// Registers the instance and keeps it registered: again after every expiry, never after a revocation (L6). Calls
    /// `on_registered` for every registration, and returns why the last one ended. Dropping the future ends the registration.
    pub async fn keep_registered(&self, mut on_registered: impl FnMut(&Registration)) -> Error {
        loop {
            match self.register().await {
                Ok(registration) => {
                    on_registered(&registration);
                    let loss = registration.wait_lost().await;
                    if RunError::Lost(loss).next_step() != NextStep::AcquireAgain {
                        return loss.into();
                    }
                }
                Err(error) if error.is_retryable() || error.outcome_unknown() || is_name_in_use(&error) => {
                    match self.client.worker() {
                        Ok(worker) => worker.sleep_ms(RETRY_PAUSE).await,
                        Err(error) => return error,
                    }
                }
                Err(error) => return error,
            }
        }
    }
}

fn is_name_in_use(error: &Error) -> bool {
    matches!(error.code(), Some(Code::Busy | Code::Timeout))
}

impl Registration {
    /// Ends the registration and waits for the confirmation.
    pub async fn deregister(self) -> Result<(), Error> {
        Ok(self.0.release().await?)
    }
}

/// State and deadline of the registration.
impl Deref for Registration {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        self.0.handle()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(self.0.handle()).finish()
    }
}

/// The instances of a service: a list, and a stream of its changes. The list changes only when the stream is polled.
///
/// If events were missed, the list is read again, and differences are reported like other changes. An error means that no server
/// was reachable; poll again, nothing is lost. The stream never ends.
#[must_use = "streams do nothing unless polled"]
pub struct Discovery {
    instances: BTreeMap<(String, u64), Instance>,
    changes: BoxStream<'static, Result<InstanceChange, Error>>,
}

impl Discovery {
    /// The current instances in the order of their names.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values()
    }
}

impl Stream for Discovery {
    type Item = Result<InstanceChange, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let change = ready!(self.changes.as_mut().poll_next(context));
        match &change {
            Some(Ok(InstanceChange::Joined(instance))) => {
                self.instances.insert(key(instance), instance.clone());
            }
            Some(Ok(InstanceChange::Left(instance))) => {
                self.instances.remove(&key(instance));
            }
            Some(Err(_)) | None => {}
        }
        Poll::Ready(change)
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").field("instances", &self.instances).finish_non_exhaustive()
    }
}

fn key(instance: &Instance) -> (String, u64) {
    (instance.name.clone(), instance.number)
}

/// Keeps a roster current with a watch.
struct RosterFollower {
    client: Client,
    watch: Option<Watch>,
    roster: Roster,
    /// Events may have been missed: the list must be read again.
    outdated: bool,
    /// A resource with a new grant that must be read.
    unread: Option<String>,
    changes: VecDeque<InstanceChange>,
}

impl RosterFollower {
    async fn next(&mut self) -> Result<InstanceChange, Error> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            self.catch_up().await?;
            if !self.changes.is_empty() {
                continue;
            }
            let watch = self.watch.as_mut().expect("`catch_up` opens the watch");
            match watch.try_next().await {
                Ok(Some(WatchItem::Event(event))) => match event.event {
                    SessionEvent::Granted { .. } => self.unread = Some(event.resource().to_owned()),
                    SessionEvent::Ended { number, .. } => {
                        self.changes.extend(self.roster.apply_end(event.resource(), number.get()));
                    }
                    _ => {}
                },
                Ok(Some(WatchItem::Reconnected) | None) => self.outdated = true,
                Err(error) => {
                    (self.watch, self.outdated) = (None, true);
                    return Err(error);
                }
            }
        }
    }

    /// Does what is pending before the next event.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.watch.is_none() {
            self.watch = Some(self.client.watch(self.roster.service()).await?);
            self.outdated = true;
        }
        if self.outdated {
            let mut pages = self.client.list(self.roster.service());
            let mut leases = Vec::new();
            while let Some(page) = pages.try_next().await? {
                leases.extend(page.resources.into_iter().flat_map(|resource| resource.leases));
            }
            self.changes.extend(self.roster.apply_list(&leases));
            (self.outdated, self.unread) = (false, None);
        }
        if let Some(resource) = &self.unread {
            let leases = match self.client.show(resource).await {
                Ok(view) => view.leases,
                Err(error) if error.code() == Some(Code::NotFound) => Vec::new(),
                Err(error) => return Err(error),
            };
            self.changes.extend(self.roster.apply_resource(resource, &leases));
            self.unread = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
