//! Deadlocks: looked for when an event could have closed one, walked in bounded steps, reported only when they are real.
//!
//! An actor is stuck when none of its waits can come true: every resource of a wait must be freeable by actors that are
//! not stuck, and nobody stuck may stand before it in the queue. If the queues alone make it stuck, those may pass whose
//! holds others wait for; if the holds do, it is a deadlock (D1), and exactly one member pays (D3).

mod graph;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Grantor;
use super::table::lease::NONE;
use crate::charter::OnDeadlock;
use crate::command::Event;
use crate::lease::Reason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Cycle, Member, Refusal};
use graph::{Blocked, Graph};

/// What is left to look at.
#[derive(Default)]
pub(super) struct Cycles {
    suspects: VecDeque<u32>,
    /// Who is still among the suspects, and when it was last touched, counted in events.
    queued: BTreeMap<u32, u64>,
    events: u64,
    graph: Graph,
    walking: Option<Walk>,
    /// Deadlocks that were reported and left standing, by a digest of their waits.
    reported: BTreeSet<u64>,
    /// Who was found stuck in or behind one of them, and the records before that: with any other it may be stuck otherwise.
    standing: BTreeSet<u32>,
    stood: u64,
}

/// A walk that has begun.
#[derive(Clone, Copy)]
struct Walk {
    suspect: u32,
    /// The events before it.
    since: u64,
    /// The records before it.
    applied: u64,
}

/// One member of a cycle: who, and which wait for which resource of the next one.
#[derive(Clone, Copy, Debug)]
struct Link {
    party: u32,
    waiter: u32,
    resource: u32,
    priority: u8,
    order: u64,
}

impl Cycles {
    /// An event touched this actor: it may have become stuck.
    pub fn suspect(&mut self, party: u32) {
        self.events += 1;
        if self.queued.insert(party, self.events).is_none() {
            self.suspects.push_back(party);
        }
    }

    /// The walk told of all that it reached whether they are free. Who was not touched since it began is no suspect.
    fn clear(&mut self, since: u64) {
        let Self { queued, graph, .. } = self;
        if graph.len() < queued.len() {
            for party in graph.free_actors() {
                if queued.get(&party).is_some_and(|touched| *touched <= since) {
                    queued.remove(&party);
                }
            }
        } else {
            queued.retain(|party, touched| *touched > since || !graph.is_free_actor(*party));
        }
    }

    pub fn has_work(&self) -> bool {
        !self.suspects.is_empty() || self.walking.is_some()
    }
}

impl Grantor {
    /// Every actor that waits and holds, after an opening.
    pub(super) fn suspect_everybody(&mut self) {
        let waiting: Vec<u32> = self.table.waiters.iter_live().map(|(_, _, wait)| wait.party).collect();
        for party in waiting {
            if self.table.parties[party].held > 0 {
                self.raises.push_back(party);
                self.cycles.suspect(party);
            }
        }
    }

    /// Walks on, as far as one step may. A walk during which something was put on record is done again in one step before
    /// anybody is told.
    pub(super) fn look_for_cycles(&mut self, mut budget: usize) {
        let mut cycles = std::mem::take(&mut self.cycles);
        if cycles.stood != self.table.due.applied {
            cycles.stood = self.table.due.applied;
            std::mem::take(&mut cycles.standing).into_iter().for_each(|party| cycles.suspect(party));
        }
        while budget > 0 {
            let walk = match cycles.walking.take() {
                Some(walk) => walk,
                None => match cycles.suspects.pop_front() {
                    None => break,
                    Some(suspect) => {
                        if cycles.queued.remove(&suspect).is_none() || !self.could_be_stuck(suspect) {
                            budget -= 1;
                            continue;
                        }
                        cycles.graph.start(suspect, self.table.parties.places(), self.table.waiters.count());
                        Walk { suspect, since: cycles.events, applied: self.table.due.applied }
                    }
                },
            };
            if !cycles.graph.explore(self, &mut budget) {
                cycles.walking = Some(walk);
                break;
            }
            let mut free = cycles.graph.is_free(true);
            cycles.clear(walk.since);
            if !free && walk.applied != self.table.due.applied {
                cycles.graph.start(walk.suspect, self.table.parties.places(), self.table.waiters.count());
                cycles.graph.explore(self, &mut usize::MAX.clone());
                free = cycles.graph.is_free(true);
            }
            if !free {
                self.resolve(walk.suspect, &mut cycles);
            }
        }
        // What resolving raised is looked at like any other event.
        self.cycles.suspects.drain(..).for_each(|party| cycles.suspect(party));
        self.cycles = cycles;
    }

    /// Only who waits, and is waited for, can be part of a cycle.
    pub(super) fn could_be_stuck(&self, party: u32) -> bool {
        let actor = &self.table.parties[party];
        if actor.waits.is_empty() || !self.is_actor(party) || mutants::on(Mutant::CyclesOverlooked) {
            return false;
        }
        let mut slot = actor.leases;
        for _ in 0..limits::LEASES_GLANCED {
            if slot == NONE {
                return actor.waits.iter().any(|waiter| self.somebody_stands_behind(*waiter));
            }
            let lease = self.table.lease(slot);
            if self.table.resources.crowd(lease.resource).is_some_and(|crowd| !crowd.queue.is_empty()) {
                return true;
            }
            slot = lease.next;
        }
        true
    }

    fn somebody_stands_behind(&self, waiter: u32) -> bool {
        self.table.waiter(waiter).asks.iter().any(|ask| {
            let crowd = self.table.resources.crowd(ask.resource);
            crowd.and_then(|crowd| crowd.queue.iter().next_back()).is_some_and(|last| last.waiter != waiter)
        })
    }

