//! A worker of a sharded set: its registration, its shards, and the shards that it waits for.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::future::{BoxFuture, Either, FutureExt, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use leasehold_core::command::{Command, Handoff, HandoffMode, LeaseSelector};
use leasehold_core::holder::NextStep;
use leasehold_core::limits::GRACE_MAX;
use leasehold_core::time::Instant;

use super::plan::{ShardOwner, ShardSnapshot};
use super::{Shard, Shards, WORKERS};
use crate::lock_builder::millis;
use crate::session_worker::WorkerHandle;
use crate::{AcquireError, Code, Error, Guard, GuardState, HandoffOptions, LeaseHandle};

/// Shards that one worker requests from others at the same time.
const MAX_REQUESTED: usize = 8;

/// A wait for a shard of another worker.
type RequestedShard = BoxFuture<'static, (u32, Result<Guard, AcquireError>)>;

/// A worker. Dropping it ends its registration; its shards stay with the owners of their guards.
pub struct ShardWorker {
    shards: Shards,
    worker: Arc<WorkerHandle>,
    /// Lease on the workers' resource; its token number identifies this worker.
    registration: Guard,
    owned: BTreeMap<u32, LeaseHandle>,
    requested: FuturesUnordered<RequestedShard>,
    assigned: VecDeque<(Guard, Shard)>,
    previous: Option<ShardSnapshot>,
    due: Instant,
}

impl ShardWorker {
    pub(super) async fn join(shards: Shards) -> Result<Self, Error> {
        let registration = register(&shards).await?;
        Ok(Self {
            worker: shards.client.worker()?,
            shards,
            registration,
            owned: BTreeMap::new(),
            requested: FuturesUnordered::new(),
            assigned: VecDeque::new(),
            previous: None,
            due: Instant::default(),
        })
    }

    /// Waits for the next shard that this worker gets, with the guard that owns it. It also rebalances at every poll interval, so
    /// call it in a loop. Cancel-safe.
    pub async fn next_assignment(&mut self) -> Result<(Guard, Shard), Error> {
        loop {
            self.collect();
            if let Some(assignment) = self.assigned.pop_front() {
                return Ok(assignment);
            }
            self.worker.check_running()?;
            if self.worker.clock.now() >= self.due {
                self.due = self.worker.clock.now().plus_millis(millis(self.shards.poll_interval));
                match self.rebalance().await {
                    // Owned shards are still renewed; the next step follows soon.
                    Err(error) if error.is_retryable() || error.outcome_unknown() => {
                        tracing::debug!(%error, "rebalancing failed");
                    }
                    result => result?,
                }
                continue;
            }
            let granted = {
                let worker = self.worker.clone();
                let due = pin!(worker.sleep_until(self.due));
                let granted = async {
                    match self.requested.next().await {
                        Some(granted) => granted,
                        None => pending().await,
                    }
                };
                match select(due, pin!(granted)).await {
                    Either::Left(_) => None,
                    Either::Right((granted, _)) => Some(granted),
                }
            };
            if let Some((index, result)) = granted {
                self.handle_requested(index, result);
            }
        }
    }

    /// The assignments as a stream. It never ends; after an error, polling again tries again.
    pub fn into_stream(self) -> impl Stream<Item = Result<(Guard, Shard), Error>> + Send {
        futures::stream::unfold(self, |mut worker| async move {
            let assignment = worker.next_assignment().await;
            Some((assignment, worker))
        })
    }

