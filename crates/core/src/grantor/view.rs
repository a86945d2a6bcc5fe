//! What is there, for people and dashboards. Reads change nothing; a driver answers them after it confirmed its authority (E1).

use super::Grantor;
use super::table::ends::{Ended, Usage};
use super::table::lease::NONE;
use super::table::party::Waiter;
use super::{Deadlock, table};
use crate::charter::Charter;
use crate::ids::{LeaseId, SessionId};
use crate::lease::{Access, Reason, Rung, State};
use crate::payload::{cache::Cache, delivery::Queues, state::Small};
use crate::time::Millis;
use crate::token::{Cluster, Incarnation, Number, Reach};

/// A held lease, as anybody may see it: with its number, never with the text that fences take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its id.
    pub lease: LeaseId,
    /// The resource.
    pub resource: String,
    /// Who holds it.
    pub holder: String,
    /// The session that carries it.
    pub session: Option<SessionId>,
    /// Its token.
    pub number: Number,
    /// How much it takes.
    pub access: Access,
    /// What its token reaches.
    pub reach: Reach,
    /// How long a renewal lasts; absent: as long as the session's.
    pub ttl_ms: Option<u64>,
    /// How long it lives unless something moves its deadline.
    pub remaining_ms: u64,
    /// When it was granted, in grantor time.
    pub granted: Millis,
    /// What it stands on.
    pub rung: Rung,
    /// Always held; the others are in the history.
    pub state: State,
    /// Its own priority, or the highest that waits for it (P2).
    pub priority: u8,
    /// It must be given up: why, and within how many milliseconds.
    pub draining: Option<(Reason, u64)>,
    /// It is the predecessor of an overlap handoff, counted apart.
    pub apart: bool,
    /// How far its work was last seen.
    pub progress: Option<u64>,
    /// Bytes for people and discovery.
    pub metadata: Vec<u8>,
}

/// A resource and what stands at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub resource: String,
    /// Units there are.
    pub capacity: u32,
    /// Units taken by slots and holds.
    pub used: u32,
    /// Units that became commitments.
    pub confirmed: u64,
    /// It is below its use and lets nobody in.
    pub draining: bool,
    /// A revocation left it to an operator.
    pub held_for_operator: bool,
    /// Its leases, in order of their numbers.
    pub leases: Vec<LeaseView>,
    /// How many wait.
    pub waiters: usize,
    /// What a collector may have deleted below.
    pub floor: u64,
}

/// Who waits, in the order in which they are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Who.
    pub holder: String,
    /// Of which session.
    pub session: SessionId,
    /// How much of the resource.
    pub access: Access,
    /// Its own priority.
    pub priority: u8,
    /// The priority it stands at.
    pub effective: u8,
    /// How long it still waits.
    pub remaining_ms: u64,
    /// Whether it was heard in this tenure; until then it keeps its place but is not granted.
    pub heard: bool,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// Whose.
    pub holder: String,
    /// How long a renewal lasts.
    pub ttl_ms: u64,
    /// How long it lives unless renewed.
    pub remaining_ms: u64,
    /// Silent for half its ttl.
    pub suspect: bool,
    /// What it holds and waits for.
    pub leases: u32,
    /// How many waits.
    pub waits: u32,
}

/// The grantor in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which cluster.
    pub cluster: Cluster,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The journal's generation.
    pub generation: u64,
    /// How many tenures there were.
    pub tenure: u32,
    /// What leases stand on.
    pub rung: Rung,
    /// Grantor time.
    pub time: Millis,
    /// The highest number given out.
    pub counter: u64,
    /// The longest ttl.
    pub max_ttl_ms: u64,
    /// Held leases.
    pub held: usize,
    /// Live sessions.
    pub sessions: usize,
    /// Waiters.
    pub waiters: usize,
    /// Ended leases by reason.
    pub totals: Usage,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Nothing is granted for so long; and whether a rollback is why.
    pub quarantine: Option<(u64, bool)>,
    /// Milliseconds the grantor stood still, ever.
    pub stalled_ms: u64,
}

impl Grantor {
    /// The grantor in figures.
    pub fn status(&self) -> Status {
        let identity = self.table.identity.expect("an opened grantor has an identity");
        let quarantine = self.table.quarantine.filter(|quarantine| quarantine.until > self.table.time);
        Status {
            cluster: identity.cluster,
            incarnation: identity.incarnation,
            generation: self.table.generation,
            tenure: self.table.clock.tenure,
            rung: self.rung,
            time: self.table.time,
            counter: self.table.counter,
            max_ttl_ms: identity.max_ttl,
            held: self.table.leases.count(),
            sessions: self.table.sessions.count(),
            waiters: self.table.waiters.count(),
            totals: self.table.totals,
            deadlocks: self.table.deadlocks_found,
            quarantine: quarantine.map(|q| (self.table.time.until(q.until), q.rolled_back)),
            stalled_ms: self.table.clock.stall_total,
        }
    }

