//! Deadlock detection: started by events that could cause a deadlock, executed in bounded steps, without false reports.
//!
//! An actor is stuck if none of its waits can be granted. A wait can be granted if actors that are not stuck can free all its
//! resources, and no stuck actor is ahead of it in a queue. If only the queue order makes an actor stuck, the waiters whose
//! leases block others may pass. If the leases do, it is a deadlock (D1), and it has exactly one victim (D3).

mod graph;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Grantor;
use super::table::lease::NONE;
use crate::charter::OnDeadlock;
use crate::command::SessionEvent;
use crate::lease::EndReason;
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::{Cycle, CycleMember, Refusal};
use graph::{Blocked, Graph};

/// Suspects and the state of the current search.
#[derive(Default)]
pub(super) struct DeadlockDetector {
    suspects: VecDeque<u32>,
    /// Actors that are still suspects, with the number of the last event that touched them.
    queued: BTreeMap<u32, u64>,
    events: u64,
    graph: Graph,
    search: Option<Search>,
    /// Deadlocks that were reported and not resolved, by a digest of their waits.
    reported: BTreeSet<u64>,
    /// Actors found stuck in or behind a reported deadlock, and the number of records at that time: later records may change
    /// the cause.
    stuck_in_reported: BTreeSet<u32>,
    stuck_as_of: u64,
}

/// A started search.
#[derive(Clone, Copy)]
struct Search {
    suspect: u32,
    /// Number of events before it.
    since: u64,
    /// Number of applied records before it.
    applied: u64,
}

/// One edge of a cycle: an actor, and its wait for a resource of the next actor.
#[derive(Clone, Copy, Debug)]
struct CycleEdge {
    actor: u32,
    waiter: u32,
    resource: u32,
    priority: u8,
    order: u64,
}

impl DeadlockDetector {
    /// Adds an actor that may have become stuck by an event.
    pub fn suspect(&mut self, actor: u32) {
        self.events += 1;
        if self.queued.insert(actor, self.events).is_none() {
            self.suspects.push_back(actor);
        }
    }

    /// Removes actors that the search found free, unless an event touched them since it started.
    fn clear(&mut self, since: u64) {
        let Self { queued, graph, .. } = self;
        if graph.len() < queued.len() {
            for actor in graph.free_actors() {
                if queued.get(&actor).is_some_and(|touched| *touched <= since) {
                    queued.remove(&actor);
                }
            }
        } else {
            queued.retain(|actor, touched| *touched > since || !graph.is_free_actor(*actor));
        }
    }

    pub fn has_work(&self) -> bool {
        !self.suspects.is_empty() || self.search.is_some()
    }
}

impl Grantor {
    /// Suspects every actor that waits and holds, for example after an opening.
    pub(super) fn suspect_all_actors(&mut self) {
        let waiting: Vec<u32> = self.table.waiters.iter_live().map(|(_, _, wait)| wait.actor).collect();
        for actor in waiting {
            if self.table.actors[actor].held > 0 {
                self.priority_raises.push_back(actor);
                self.deadlock_detector.suspect(actor);
            }
        }
    }

