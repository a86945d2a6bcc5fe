//! One worker: its seat, what it owns, what is on its way to it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, FutureExt, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use leasehold_core::command::{Command, HandOff, Style, Which};
use leasehold_core::holder::NextStep;
use leasehold_core::limits::GRACE_MAX;
use leasehold_core::time::Instant;

use super::plan::{Owner, Seen};
use super::{Shard, Shards, WORKERS};
use crate::hold::lost;
use crate::holder::Handle;
use crate::lock::millis;
use crate::{Code, Error, Failure, Guard, HandOver, Hold, State};

/// Shards that one worker asks others for at the same time.
const AT_ONCE: usize = 8;

/// A wait for somebody else's shard.
type Stealing = BoxFuture<'static, (u32, Result<Guard, Failure<Guard>>)>;

/// Somebody who works here. Dropping it gives the seat back; what it owned stays with whoever has the guards.
pub struct Worker {
    of: Shards,
    handle: Arc<Handle>,
    seat: Guard,
    owned: BTreeMap<u32, Hold>,
    stealing: FuturesUnordered<Stealing>,
    gained: VecDeque<(Guard, Shard)>,
    before: Option<Seen>,
    due: Instant,
}

impl Worker {
    pub(super) async fn join(of: Shards) -> Result<Self, Error> {
        let seat = sit(&of).await?;
        Ok(Self {
            handle: of.client.handle()?,
            of,
            seat,
            owned: BTreeMap::new(),
            stealing: FuturesUnordered::new(),
            gained: VecDeque::new(),
            before: None,
            due: Instant::default(),
        })
    }

