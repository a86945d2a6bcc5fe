//! The state of a grantor: the fold of its records. Only `apply` changes it.
//!
//! There is one exception: a renewal moves a deadline in memory (`RenewableDeadline::renew`), and replay never depends on it.

pub(crate) mod actors;
pub(crate) mod deadline;
pub(crate) mod ended;
pub(crate) mod ended_holds;
pub(crate) mod lease;
pub(crate) mod number_gaps;
pub(crate) mod owners;
pub(crate) mod proposals;
pub(crate) mod resource;
pub(crate) mod traces;
pub(crate) mod vacant_names;

mod apply;
mod links;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};

use crate::access::IdentityUsage;
use crate::charter::{Charter, Charters, TokenOnRenewal};
use crate::coverage::{CoverageTable, HoleCounts};
use crate::ids::LeaseId;
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::payload::{cache::CacheTable, delivery::QueueTable, state::StateTable};
use crate::refusal::Cycle;
use crate::store::index::NameHash;
use crate::store::slab::Slab;
use crate::store::timer_wheel::TimerWheel;
use crate::time::{GrantorTime, WallClock};
use crate::token::{Cluster, Incarnation, Number};

use actors::{Actors, SessionEntry, Waiter};
use deadline::StallClock;
use ended::{EndedLeases, Usage};
use ended_holds::HoldCollector;
use lease::{LeaseExtra, StoredLease};
use number_gaps::NumberGaps;
use owners::Owners;
use proposals::Proposals;
use resource::Resources;
use traces::Traces;

/// All state of a grantor.
pub(crate) struct GrantorTable {
    pub identity: Option<ClusterIdentity>,
    /// Live sessions that carry only waits, by the digest of their secret, which may be that of an idempotency key. Derived.
    pub key_sessions: BTreeMap<[u8; 32], u32>,
    pub generation: u64,
    /// Grantor time and wall clock of the turn.
    pub time: GrantorTime,
    pub wall: WallClock,
    /// Grantor time and wall clock of the last batch, which replay knows.
    pub recorded: (GrantorTime, WallClock),
    /// The digest of the last batch.
    pub chain: [u8; 32],
    /// The highest number issued, or raised to.
    pub counter: u64,
    pub clock: StallClock,
    pub quarantine: Option<Quarantine>,
    /// An operator waived a quarantine after a rollback that would have lasted until then; further proofs in this tenure start none.
    pub waived_until: GrantorTime,
    /// Numbers below the counter that were never issued.
    pub gaps: NumberGaps,
    pub leases: Slab<StoredLease>,
    pub extras: BTreeMap<u32, Box<LeaseExtra>>,
    pub resources: Resources,
    pub actors: Actors,
    pub owners: Owners,
    pub sessions: Slab<SessionEntry>,
    pub waiters: Slab<Waiter>,
    /// The order of the next wait among all waits.
    pub next_order: u64,
    pub ended_leases: EndedLeases,
    /// All ends by reason, and the ends of holders that are not counted by name.
    pub totals: Usage,
    pub others: Usage,
    pub counted_holders: usize,
    pub charters: Charters,
    /// When a charter last changed, and the counter then: earlier grants may carry other terms.
    pub charters_changed_at: (GrantorTime, u64),
    pub deadlocks: VecDeque<Deadlock>,
    pub deadlocks_found: u64,
    pub state_table: StateTable,
    pub queues: QueueTable,
    pub cache: CacheTable,
    pub coverage: CoverageTable,
    /// Derived from the charters and the coverage.
    pub holes: HoleCounts,
    pub proposals: Proposals,
    /// Which leases and waits belong to a distributed trace.
    pub traces: Traces,
    pub due: PendingWork,
}

/// Derived data that is not part of the state: timers, and pending work of this turn.
pub(crate) struct PendingWork {
    pub leases: TimerWheel,
    pub sessions: TimerWheel,
    pub waiters: TimerWheel,
    /// Resources to offer to their waiters.
    pub offers: VecDeque<u32>,
    /// Leases that ended since the last drain.
    pub ended: Vec<LeaseEnd>,
    /// Waiting actors that lost a lease since the last drain: they may have lost inherited priority.
    pub released_actors: Vec<u32>,
    /// Whether `ended` and `released_actors` are collected; not during replay.
    pub listening: bool,
    /// Number of charters that rotate the token on renewal.
    pub rotating: usize,
    /// Number of applied records: while it is unchanged, no lease or wait began or ended.
    pub applied: u64,
    /// Holds that ended since the last turn, for traces.
    pub holds: HoldCollector,
}