    /// Continues the search within the budget. A search during which records were applied is repeated in one step before
    /// anything is reported.
    pub(super) fn detect_deadlocks(&mut self, mut budget: usize) {
        let mut detector = std::mem::take(&mut self.deadlock_detector);
        if detector.stuck_as_of != self.table.due.applied {
            detector.stuck_as_of = self.table.due.applied;
            std::mem::take(&mut detector.stuck_in_reported).into_iter().for_each(|actor| detector.suspect(actor));
        }
        while budget > 0 {
            let search = match detector.search.take() {
                Some(search) => search,
                None => match detector.suspects.pop_front() {
                    None => break,
                    Some(suspect) => {
                        if detector.queued.remove(&suspect).is_none() || !self.may_be_stuck(suspect) {
                            budget -= 1;
                            continue;
                        }
                        detector.graph.start(suspect, self.table.actors.slot_count(), self.table.waiters.count());
                        Search { suspect, since: detector.events, applied: self.table.due.applied }
                    }
                },
            };
            if !detector.graph.explore(self, &mut budget) {
                detector.search = Some(search);
                break;
            }
            let mut free = detector.graph.is_free(true);
            detector.clear(search.since);
            if !free && search.applied != self.table.due.applied {
                detector.graph.start(search.suspect, self.table.actors.slot_count(), self.table.waiters.count());
                detector.graph.explore(self, &mut usize::MAX.clone());
                free = detector.graph.is_free(true);
            }
            if !free {
                self.resolve(search.suspect, &mut detector);
            }
        }
        // Suspects added while resolving are processed like any other.
        self.deadlock_detector.suspects.drain(..).for_each(|actor| detector.suspect(actor));
        self.deadlock_detector = detector;
    }

    /// Quick check: only an actor that waits, and that others wait for, can be part of a cycle.
    pub(super) fn may_be_stuck(&self, actor: u32) -> bool {
        let candidate = &self.table.actors[actor];
        if candidate.waits.is_empty() || !self.has_session(actor) || mutants::on(Mutant::CyclesNotDetected) {
            return false;
        }
        let mut slot = candidate.leases;
        for _ in 0..limits::QUICK_CHECK_LEASES {
            if slot == NONE {
                return candidate.waits.iter().any(|waiter| self.has_waiter_behind(*waiter));
            }
            let lease = self.table.lease(slot);
            if self.table.resources.state(lease.resource).is_some_and(|state| !state.queue.is_empty()) {
                return true;
            }
            slot = lease.next;
        }
        true
    }

    fn has_waiter_behind(&self, waiter: u32) -> bool {
        self.table.waiter(waiter).resources.iter().any(|wanted| {
            let state = self.table.resources.state(wanted.resource);
            state.and_then(|state| state.queue.iter().next_back()).is_some_and(|last| last.waiter != waiter)
        })
    }

    /// Resolves a stuck suspect: lets waiters pass if only the queue order blocks it, or handles the deadlock.
    fn resolve(&mut self, suspect: u32, detector: &mut DeadlockDetector) {
        detector.graph.is_free(false);
        // It may be behind actors in a deadlock: then those are resolved, and it keeps its position.
        let stuck = detector.graph.stuck_actor(suspect);
        if stuck.is_none() && !mutants::on(Mutant::QueueIsDeadlock) {
            detector.graph.is_free(true);
            for waiter in detector.graph.blocking_waits(self) {
                self.allow_passing(waiter);
            }
            return;
        }
        let edges = self.find_cycle(stuck.unwrap_or(suspect), &detector.graph);
        let signature = edges.iter().fold(0u64, |sum, edge| sum.wrapping_add(mix(edge.order)));
        let victim = *edges
            .iter()
            .min_by_key(|edge| (edge.priority, std::cmp::Reverse(edge.order)))
            .expect("a cycle has members");
        let policy = self
            .table
            .charter(self.table.resources.name(victim.resource))
            .map_or(OnDeadlock::RefuseWait, |charter| charter.deadlock);
        if detector.reported.contains(&signature) {
            detector.stuck_in_reported.insert(suspect);
            if stuck != Some(suspect) {
                // The actors ahead of it stay stuck, so it may pass them.
                self.table.actors[suspect].waits.clone().into_iter().for_each(|waiter| self.allow_passing(waiter));
            }
            return;
        }
        let cycle = self.cycle_view(&edges);
        let victim_name =
            if policy == OnDeadlock::Report { String::new() } else { self.table.holder_name(victim.actor).to_owned() };
        self.record(&Record::Deadlocked { cycle: cycle.clone(), victim: &victim_name, policy: policy.code() });
        self.notify(None, SessionEvent::Deadlock(Box::new(cycle.clone())));
        match policy {
            OnDeadlock::Report => {
                detector.reported.insert(signature);
                while detector.reported.len() > limits::DEADLOCKS {
                    detector.reported.pop_first();
                }
            }
            OnDeadlock::RefuseWait if mutants::on(Mutant::EveryMemberIsVictim) => {
                for edge in &edges {
                    self.end_wait(edge.waiter, Refusal::Deadlock(Box::new(cycle.clone())));
                }
            }
            OnDeadlock::RefuseWait => self.end_wait(victim.waiter, Refusal::Deadlock(Box::new(cycle))),
            OnDeadlock::Revoke => self.revoke_for_deadlock(&edges, victim.actor),
        }
        self.deadlock_detector.suspect(suspect);
    }

