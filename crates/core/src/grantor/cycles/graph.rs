//! The part of the wait-for graph that one actor reaches, and who in it can still get free.

use super::super::Grantor;
use super::super::table::resource::Turn;
use crate::lease::Access;
use crate::mutants::{self, Mutant};

/// Walked in steps, reduced in one. The buffers are kept from walk to walk.
#[derive(Default)]
pub(super) struct Graph {
    /// For each party its node, if `stamp` is this walk's.
    marks: Vec<(u32, u32)>,
    stamp: u32,
    nodes: Vec<Node>,
    /// How many nodes were looked at.
    walked: usize,
    asks: Vec<Asked>,
    waits: Vec<Wait>,
    edges: Vec<Edge>,
    live: Vec<bool>,
    unmet: Vec<u32>,
    ready: Vec<u32>,
}

struct Node {
    party: u32,
    /// The first of its waits, and how many.
    first: u32,
    waits: u32,
    /// The first edge that gets free with it.
    edges: u32,
}

struct Wait {
    node: u32,
    waiter: u32,
    order: u64,
    priority: u8,
    /// The first of its asks, and how many are in the way.
    first: u32,
    asks: u32,
}

/// Why an actor is stuck: its wait for a resource, and a stuck holder of it.
pub(super) struct Blocked {
    pub waiter: u32,
    pub order: u64,
    pub priority: u8,
    pub resource: u32,
    pub holder: u32,
}

/// What stands between one wait and one resource: counted anew for each reduction.
struct Asked {
    wait: u32,
    resource: u32,
    /// The first of the edges that it waits for.
    edges: u32,
    access: Access,
    capacity: u32,
    confirmed: u64,
    exclusive: u32,
    readers: u32,
    used: u64,
    /// Somebody stands before it.
    behind: bool,
}

struct Edge {
    ask: u32,
    node: u32,
    frees: Frees,
    next: u32,
}

#[derive(Clone, Copy)]
enum Frees {
    Lease(Access),
    Place,
}

const NONE: u32 = u32::MAX;

impl Asked {
    fn is_met(&self, queues: bool) -> bool {
        let units = |units: u64| {
            // What commitments took nobody here can give back: that is for an operator, and no deadlock.
            let enough = self.used == 0
                || self.used + self.confirmed + units <= u64::from(self.capacity)
                    && !mutants::on(Mutant::OneHolderIsAll);
            self.exclusive == 0 && self.readers == 0 && enough
        };
        let free = match self.access {
            Access::Exclusive => self.exclusive == 0 && self.readers == 0 && self.used == 0,
            Access::Shared => self.exclusive == 0 && self.used == 0,
            Access::Slot => units(1),
            Access::Units(n) => units(u64::from(n)),
        };
        free && !(queues && self.behind)
    }

    fn add(&mut self, frees: Frees) {
        match frees {
            Frees::Place => self.behind = true,
            Frees::Lease(Access::Exclusive) => self.exclusive += 1,
            Frees::Lease(Access::Shared) => self.readers += 1,
            Frees::Lease(Access::Slot) => self.used += 1,
            Frees::Lease(Access::Units(n)) => self.used += u64::from(n),
        }
    }

    fn remove(&mut self, frees: Frees) {
        match frees {
            Frees::Place => self.behind = false,
            Frees::Lease(Access::Exclusive) => self.exclusive -= 1,
            Frees::Lease(Access::Shared) => self.readers -= 1,
            Frees::Lease(Access::Slot) => self.used -= 1,
            Frees::Lease(Access::Units(n)) => self.used -= u64::from(n),
        }
    }
}