    /// How many leases are held.
    pub fn active_count(&self) -> usize {
        self.table.leases.count()
    }

    /// One held lease.
    pub fn lease(&self, id: LeaseId) -> Option<LeaseView> {
        self.table.live(id).map(|_| self.lease_view(id.slot))
    }

    /// The state of a lease and why, while it is remembered.
    pub fn state_of(&self, id: LeaseId) -> Option<(State, Option<Reason>)> {
        if self.table.live(id).is_some() {
            return Some((State::Held, None));
        }
        let reason = self.table.leases.tombstone(id.slot, id.reuse)?.buried();
        Some((reason.state(), Some(reason)))
    }

    /// The resource that a held lease is on.
    pub fn name_of(&self, id: LeaseId) -> Option<&str> {
        self.table.live(id).map(|lease| self.table.resources.name(lease.resource))
    }

    /// A resource with all that stands at it.
    pub fn show(&self, name: &str) -> Option<ResourceView> {
        self.table.resources.find(name).map(|resource| self.resource_view(resource))
    }

    /// Resources under a prefix, in the order of places: at most `most` that match, at most `look` looked at. Returns where
    /// to go on, if there is more.
    pub fn list(&self, prefix: &str, from: u32, most: usize, look: u32) -> (Vec<ResourceView>, Option<u32>) {
        let mut found = Vec::new();
        let end = self.table.resources.places();
        let mut place = from;
        while place < end && found.len() < most && place - from < look {
            if self.table.resources.at(place).is_some() && covers(prefix, self.table.resources.name(place)) {
                found.push(self.resource_view(place));
            }
            place += 1;
        }
        (found, (place < end).then_some(place))
    }

    /// Everything that actors of this name hold, in order of numbers.
    pub fn held_by(&self, holder: &str) -> Vec<LeaseView> {
        let Some(holder) = self.table.parties.find_holder(holder, &self.table.resources.names) else {
            return Vec::new();
        };
        let mut leases = Vec::new();
        for party in &self.table.parties.holder(holder).parties {
            let mut slot = self.table.parties[*party].leases;
            while slot != NONE {
                leases.push(self.lease_view(slot));
                slot = self.table.lease(slot).next;
            }
        }
        leases.sort_unstable_by_key(|lease| lease.number);
        leases
    }

    /// The same, page by page: those above a number, at most so many.
    pub fn held_page(&self, holder: &str, after: u64, most: usize) -> Vec<LeaseView> {
        let Some(holder) = self.table.parties.find_holder(holder, &self.table.resources.names) else {
            return Vec::new();
        };
        let mut slots = Vec::new();
        for party in &self.table.parties.holder(holder).parties {
            let mut slot = self.table.parties[*party].leases;
            while slot != NONE {
                let lease = self.table.lease(slot);
                if lease.number().get() > after {
                    slots.push((lease.number(), slot));
                }
                slot = lease.next;
            }
        }
        slots.sort_unstable();
        slots.into_iter().take(most).map(|(_, slot)| self.lease_view(slot)).collect()
    }

    /// Who waits for a resource, in order.
    pub fn waiters(&self, name: &str) -> Vec<WaiterView> {
        self.waiters_page(name, 0, usize::MAX)
    }

    /// The same, page by page: without so many of the first, at most so many.
    pub fn waiters_page(&self, name: &str, from: usize, most: usize) -> Vec<WaiterView> {
        let crowd = self.table.resources.find(name).and_then(|at| Some((at, self.table.resources.crowd(at)?)));
        let Some((resource, crowd)) = crowd else {
            return Vec::new();
        };
        let turns = crowd.queue.iter().skip(from).take(most);
        turns.map(|turn| self.waiter_view(resource, self.table.waiter(turn.waiter))).collect()
    }

    /// The remembered ends of a resource, latest first, at most so many.
    pub fn history(&self, name: &str, most: usize) -> Vec<Ended> {
        self.table.ends.of_resource(name).take(most).collect()
    }

    /// The last ended leases of all resources, in the order of their ends, at most so many.
    pub fn last_ended(&self, most: usize) -> Vec<Ended> {
        self.table.ends.last(most)
    }

    /// What a holder used, by end reason.
    pub fn usage(&self, holder: &str) -> Option<Usage> {
        let holder = self.table.parties.find_holder(holder, &self.table.resources.names)?;
        self.table.parties.holder(holder).usage.as_deref().copied()
    }