    /// Runs one rebalancing step: acquires free shards, and requests shards from workers with too many.
    /// [`ShardWorker::take_assignment`] returns what it acquired.
    pub async fn rebalance(&mut self) -> Result<(), Error> {
        self.collect();
        match self.registration.state() {
            GuardState::Held => {}
            // Nothing is known about the other workers now.
            GuardState::Suspended => return Ok(()),
            GuardState::Lost(loss) if loss.next_step() == NextStep::AcquireAgain => {
                self.registration = register(&self.shards).await?;
            }
            GuardState::Lost(loss) => return Err(loss.into()),
        }
        let snapshot = snapshot(&self.shards).await?;
        let me = self.registration.token_number().get();
        let requested = self.requested.len();
        let plan = snapshot.plan(me, requested, self.previous.as_ref(), MAX_REQUESTED.saturating_sub(requested));
        self.previous = Some(snapshot);
        let free = plan.acquire.into_iter().map(|index| {
            let lock = self.shards.lock(index, me);
            async move { (index, lock.try_acquire().await) }
        });
        for (index, acquired) in join_all(free).await {
            match acquired {
                Ok(Some(guard)) => self.assign(index, guard),
                // Another worker was faster.
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, shard = index, "shard not acquired"),
            }
        }
        for index in plan.request {
            self.request(index, me).await?;
        }
        Ok(())
    }

    /// A shard that this worker has acquired and not returned yet.
    pub fn take_assignment(&mut self) -> Option<(Guard, Shard)> {
        self.collect();
        self.assigned.pop_front()
    }

    /// Number of shards that this worker owns now.
    pub fn owned_count(&self) -> usize {
        self.owned.values().filter(|handle| handle.is_held()).count()
    }

    /// Leaves the set: requests nothing more, and starts to drain every shard. A shard is free as soon as its guard is released.
    pub async fn leave(self) {
        let Self { registration, owned, requested, .. } = self;
        drop(requested);
        // A shard whose handoff cannot start is released all the same.
        let gap = || HandoffOptions::new().mode(HandoffMode::Gap);
        join_all(owned.values().filter(|handle| handle.is_held()).map(|handle| handle.handoff(gap()))).await;
        let _ = registration.release().await;
    }

    /// Waits in the queue of a shard, and then asks its owner for a handoff. Leaves a shard alone that already moves.
    async fn request(&mut self, index: u32, me: u64) -> Result<(), Error> {
        let lock = self.shards.lock(index, me).wait(Duration::from_millis(GRACE_MAX));
        let mut waiting = async move { (index, lock.acquire().await) }.boxed();
        // The first poll submits the wait, before the handoff starts.
        if let Some((index, result)) = (&mut waiting).now_or_never() {
            self.handle_requested(index, result);
            return Ok(());
        }
        let resource = self.shards.name(index);
        let selector = LeaseSelector::Resource(&resource);
        let handoff = Handoff { selector, number: None, to: None, mode: None, drain_ms: None };
        match self.worker.session_call(&Command::Handoff(handoff)).await.map_err(Error::from) {
            Ok(_) => self.requested.push(waiting),
            // It already moves, or has just become free: cancels this wait; the next snapshot shows it.
            Err(error) if matches!(error.code(), Some(Code::Conflict | Code::NotFound)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Collects granted shards, and removes lost ones.
    fn collect(&mut self) {
        while let Some(Some((index, result))) = self.requested.next().now_or_never() {
            self.handle_requested(index, result);
        }
        self.owned.retain(|_, handle| !matches!(handle.state(), GuardState::Lost(_)));
    }

    fn handle_requested(&mut self, index: u32, result: Result<Guard, AcquireError>) {
        match result {
            Ok(guard) => self.assign(index, guard),
            Err(error) => tracing::debug!(%error, shard = index, "shard not acquired"),
        }
    }

    fn assign(&mut self, index: u32, guard: Guard) {
        let handle = guard.handle().clone();
        self.owned.insert(index, handle.clone());
        self.assigned.push_back((guard, Shard { index, handle, client: self.shards.client.clone() }));
    }
}

/// Reads the workers and the owners of all shards.
async fn snapshot(shards: &Shards) -> Result<ShardSnapshot, Error> {
    let owners = vec![ShardOwner::Free; shards.count as usize];
    let mut snapshot = ShardSnapshot { owners, ..ShardSnapshot::default() };
    let mut pages = shards.client.list(&shards.prefix);
    while let Some(page) = pages.try_next().await? {
        for resource in page.resources {
            let Some(name) = resource.resource.strip_prefix(&*shards.prefix).map(|rest| rest.trim_matches('/')) else {
                continue;
            };
            let numbers = resource.leases.iter().filter_map(|lease| lease.token_number.parse::<u64>().ok());
            if name == WORKERS {
                snapshot.workers.extend(numbers);
            } else if let Some(owner) = name.parse().ok().and_then(|index: usize| snapshot.owners.get_mut(index)) {
                *owner = match &resource.leases[..] {
                    [] => ShardOwner::Free,
                    [lease] if lease.draining.is_none() => {
                        lease.metadata.parse().map_or(ShardOwner::Moving, ShardOwner::Worker)
                    }
                    _ => ShardOwner::Moving,
                };
            }
        }
    }
    Ok(snapshot)
}

/// Registers a worker. The token number of the lease identifies it.
async fn register(shards: &Shards) -> Result<Guard, Error> {
    let name = format!("{}/{WORKERS}", shards.prefix);
    let lock = shards.client.lock(name).shared().ttl(shards.ttl).metadata(shards.client.holder_name());
    Ok(lock.acquire().await?)
}

impl fmt::Debug for ShardWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardWorker")
            .field("registration", &self.registration)
            .field("owned", &self.owned.keys())
            .finish_non_exhaustive()
    }
}