/// A lease that just ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseEnd {
    pub lease: LeaseId,
    pub number: Number,
    pub reason: EndReason,
    /// The session that carried it, by slot and reuse count.
    pub session: Option<(u32, u32)>,
    /// The successor in an overlap handoff.
    pub successor: Option<u32>,
}

/// Identity of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterIdentity {
    pub cluster: Cluster,
    pub incarnation: Incarnation,
    pub max_ttl: u64,
}

/// A period without grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    pub until: GrantorTime,
    pub rolled_back: bool,
}

/// A detected deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Time of detection, in grantor time.
    pub at: GrantorTime,
    /// The members.
    pub cycle: Cycle,
    /// Name of the victim; empty if the deadlock was only reported.
    pub victim: String,
}

impl GrantorTable {
    pub fn new(hash_seed: u64) -> Self {
        let hash = NameHash::new(hash_seed);
        Self {
            identity: None,
            key_sessions: BTreeMap::new(),
            generation: 0,
            time: GrantorTime(0),
            wall: WallClock(0),
            recorded: (GrantorTime(0), WallClock(0)),
            chain: [0; 32],
            counter: 0,
            clock: StallClock::default(),
            quarantine: None,
            waived_until: GrantorTime(0),
            gaps: NumberGaps::default(),
            leases: Slab::with_keep(limits::ENDED_LEASES),
            extras: BTreeMap::new(),
            resources: Resources::new(hash.clone()),
            actors: Actors::new(hash.clone()),
            owners: Owners::new(hash),
            sessions: Slab::with_keep(limits::ENDED_SESSIONS),
            waiters: Slab::with_keep(0),
            next_order: 0,
            ended_leases: EndedLeases::default(),
            totals: Usage::default(),
            others: Usage::default(),
            counted_holders: 0,
            charters: Charters::default(),
            charters_changed_at: (GrantorTime(0), 0),
            deadlocks: VecDeque::new(),
            deadlocks_found: 0,
            state_table: StateTable::default(),
            queues: QueueTable::default(),
            cache: CacheTable::default(),
            coverage: CoverageTable::default(),
            holes: HoleCounts::default(),
            proposals: Proposals::default(),
            traces: Traces::default(),
            due: PendingWork {
                leases: TimerWheel::new(GrantorTime(0)),
                sessions: TimerWheel::new(GrantorTime(0)),
                waiters: TimerWheel::new(GrantorTime(0)),
                offers: VecDeque::new(),
                ended: Vec::new(),
                released_actors: Vec::new(),
                listening: false,
                rotating: 0,
                applied: 0,
                holds: HoldCollector::default(),
            },
        }
    }

    pub fn max_ttl(&self) -> u64 {
        self.identity.map_or(limits::TTL_MAX_DEFAULT, |identity| identity.max_ttl)
    }

    /// Stores when the charters changed.
    fn store_charter_change(&mut self) {
        self.charters_changed_at = (self.time, self.counter);
        self.count_rotating();
    }

    /// Whether a lease was granted under the current charters, so that its grant carries their terms.
    pub fn granted_under_current_charters(&self, lease: &StoredLease) -> bool {
        let (at, counter) = self.charters_changed_at;
        lease.granted() > at || (lease.granted() == at && lease.number().get() > counter)
    }

    /// Counts the charters that rotate the token on renewal, so that renewals can skip the check if there are none.
    fn count_rotating(&mut self) {
        let rotates = |charter: &Charter| charter.token_on_renewal == TokenOnRenewal::Rotate;
        self.due.rotating = self.charters.iter().filter(|(_, charter)| rotates(charter)).count();
    }

    /// The charter of a resource, if one covers it.
    pub fn charter(&self, name: &str) -> Option<&Charter> {
        if self.charters.is_empty() { None } else { self.charters.find(name).map(|(_, charter)| charter) }
    }

    /// The charter of a resource by slot; without charters no name is read.
    pub fn charter_of(&self, resource: u32) -> Option<&Charter> {
        if self.charters.is_empty() { None } else { self.charter(self.resources.name(resource)) }
    }