    /// Revokes the victim's leases that the previous member waits for.
    fn revoke_for_deadlock(&mut self, edges: &[CycleEdge], victim: u32) {
        let at = edges.iter().position(|edge| edge.actor == victim).expect("the victim is a member");
        let awaited = edges[(at + edges.len() - 1) % edges.len()].resource;
        let name = self.table.resources.name(awaited).to_owned();
        for slot in self.on_resource(&name) {
            if self.table.lease(slot).actor == victim {
                self.end_lease(slot, EndReason::Deadlock, "");
            }
        }
        self.settle_priorities(limits::EDGES_PER_STEP);
    }

    /// Lets a waiter pass those ahead of it, because they wait for its actor.
    fn allow_passing(&mut self, waiter: u32) {
        let wait = self.table.waiters.at_mut(waiter).expect("a live waiter");
        if std::mem::replace(&mut wait.may_pass, true) {
            return;
        }
        for i in 0..self.table.waiter(waiter).resources.len() {
            let resource = self.table.waiter(waiter).resources[i].resource;
            self.table.resources.state_mut(resource).expect("a queue belongs to a resource state").passers += 1;
            self.table.schedule_offer(resource);
        }
    }

    /// Revokes the permission to pass after the actor released a lease; the detector decides again.
    pub(super) fn stop_passing(&mut self, actor: u32) {
        for i in 0..self.table.actors[actor].waits.len() {
            let waiter = self.table.actors[actor].waits[i];
            let wait = self.table.waiters.at_mut(waiter).expect("a live waiter");
            if !std::mem::replace(&mut wait.may_pass, false) {
                continue;
            }
            for i in 0..self.table.waiter(waiter).resources.len() {
                let resource = self.table.waiter(waiter).resources[i].resource;
                self.table.resources.state_mut(resource).expect("a queue belongs to a resource state").passers -= 1;
            }
            self.deadlock_detector.suspect(actor);
        }
    }

    /// Follows stuck holders from the suspect until one repeats, and returns the cycle.
    fn find_cycle(&self, suspect: u32, graph: &Graph) -> Vec<CycleEdge> {
        let mut path: Vec<CycleEdge> = Vec::new();
        let mut seen = vec![u32::MAX; graph.len()];
        let mut actor = suspect;
        loop {
            let node = graph.node(actor).expect("a stuck actor was visited");
            if seen[node] != u32::MAX {
                return path.split_off(seen[node] as usize);
            }
            seen[node] = path.len() as u32;
            let blocked = graph.blocked_by(actor).expect("a stuck actor waits for a stuck one");
            let Blocked { waiter, order, priority, resource, holder } = blocked;
            path.push(CycleEdge { actor, waiter, resource, priority, order });
            actor = holder;
        }
    }

    fn cycle_view(&self, edges: &[CycleEdge]) -> Cycle {
        let members = edges.iter().take(limits::CYCLE_MEMBERS).map(|edge| CycleMember {
            holder: self.table.holder_name(edge.actor).to_owned(),
            waits_for: self.table.resources.name(edge.resource).to_owned(),
        });
        Cycle { members: members.collect(), length: edges.len() as u64 }
    }
}

/// Scrambles a number (splitmix64), so that sums of different sets do not collide.
const fn mix(order: u64) -> u64 {
    let mut z = order.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