    /// Waits for the next shard that this worker gets, with the guard that owns it. Between two of them it looks at who has
    /// what, and asks for its share; so it is to be called again and again. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<(Guard, Shard), Error> {
        loop {
            self.collect();
            if let Some(gained) = self.gained.pop_front() {
                return Ok(gained);
            }
            self.handle.check()?;
            if self.handle.clock.now() >= self.due {
                self.due = self.handle.clock.now().plus_millis(millis(self.of.look));
                match self.turn().await {
                    // What is owned is renewed meanwhile; the next look is due soon.
                    Err(error) if error.is_unavailable() || error.is_indeterminate() => tracing::debug!("{error}"),
                    turned => turned?,
                }
                continue;
            }
            let stolen = {
                let handle = self.handle.clone();
                let due = pin!(handle.sleep_until(self.due));
                let stolen = async {
                    match self.stealing.next().await {
                        Some(stolen) => stolen,
                        None => pending().await,
                    }
                };
                match select(due, pin!(stolen)).await {
                    Either::Left(_) => None,
                    Either::Right((stolen, _)) => Some(stolen),
                }
            };
            if let Some((index, told)) = stolen {
                self.came(index, told);
            }
        }
    }

    /// Looks once, takes what is free and asks for what others have too much of. What came of it is told by
    /// [`Worker::gained`].
    pub async fn turn(&mut self) -> Result<(), Error> {
        self.collect();
        match self.seat.state() {
            State::Held => {}
            // Nothing is known about the others now.
            State::Suspended => return Ok(()),
            State::Lost(loss) if loss.next_step() == NextStep::AcquireAgain => {
                self.seat = sit(&self.of).await?;
            }
            State::Lost(loss) => return Err(lost(loss)),
        }
        let seen = look(&self.of).await?;
        let seat = self.seat.token_number().get();
        let plan =
            seen.plan(seat, self.stealing.len(), self.before.as_ref(), AT_ONCE.saturating_sub(self.stealing.len()));
        self.before = Some(seen);
        let free = plan.take.into_iter().map(|index| {
            let lock = self.of.lock(index, seat);
            async move { (index, lock.try_acquire().await) }
        });
        for (index, taken) in join_all(free).await {
            match taken {
                Ok(Some(guard)) => self.gain(index, guard),
                // Somebody else was quicker.
                Ok(None) => {}
                Err(failure) => tracing::debug!("{failure}"),
            }
        }
        for index in plan.steal {
            self.steal(index, seat).await?;
        }
        Ok(())
    }

    /// A shard that this worker got and nobody took out yet.
    pub fn gained(&mut self) -> Option<(Guard, Shard)> {
        self.collect();
        self.gained.pop_front()
    }

    /// How many shards this worker owns now.
    pub fn owns(&self) -> usize {
        self.owned.values().filter(|hold| hold.is_held()).count()
    }

    /// Leaves: asks for nothing any more, and tells the work of every shard to finish. A shard is free as soon as its guard
    /// is given back.
    pub async fn leave(self) {
        let Self { seat, owned, stealing, .. } = self;
        drop(stealing);
        // What cannot be announced is given back all the same.
        let gap = || HandOver { style: Some(Style::Gap), ..HandOver::default() };
        join_all(owned.values().filter(|hold| hold.is_held()).map(|hold| hold.hand_off(gap()))).await;
        let _ = seat.release().await;
    }

    /// Waits for a shard in its queue, and then asks its owner to hand it over. Who is asked already is left alone.
    async fn steal(&mut self, index: u32, seat: u64) -> Result<(), Error> {
        let lock = self.of.lock(index, seat).wait(Duration::from_millis(GRACE_MAX));
        let mut waiting = async move { (index, lock.acquire().await) }.boxed();
        // The first poll puts the wait on its way, before the transfer is asked for.
        if let Some((index, told)) = (&mut waiting).now_or_never() {
            self.came(index, told);
            return Ok(());
        }
        let resource = self.of.name(index);
        let which = Which::Resource(&resource);
        let ask = HandOff { which, number: None, to: None, style: None, drain_ms: None };
        match self.handle.say(&Command::HandOff(ask)).await.map_err(Failure::into_error) {
            Ok(_) => self.stealing.push(waiting),
            // It moves already, or has just become free: this wait is taken back, and the next look finds it.
            Err(error) if matches!(error.code(), Some(Code::Conflict | Code::NotFound)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes in what came meanwhile, and forgets what went.
    fn collect(&mut self) {
        while let Some(Some((index, told))) = self.stealing.next().now_or_never() {
            self.came(index, told);
        }
        self.owned.retain(|_, hold| !matches!(hold.state(), State::Lost(_)));
    }

    fn came(&mut self, index: u32, told: Result<Guard, Failure<Guard>>) {
        match told {
            Ok(guard) => self.gain(index, guard),
            Err(failure) => tracing::debug!("{failure}"),
        }
    }

    fn gain(&mut self, index: u32, guard: Guard) {
        let hold = guard.hold().clone();
        self.owned.insert(index, hold.clone());
        self.gained.push_back((guard, Shard { index, hold, client: self.of.client.clone() }));
    }
}

/// Who works here and who has what.
async fn look(of: &Shards) -> Result<Seen, Error> {
    let mut seen = Seen { owners: vec![Owner::Nobody; of.count as usize], ..Seen::default() };
    let mut listing = of.client.list(&of.prefix, 0);
    while let Some(page) = listing.page(u32::MAX).await? {
        for resource in page {
            let Some(name) = resource.resource.strip_prefix(&*of.prefix).map(|rest| rest.trim_matches('/')) else {
                continue;
            };
            let numbers = resource.leases.iter().filter_map(|lease| lease.token_number.parse::<u64>().ok());
            if name == WORKERS {
                seen.workers.extend(numbers);
            } else if let Some(owner) = name.parse().ok().and_then(|at: usize| seen.owners.get_mut(at)) {
                *owner = match &resource.leases[..] {
                    [] => Owner::Nobody,
                    [one] if one.draining.is_none() => one.metadata.parse().map_or(Owner::Moving, Owner::Of),
                    _ => Owner::Moving,
                };
            }
        }
    }
    Ok(seen)
}

/// A seat among the workers: its number tells them apart.
async fn sit(of: &Shards) -> Result<Guard, Error> {
    let name = format!("{}/{WORKERS}", of.prefix);
    let lock = of.client.lock(name).shared().ttl(of.ttl).metadata(of.client.holder_name());
    lock.acquire().await.map_err(Failure::into_error)
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("seat", &self.seat).field("owned", &self.owned.keys()).finish_non_exhaustive()
    }
}