impl Graph {
    /// A new walk from one actor; `parties` bounds their places, `waits` how much can be reached by one edge each.
    pub fn start(&mut self, party: u32, parties: usize, waits: usize) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.marks.clear();
            self.stamp = 1;
        }
        self.grow(parties);
        self.nodes.clear();
        self.asks.clear();
        self.waits.clear();
        self.edges.clear();
        self.walked = 0;
        // Room that is not used costs nothing, and a long walk need not move what it has gathered.
        self.nodes.reserve(waits + 1);
        self.asks.reserve(waits);
        self.waits.reserve(waits);
        self.edges.reserve(waits);
        self.enter(party);
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, party: u32) -> Option<usize> {
        match self.marks.get(party as usize) {
            Some((stamp, node)) if *stamp == self.stamp => Some(*node as usize),
            _ => None,
        }
    }

    fn grow(&mut self, parties: usize) {
        if self.marks.len() < parties {
            self.marks.resize(parties, (0, 0));
        }
    }

    fn enter(&mut self, party: u32) -> u32 {
        if let Some(node) = self.node(party) {
            return node as u32;
        }
        let node = self.nodes.len() as u32;
        self.grow(party as usize + 1);
        self.marks[party as usize] = (self.stamp, node);
        self.nodes.push(Node { party, first: 0, waits: 0, edges: NONE });
        node
    }

    /// Looks at nodes until all that are reached were looked at, or the budget is used up. Says whether it is done.
    pub fn explore(&mut self, grantor: &Grantor, budget: &mut usize) -> bool {
        while self.walked < self.nodes.len() {
            if *budget == 0 {
                return false;
            }
            let before = self.edges.len();
            self.look_at(grantor, self.walked as u32);
            self.walked += 1;
            *budget = budget.saturating_sub(1 + self.edges.len() - before);
        }
        true
    }

    fn look_at(&mut self, grantor: &Grantor, node: u32) {
        let party = self.nodes[node as usize].party;
        let table = &grantor.table;
        self.nodes[node as usize].first = self.waits.len() as u32;
        for waiter in &table.parties[party].waits {
            let wait = self.waits.len() as u32;
            let waiting = table.waiter(*waiter);
            self.waits.push(Wait {
                node,
                waiter: *waiter,
                order: waiting.order,
                priority: waiting.priority,
                first: self.asks.len() as u32,
                asks: waiting.asks.len() as u32,
            });
            self.nodes[node as usize].waits += 1;
            for ask in &waiting.asks {
                let Some(crowd) = table.resources.crowd(ask.resource) else {
                    continue;
                };
                let number = self.asks.len() as u32;
                self.asks.push(Asked {
                    wait,
                    resource: ask.resource,
                    edges: self.edges.len() as u32,
                    access: ask.access,
                    capacity: table.capacity(ask.resource),
                    confirmed: crowd.confirmed,
                    exclusive: 0,
                    readers: 0,
                    used: 0,
                    behind: false,
                });
                for slot in &crowd.leases {
                    let lease = table.lease(*slot);
                    // Whoever holds without a session is no actor here; it may let go at any time.
                    if lease.is_apart() || !grantor.is_actor(lease.party) {
                        continue;
                    }
                    self.connect(lease.party, number, Frees::Lease(lease.access()));
                }
                if !waiting.may_pass {
                    let mine = Turn::new(waiting.effective, waiting.order, *waiter);
                    let before = self.stands_before(grantor, ask.resource, mine, party);
                    if let Some(before) = before {
                        self.connect(before, number, Frees::Place);
                    }
                }
            }
        }
    }

    /// The nearest one before it in the queue that could be granted: it stands for all before it.
    fn stands_before(&self, grantor: &Grantor, resource: u32, mine: Turn, party: u32) -> Option<u32> {
        let queue = &grantor.table.resources.crowd(resource)?.queue;
        if queue.len() == 1 {
            return None;
        }
        let mut turn = mine;
        loop {
            turn = queue.before(turn)?;
            let other = grantor.table.waiter(turn.waiter).party;
            if other != party && grantor.may_be_granted(turn.waiter) {
                return Some(other);
            }
        }
    }

    fn connect(&mut self, party: u32, ask: u32, frees: Frees) {
        let node = self.enter(party);
        let first = &mut self.nodes[node as usize].edges;
        let next = std::mem::replace(first, self.edges.len() as u32);
        self.edges.push(Edge { ask, node, frees, next });
    }

    /// Whether the first node can get free: graph reduction over what was walked.
    pub fn is_free(&mut self, queues: bool) -> bool {
        self.live.clear();
        self.live.resize(self.nodes.len(), false);
        for asked in &mut self.asks {
            (asked.exclusive, asked.readers, asked.used, asked.behind) = (0, 0, 0, false);
        }
        for edge in &self.edges {
            self.asks[edge.ask as usize].add(edge.frees);
        }
        self.unmet.clear();
        self.unmet.extend(self.waits.iter().map(|wait| wait.asks));
        self.ready.clear();
        for (i, node) in self.nodes.iter().enumerate() {
            if node.waits == 0 {
                self.live[i] = true;
                self.ready.push(i as u32);
            }
        }
        for i in 0..self.asks.len() {
            if self.asks[i].is_met(queues) {
                self.met(self.asks[i].wait);
            }
        }
        while let Some(node) = self.ready.pop() {
            let mut at = self.nodes[node as usize].edges;
            while at != NONE {
                let Edge { ask, frees, next, .. } = self.edges[at as usize];
                let asked = &mut self.asks[ask as usize];
                let before = asked.is_met(queues);
                asked.remove(frees);
                if !before && asked.is_met(queues) {
                    let wait = asked.wait;
                    self.met(wait);
                }
                at = next;
            }
        }
        self.live[0]
    }

    /// One more resource of a wait can be had. With the last one its actor is free: one wait is enough.
    fn met(&mut self, wait: u32) {
        let unmet = &mut self.unmet[wait as usize];
        *unmet -= 1;
        let node = self.waits[wait as usize].node as usize;
        if *unmet == 0 && !self.live[node] {
            self.live[node] = true;
            self.ready.push(node as u32);
        }
    }

    /// Whether an actor was reached and can get free.
    pub fn is_free_actor(&self, party: u32) -> bool {
        self.node(party).is_some_and(|node| self.live[node])
    }

    /// All actors that were reached and can get free.
    pub fn free_actors(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().zip(&self.live).filter(|(_, live)| **live).map(|(node, _)| node.party)
    }

    /// A stuck actor: this one, or else the first.
    pub fn stuck_actor(&self, preferred: u32) -> Option<u32> {
        let stuck = |node: &usize| !self.live[*node];
        let node = self.node(preferred).filter(stuck).or_else(|| (0..self.nodes.len()).find(stuck))?;
        Some(self.nodes[node].party)
    }

    /// The waits of those stuck actors whose holds keep others stuck. Everybody else is freed by their passing, and need not
    /// pass too.
    pub fn waits_in_the_way(&self, grantor: &Grantor) -> Vec<u32> {
        let stuck = self.nodes.iter().zip(&self.live).filter(|(_, live)| !**live).map(|(node, _)| node);
        let waits = |node: &Node| grantor.table.parties[node.party].waits.iter().copied();
        stuck.filter(|node| self.is_in_the_way(node)).flat_map(waits).collect()
    }

    fn is_in_the_way(&self, node: &Node) -> bool {
        let mut at = node.edges;
        while at != NONE {
            let Edge { ask, frees, next, .. } = self.edges[at as usize];
            let asked = &self.asks[ask as usize];
            let waiting = self.waits[asked.wait as usize].node;
            if matches!(frees, Frees::Lease(_)) && !self.live[waiting as usize] && !asked.is_met(false) {
                return true;
            }
            at = next;
        }
        false
    }

    /// What keeps a stuck actor stuck, by what is left after the reduction.
    pub fn blocked_by(&self, party: u32) -> Option<Blocked> {
        let node = &self.nodes[self.node(party)?];
        for wait in node.first..node.first + node.waits {
            let Wait { waiter, order, priority, first, .. } = self.waits[wait as usize];
            let asks = (first..).zip(&self.asks[first as usize..]).take_while(|(_, asked)| asked.wait == wait);
            for (ask, asked) in asks.filter(|(_, asked)| !asked.is_met(false)) {
                let mut edges = self.edges[asked.edges as usize..].iter().take_while(|edge| edge.ask == ask);
                let is_stuck = |edge: &&Edge| !self.live[edge.node as usize];
                let stuck = edges.find(|edge| matches!(edge.frees, Frees::Lease(_)) && is_stuck(edge));
                if let Some(edge) = stuck {
                    let holder = self.nodes[edge.node as usize].party;
                    return Some(Blocked { waiter, order, priority, resource: asked.resource, holder });
                }
            }
        }
        None
    }
}