    /// The walked actor is stuck: by the order of queues alone, or for good.
    fn resolve(&mut self, suspect: u32, cycles: &mut Cycles) {
        cycles.graph.is_free(false);
        // It may stand behind others that are stuck for good: then those are the deadlock, and it keeps its place.
        let stuck = cycles.graph.stuck_actor(suspect);
        if stuck.is_none() && !mutants::on(Mutant::QueueIsDeadlock) {
            cycles.graph.is_free(true);
            for waiter in cycles.graph.waits_in_the_way(self) {
                self.let_pass(waiter);
            }
            return;
        }
        let links = self.cycle_of(stuck.unwrap_or(suspect), &cycles.graph);
        let signature = links.iter().fold(0u64, |sum, link| sum.wrapping_add(scattered(link.order)));
        let victim = *links
            .iter()
            .min_by_key(|link| (link.priority, std::cmp::Reverse(link.order)))
            .expect("a cycle has members");
        let policy = self
            .table
            .charter(self.table.resources.name(victim.resource))
            .map_or(OnDeadlock::RefuseWait, |charter| charter.deadlock);
        if cycles.reported.contains(&signature) {
            cycles.standing.insert(suspect);
            if stuck != Some(suspect) {
                // Those before it will stay there: it need not stay behind them.
                self.table.parties[suspect].waits.clone().into_iter().for_each(|waiter| self.let_pass(waiter));
            }
            return;
        }
        let cycle = self.told(&links);
        let paying =
            if policy == OnDeadlock::Report { String::new() } else { self.table.holder_name(victim.party).to_owned() };
        self.record(&Record::Deadlocked { cycle: cycle.clone(), victim: &paying, policy: policy.code() });
        self.notify(None, Event::Deadlock(Box::new(cycle.clone())));
        match policy {
            OnDeadlock::Report => {
                cycles.reported.insert(signature);
                while cycles.reported.len() > limits::DEADLOCKS_KEPT {
                    cycles.reported.pop_first();
                }
            }
            OnDeadlock::RefuseWait if mutants::on(Mutant::EverybodyPays) => {
                for link in &links {
                    self.end_wait(link.waiter, Refusal::Deadlock(Box::new(cycle.clone())));
                }
            }
            OnDeadlock::RefuseWait => self.end_wait(victim.waiter, Refusal::Deadlock(Box::new(cycle))),
            OnDeadlock::Revoke => self.revoke_for_deadlock(&links, victim.party),
        }
        self.cycles.suspect(suspect);
    }

    /// Takes from the victim what the member before it waits for.
    fn revoke_for_deadlock(&mut self, links: &[Link], victim: u32) {
        let at = links.iter().position(|link| link.party == victim).expect("the victim is a member");
        let wanted = links[(at + links.len() - 1) % links.len()].resource;
        let name = self.table.resources.name(wanted).to_owned();
        for slot in self.on_resource(&name) {
            if self.table.lease(slot).party == victim {
                self.end_lease(slot, Reason::Deadlock, "");
            }
        }
        self.settle_priorities(limits::EDGES_PER_STEP);
    }

    /// Those before it in the queue wait for it: it may pass them as soon as there is room.
    fn let_pass(&mut self, waiter: u32) {
        let wait = self.table.waiters.at_mut(waiter).expect("a live waiter");
        if std::mem::replace(&mut wait.may_pass, true) {
            return;
        }
        for i in 0..self.table.waiter(waiter).asks.len() {
            let resource = self.table.waiter(waiter).asks[i].resource;
            self.table.resources.crowd_mut(resource).expect("a queue has a crowd").passers += 1;
            self.table.offer_later(resource);
        }
    }

    /// It gave something back that others may have waited for: whether it must still pass them is looked at anew.
    pub(super) fn pass_no_more(&mut self, party: u32) {
        for i in 0..self.table.parties[party].waits.len() {
            let waiter = self.table.parties[party].waits[i];
            let wait = self.table.waiters.at_mut(waiter).expect("a live waiter");
            if !std::mem::replace(&mut wait.may_pass, false) {
                continue;
            }
            for i in 0..self.table.waiter(waiter).asks.len() {
                let resource = self.table.waiter(waiter).asks[i].resource;
                self.table.resources.crowd_mut(resource).expect("a queue has a crowd").passers -= 1;
            }
            self.cycles.suspect(party);
        }
    }

    /// Follows stuck holders from the suspect until one comes again: a cycle.
    fn cycle_of(&self, suspect: u32, graph: &Graph) -> Vec<Link> {
        let mut path: Vec<Link> = Vec::new();
        let mut seen = vec![u32::MAX; graph.len()];
        let mut party = suspect;
        loop {
            let node = graph.node(party).expect("a stuck actor was walked");
            if seen[node] != u32::MAX {
                return path.split_off(seen[node] as usize);
            }
            seen[node] = path.len() as u32;
            let blocked = graph.blocked_by(party).expect("a stuck actor waits for a stuck one");
            let Blocked { waiter, order, priority, resource, holder } = blocked;
            path.push(Link { party, waiter, resource, priority, order });
            party = holder;
        }
    }

    fn told(&self, links: &[Link]) -> Cycle {
        let told = links.iter().take(limits::CYCLE_TOLD).map(|link| Member {
            holder: self.table.holder_name(link.party).to_owned(),
            waits_for: self.table.resources.name(link.resource).to_owned(),
        });
        Cycle { members: told.collect(), length: links.len() as u64 }
    }
}

/// A number whose sums do not meet by chance: those of plain multiples would (splitmix64).
const fn scattered(order: u64) -> u64 {
    let mut z = order.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