    /// What every counted holder used, by name, and the rest together.
    pub fn usage_of_all(&self) -> (Vec<(String, Usage)>, Usage) {
        let holders = self.table.parties.holders();
        let mut all: Vec<(String, Usage)> = holders
            .filter_map(|holder| {
                Some((self.table.resources.names.get(holder.name).to_owned(), *holder.usage.as_deref()?))
            })
            .collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        (all, self.table.others)
    }

    /// The last deadlocks, latest last.
    pub fn deadlocks(&self) -> impl Iterator<Item = &Deadlock> {
        self.table.deadlocks.iter()
    }

    /// A session.
    pub fn session(&self, id: SessionId) -> Option<SessionView> {
        let session = self.table.sessions.live(id.slot, id.reuse)?;
        let now = self.table.time;
        let ttl = u64::from(session.term.ttl);
        Some(SessionView {
            session: id,
            holder: self.table.resources.names.get(self.table.parties.holder(session.holder).name).to_owned(),
            ttl_ms: ttl,
            remaining_ms: now.until(self.table.session_deadline(id.slot, now)),
            suspect: now.since(session.term.renewed(now)) * 2 >= ttl,
            leases: session.leases,
            waits: session.waits,
        })
    }

    /// The charter that covers a resource, and the prefix it stands under.
    pub fn charter_of(&self, name: &str) -> Option<(&str, &Charter)> {
        self.table.charters.find(name)
    }

    /// All charters, by prefix.
    pub fn charters(&self) -> impl Iterator<Item = (&str, &Charter)> {
        self.table.charters.iter()
    }

    /// Small state written under leases.
    pub fn small_state(&self) -> &Small {
        &self.table.small
    }

    /// The queues.
    pub fn queues(&self) -> &Queues {
        &self.table.queues
    }

    /// The cached keys.
    pub fn cached(&self) -> &Cache {
        &self.table.cache
    }

    fn lease_view(&self, slot: u32) -> LeaseView {
        let table: &table::Table = &self.table;
        let lease = table.lease(slot);
        let party = &table.parties[lease.party];
        let extra = table.extra(slot);
        let waits = table.resources.crowd(lease.resource).and_then(|crowd| crowd.queue.first());
        LeaseView {
            lease: table.lease_id(slot),
            resource: table.resources.name(lease.resource).to_owned(),
            holder: table.holder_name(lease.party).to_owned(),
            session: (party.session != NONE).then(|| self.session_id(party.session)),
            number: lease.number(),
            access: lease.access(),
            reach: lease.reach(),
            ttl_ms: (!lease.rides()).then_some(u64::from(lease.term.ttl)),
            remaining_ms: self.remaining(slot),
            granted: lease.granted(),
            rung: self.rung,
            state: State::Held,
            priority: lease.priority().max(waits.map_or(0, |turn| turn.priority())).max(table.inherited(lease.party)),
            draining: extra
                .and_then(|extra| extra.drain.as_ref())
                .map(|drain| (drain.cause.reason(), table.time.until(drain.until))),
            apart: lease.is_apart(),
            progress: extra.and_then(|extra| extra.progress).map(|progress| progress.seen),
            metadata: extra.map_or_else(Vec::new, |extra| extra.metadata.to_vec()),
        }
    }

    fn resource_view(&self, resource: u32) -> ResourceView {
        let name = self.table.resources.name(resource);
        let crowd = self.table.resources.crowd(resource);
        let mut leases: Vec<LeaseView> = self.on_resource(name).into_iter().map(|slot| self.lease_view(slot)).collect();
        leases.sort_unstable_by_key(|lease| lease.number);
        let capacity = self.table.capacity(resource);
        let (used, confirmed) = crowd.map_or((0, 0), |crowd| (crowd.used, crowd.confirmed));
        ResourceView {
            resource: name.to_owned(),
            capacity,
            used,
            confirmed,
            draining: u64::from(used) + confirmed > u64::from(capacity),
            held_for_operator: crowd.is_some_and(|crowd| crowd.for_operator),
            leases,
            waiters: crowd.map_or(0, |crowd| crowd.queue.len()),
            floor: crowd.map_or(0, |crowd| crowd.floor),
        }
    }

    fn waiter_view(&self, resource: u32, waiter: &Waiter) -> WaiterView {
        let session = self.table.parties[waiter.party].session;
        let ask = waiter.asks.iter().find(|ask| ask.resource == resource).expect("it stands in this queue");
        WaiterView {
            holder: self.table.holder_name(waiter.party).to_owned(),
            session: self.session_id(session),
            access: ask.access,
            priority: waiter.priority,
            effective: waiter.effective,
            remaining_ms: self.table.time.until(waiter.until),
            heard: self.table.session(session).term.alive_in_tenure(&self.table.clock),
        }
    }
}

/// Whether a prefix of whole segments covers a name.
fn covers(prefix: &str, name: &str) -> bool {
    prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