    /// Units of a resource: as set by command, as its charter says, or one.
    pub fn capacity(&self, resource: u32) -> u32 {
        let set = self.resources.state(resource).and_then(|state| state.capacity);
        set.or_else(|| self.charter_of(resource).and_then(|charter| charter.capacity)).unwrap_or(1)
    }

    #[inline]
    pub fn lease(&self, slot: u32) -> &StoredLease {
        self.leases.at(slot).expect("a live lease").1
    }

    pub fn lease_id(&self, slot: u32) -> LeaseId {
        let (reuse, _) = self.leases.at(slot).expect("a live lease");
        LeaseId { slot, reuse }
    }

    #[inline]
    pub fn extra(&self, slot: u32) -> Option<&LeaseExtra> {
        if self.lease(slot).has_extra() { self.extras.get(&slot).map(|extra| &**extra) } else { None }
    }

    pub fn session(&self, slot: u32) -> &SessionEntry {
        self.sessions.at(slot).expect("a live session").1
    }

    pub fn waiter(&self, slot: u32) -> &Waiter {
        self.waiters.at(slot).expect("a live waiter").1
    }

    pub fn holder_name(&self, actor: u32) -> &str {
        self.resources.names.get(self.actors.holder(self.actors[actor].holder).name)
    }

    /// What an identity has in all tables.
    pub fn usage_of(&self, principal: &str) -> IdentityUsage {
        self.owners.get(principal).map_or_else(IdentityUsage::default, |owner| self.usage_of_owner(owner))
    }

    /// All identities that were given anything, with what they have.
    pub fn usages(&self) -> impl Iterator<Item = (&str, IdentityUsage)> {
        (0..self.owners.len() as u32).map(|owner| (self.owners.name(owner), self.usage_of_owner(owner)))
    }

    fn usage_of_owner(&self, owner: u32) -> IdentityUsage {
        let mut has = self.owners.usage(owner);
        let payloads = [self.queues.usage_of(owner), self.cache.usage_of(owner), self.state_table.usage_of(owner)];
        payloads.into_iter().for_each(|other| has.add(other));
        has
    }

    /// When a session ends unless renewed.
    pub fn session_deadline(&self, slot: u32, now: GrantorTime) -> GrantorTime {
        self.session(slot).renewal.deadline(now, &self.clock)
    }

    /// When and why a lease ends unless its deadline moves.
    #[inline]
    pub fn lease_deadline(&self, slot: u32, now: GrantorTime) -> (GrantorTime, EndReason) {
        lease_deadline(&self.clock, &self.extras, self.lease(slot), slot, now)
    }
}

/// When and why a lease ends. A lease that follows its session ends with the session, not here.
#[inline]
pub(crate) fn lease_deadline(
    clock: &StallClock,
    extras: &BTreeMap<u32, Box<LeaseExtra>>,
    lease: &StoredLease,
    slot: u32,
    now: GrantorTime,
) -> (GrantorTime, EndReason) {
    let end = if lease.follows_session() {
        (GrantorTime(u64::MAX), EndReason::Session)
    } else {
        (lease.renewal.deadline(now, clock), EndReason::Ttl)
    };
    if lease.has_extra() {
        let extra = extras.get(&slot).expect("the flag says that the lease has extra fields");
        earliest(end, clock, lease, extra, now)
    } else {
        end
    }
}

/// The end by ttl, or an earlier one by the extra fields of the lease.
fn earliest(
    mut end: (GrantorTime, EndReason),
    clock: &StallClock,
    lease: &StoredLease,
    extra: &LeaseExtra,
    now: GrantorTime,
) -> (GrantorTime, EndReason) {
    if let Some(veto) = extra.veto {
        end.0 = end.0.max(veto);
    }
    let mut earlier = |at: GrantorTime, reason: EndReason| {
        if at < end.0 {
            end = (at, reason);
        }
    };
    if let Some(progress) = &extra.progress {
        earlier(progress.renewal.deadline(now, clock), EndReason::Stalled);
    }
    if let Some(max_hold) = extra.max_hold
        && !mutants::on(Mutant::MaxHoldIgnored)
    {
        earlier(lease.granted().plus(max_hold), EndReason::MaxHold);
    }
    if let Some(drain) = &extra.drain
        && !mutants::on(Mutant::DrainNeverEnds)
    {
        earlier(drain.until, drain.cause.reason());
    }
    end
}
