//! The grantor's state: the fold of its records. `apply` is the only way in.
//!
//! One thing moves without a record: a renewal moves a deadline in memory (`Term::renew`), and nothing that replay
//! depends on reads it.

pub(crate) mod ends;
pub(crate) mod husks;
pub(crate) mod lease;
pub(crate) mod party;
pub(crate) mod resource;
pub(crate) mod term;

mod apply;
mod links;
mod snapshot;

use std::collections::{BTreeMap, VecDeque};

use crate::charter::{Charter, Charters, TokenOnRenewal};
use crate::coverage::Coverage;
use crate::ids::LeaseId;
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::payload::{cache::Cache, delivery::Queues, state::Small};
use crate::refusal::Cycle;
use crate::store::index::NameHash;
use crate::store::slots::Slots;
use crate::store::wheel::Wheel;
use crate::time::{Millis, Wall};
use crate::token::{Cluster, Incarnation, Number};

use ends::{Ends, Usage};
use lease::{Extra, Lease};
use party::{Parties, Session, Waiter};
use resource::Resources;
use term::Clock;

/// Everything a grantor knows.
pub(crate) struct Table {
    pub identity: Option<Identity>,
    pub generation: u64,
    /// Grantor time and wall clock of the turn.
    pub time: Millis,
    pub wall: Wall,
    /// The same of the last batch: what replay knows.
    pub recorded: (Millis, Wall),
    /// The digest of the last batch.
    pub chain: [u8; 32],
    /// The highest number ever given out, or lifted to.
    pub counter: u64,
    pub clock: Clock,
    pub quarantine: Option<Quarantine>,
    pub leases: Slots<Lease>,
    pub extras: BTreeMap<u32, Box<Extra>>,
    pub resources: Resources,
    pub parties: Parties,
    pub sessions: Slots<Session>,
    pub waiters: Slots<Waiter>,
    /// Where the next wait stands in the order of all waits.
    pub next_order: u64,
    pub ends: Ends,
    /// All ends by reason, and those of holders beyond the counted ones.
    pub totals: Usage,
    pub others: Usage,
    pub counted_holders: usize,
    pub charters: Charters,
    /// When a charter last changed, and the counter then: whoever was granted before may have been told other terms.
    pub agreed: (Millis, u64),
    pub deadlocks: VecDeque<Deadlock>,
    pub deadlocks_found: u64,
    pub small: Small,
    pub queues: Queues,
    pub cache: Cache,
    pub coverage: Coverage,
    pub due: Due,
}

/// What follows from the state and is not part of it: timers, and what this turn's records left to do.
pub(crate) struct Due {
    pub leases: Wheel,
    pub sessions: Wheel,
    pub waiters: Wheel,
    /// Resources to be offered to their waiters.
    pub offers: VecDeque<u32>,
    /// Leases that ended since this was last taken.
    pub ended: Vec<EndedNow>,
    /// Waiting parties that let a lease go since this was last taken: they may have lost what they inherited.
    pub let_go: Vec<u32>,
    /// Whether `ended` and `let_go` are wanted; replay does not listen.
    pub listening: bool,
    /// How many charters raise the token on renewal.
    pub rotating: usize,
    /// How many records were applied: while it stands still, nobody began to hold or to wait, or stopped.
    pub applied: u64,
}

/// A lease that has just ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedNow {
    pub lease: LeaseId,
    pub number: Number,
    pub reason: Reason,
    /// The session that carried it, by place and reuse.
    pub session: Option<(u32, u32)>,
    /// The session of the lease that followed it by overlap, and that lease.
    pub successor: Option<u32>,
}

/// Which cluster this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub cluster: Cluster,
    pub incarnation: Incarnation,
    pub max_ttl: u64,
}

/// Nothing is granted until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    pub until: Millis,
    pub rolled_back: bool,
}

/// A deadlock as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When, in grantor time.
    pub at: Millis,
    /// Who waited for whom.
    pub cycle: Cycle,
    /// Who paid; empty if it was only reported.
    pub victim: String,
}

impl Table {
    pub fn new(hash_seed: u64) -> Self {
        let hash = NameHash::new(hash_seed);
        Self {
            identity: None,
            generation: 0,
            time: Millis(0),
            wall: Wall(0),
            recorded: (Millis(0), Wall(0)),
            chain: [0; 32],
            counter: 0,
            clock: Clock::default(),
            quarantine: None,
            leases: Slots::with_keep(limits::ENDS_KEPT),
            extras: BTreeMap::new(),
            resources: Resources::new(hash.clone()),
            parties: Parties::new(hash),
            sessions: Slots::with_keep(limits::SESSIONS_TOLD),
            waiters: Slots::with_keep(0),
            next_order: 0,
            ends: Ends::default(),
            totals: Usage::default(),
            others: Usage::default(),
            counted_holders: 0,
            charters: Charters::default(),
            agreed: (Millis(0), 0),
            deadlocks: VecDeque::new(),
            deadlocks_found: 0,
            small: Small::default(),
            queues: Queues::default(),
            cache: Cache::default(),
            coverage: Coverage::default(),
            due: Due {
                leases: Wheel::new(Millis(0)),
                sessions: Wheel::new(Millis(0)),
                waiters: Wheel::new(Millis(0)),
                offers: VecDeque::new(),
                ended: Vec::new(),
                let_go: Vec::new(),
                listening: false,
                rotating: 0,
                applied: 0,
            },
        }
    }

    pub fn max_ttl(&self) -> u64 {
        self.identity.map_or(limits::TTL_MAX_DEFAULT, |identity| identity.max_ttl)
    }

    /// A charter has changed.
    fn agreed_now(&mut self) {
        self.agreed = (self.time, self.counter);
        self.count_rotating();
    }

    /// Whether a lease was granted under the charters as they are, so that its holder was told what they say now.
    pub fn told_as_agreed(&self, lease: &Lease) -> bool {
        let (at, counter) = self.agreed;
        lease.granted() > at || (lease.granted() == at && lease.number().get() > counter)
    }

    /// Counts the charters that make renewals raise the token, so that the others need not look.
    fn count_rotating(&mut self) {
        let rotates = |charter: &Charter| charter.token_on_renewal == TokenOnRenewal::Rotate;
        self.due.rotating = self.charters.iter().filter(|(_, charter)| rotates(charter)).count();
    }

    /// The charter of a resource, if one covers it.
    pub fn charter(&self, name: &str) -> Option<&Charter> {
        if self.charters.is_empty() { None } else { self.charters.find(name).map(|(_, charter)| charter) }
    }

    /// The same by place; without charters no name is read.
    pub fn charter_of(&self, resource: u32) -> Option<&Charter> {
        if self.charters.is_empty() { None } else { self.charter(self.resources.name(resource)) }
    }

    /// Units of a resource: as set, as its charter says, or one.
    pub fn capacity(&self, resource: u32) -> u32 {
        let set = self.resources.crowd(resource).and_then(|crowd| crowd.capacity);
        set.or_else(|| self.charter_of(resource).and_then(|charter| charter.capacity)).unwrap_or(1)
    }

    #[inline]
    pub fn lease(&self, slot: u32) -> &Lease {
        self.leases.at(slot).expect("a live lease").1
    }

    pub fn lease_id(&self, slot: u32) -> LeaseId {
        let (reuse, _) = self.leases.at(slot).expect("a live lease");
        LeaseId { slot, reuse }
    }

    #[inline]
    pub fn extra(&self, slot: u32) -> Option<&Extra> {
        if self.lease(slot).has_extra() { self.extras.get(&slot).map(|extra| &**extra) } else { None }
    }

    pub fn session(&self, slot: u32) -> &Session {
        self.sessions.at(slot).expect("a live session").1
    }

    pub fn waiter(&self, slot: u32) -> &Waiter {
        self.waiters.at(slot).expect("a live waiter").1
    }

    pub fn holder_name(&self, party: u32) -> &str {
        self.resources.names.get(self.parties.holder(self.parties[party].holder).name)
    }

    /// When a session ends unless renewed.
    pub fn session_deadline(&self, slot: u32, now: Millis) -> Millis {
        self.session(slot).term.deadline(now, &self.clock)
    }

    /// When a lease ends unless something moves it, and why it would.
    #[inline]
    pub fn lease_deadline(&self, slot: u32, now: Millis) -> (Millis, Reason) {
        lease_deadline(&self.clock, &self.extras, self.lease(slot), slot, now)
    }
}

/// When a lease ends by itself, and why. One that rides on a session ends with it, not here.
#[inline]
pub(crate) fn lease_deadline(
    clock: &Clock,
    extras: &BTreeMap<u32, Box<Extra>>,
    lease: &Lease,
    slot: u32,
    now: Millis,
) -> (Millis, Reason) {
    let end = if lease.rides() {
        (Millis(u64::MAX), Reason::Session)
    } else {
        (lease.term.deadline(now, clock), Reason::Ttl)
    };
    if lease.has_extra() {
        let extra = extras.get(&slot).expect("a lease that says it has extras");
        earliest(end, clock, lease, extra, now)
    } else {
        end
    }
}

/// The end by its ttl, or an earlier one by what stands beside the lease.
fn earliest(mut end: (Millis, Reason), clock: &Clock, lease: &Lease, extra: &Extra, now: Millis) -> (Millis, Reason) {
    if let Some(veto) = extra.veto {
        end.0 = end.0.max(veto);
    }
    let mut earlier = |at: Millis, reason: Reason| {
        if at < end.0 {
            end = (at, reason);
        }
    };
    if let Some(progress) = &extra.progress {
        earlier(progress.term.deadline(now, clock), Reason::Stalled);
    }
    if let Some(max_hold) = extra.max_hold
        && !mutants::on(Mutant::MaxHoldIgnored)
    {
        earlier(lease.granted().plus(max_hold), Reason::MaxHold);
    }
    if let Some(drain) = &extra.drain
        && !mutants::on(Mutant::DrainNeverEnds)
    {
        earlier(drain.until, drain.cause.reason());
    }
    end
}
