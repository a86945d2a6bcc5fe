//! The part of the wait-for graph that is reachable from one actor, and its reduction.

use super::super::Grantor;
use super::super::table::resource::QueuePosition;
use crate::lease::Access;
use crate::mutants::{self, Mutant};

/// A wait-for graph, explored in steps and reduced in one. The buffers are reused between searches.
#[derive(Default)]
pub(super) struct Graph {
    /// The node of each actor, valid if its stamp is that of this search.
    node_of_actor: Vec<(u32, u32)>,
    stamp: u32,
    nodes: Vec<Node>,
    /// Number of visited nodes.
    visited: usize,
    checks: Vec<ResourceCheck>,
    waits: Vec<WaitNode>,
    edges: Vec<Edge>,
    live: Vec<bool>,
    unmet: Vec<u32>,
    ready: Vec<u32>,
}

struct Node {
    actor: u32,
    /// The first of its waits, and their number.
    first: u32,
    waits: u32,
    /// The first edge that is removed when the actor gets free.
    edges: u32,
}

struct WaitNode {
    node: u32,
    waiter: u32,
    order: u64,
    priority: u8,
    /// The first of its resource checks, and their number.
    first: u32,
    checks: u32,
}

/// Why an actor is stuck: its wait for a resource, and a stuck holder of it.
pub(super) struct Blocked {
    pub waiter: u32,
    pub order: u64,
    pub priority: u8,
    pub resource: u32,
    pub holder: u32,
}

/// What blocks one wait at one resource. The counters are reset for each reduction.
struct ResourceCheck {
    wait: u32,
    resource: u32,
    /// The first of its edges.
    edges: u32,
    access: Access,
    capacity: u32,
    confirmed: u64,
    exclusive: u32,
    readers: u32,
    used: u64,
    /// Another waiter is ahead of it.
    waiter_ahead: bool,
}

struct Edge {
    check: u32,
    node: u32,
    kind: EdgeKind,
    next: u32,
}

#[derive(Clone, Copy)]
enum EdgeKind {
    Lease(Access),
    Queue,
}

const NONE: u32 = u32::MAX;

impl ResourceCheck {
    fn is_met(&self, queues: bool) -> bool {
        let units = |units: u64| {
            // No actor can free committed units: that is an operator's task, and no deadlock.
            let enough = self.used == 0
                || self.used + self.confirmed + units <= u64::from(self.capacity)
                    && !mutants::on(Mutant::OneHolderBlocksAll);
            self.exclusive == 0 && self.readers == 0 && enough
        };
        let free = match self.access {
            Access::Exclusive => self.exclusive == 0 && self.readers == 0 && self.used == 0,
            Access::Shared => self.exclusive == 0 && self.used == 0,
            Access::Slot => units(1),
            Access::Units(n) => units(u64::from(n)),
        };
        free && !(queues && self.waiter_ahead)
    }

    fn add(&mut self, kind: EdgeKind) {
        match kind {
            EdgeKind::Queue => self.waiter_ahead = true,
            EdgeKind::Lease(Access::Exclusive) => self.exclusive += 1,
            EdgeKind::Lease(Access::Shared) => self.readers += 1,
            EdgeKind::Lease(Access::Slot) => self.used += 1,
            EdgeKind::Lease(Access::Units(n)) => self.used += u64::from(n),
        }
    }

    fn remove(&mut self, kind: EdgeKind) {
        match kind {
            EdgeKind::Queue => self.waiter_ahead = false,
            EdgeKind::Lease(Access::Exclusive) => self.exclusive -= 1,
            EdgeKind::Lease(Access::Shared) => self.readers -= 1,
            EdgeKind::Lease(Access::Slot) => self.used -= 1,
            EdgeKind::Lease(Access::Units(n)) => self.used -= u64::from(n),
        }
    }
}

impl Graph {
    /// Starts a search from one actor. `actors` is the number of actor slots, `waits` the number of waits.
    pub fn start(&mut self, actor: u32, actors: usize, waits: usize) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.node_of_actor.clear();
            self.stamp = 1;
        }
        self.grow(actors);
        self.nodes.clear();
        self.checks.clear();
        self.waits.clear();
        self.edges.clear();
        self.visited = 0;
        // Unused capacity costs nothing, and a long search need not reallocate.
        self.nodes.reserve(waits + 1);
        self.checks.reserve(waits);
        self.waits.reserve(waits);
        self.edges.reserve(waits);
        self.enter(actor);
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn node(&self, actor: u32) -> Option<usize> {
        match self.node_of_actor.get(actor as usize) {
            Some((stamp, node)) if *stamp == self.stamp => Some(*node as usize),
            _ => None,
        }
    }

    fn grow(&mut self, actors: usize) {
        if self.node_of_actor.len() < actors {
            self.node_of_actor.resize(actors, (0, 0));
        }
    }

    fn enter(&mut self, actor: u32) -> u32 {
        if let Some(node) = self.node(actor) {
            return node as u32;
        }
        let node = self.nodes.len() as u32;
        self.grow(actor as usize + 1);
        self.node_of_actor[actor as usize] = (self.stamp, node);
        self.nodes.push(Node { actor, first: 0, waits: 0, edges: NONE });
        node
    }

    /// Visits reachable nodes until all are visited or the budget is used up. Returns whether it is done.
    pub fn explore(&mut self, grantor: &Grantor, budget: &mut usize) -> bool {
        while self.visited < self.nodes.len() {
            if *budget == 0 {
                return false;
            }
            let before = self.edges.len();
            self.visit_node(grantor, self.visited as u32);
            self.visited += 1;
            *budget = budget.saturating_sub(1 + self.edges.len() - before);
        }
        true
    }

    fn visit_node(&mut self, grantor: &Grantor, node: u32) {
        let actor = self.nodes[node as usize].actor;
        let table = &grantor.table;
        self.nodes[node as usize].first = self.waits.len() as u32;
        for waiter in &table.actors[actor].waits {
            let wait = self.waits.len() as u32;
            let waiting = table.waiter(*waiter);
            self.waits.push(WaitNode {
                node,
                waiter: *waiter,
                order: waiting.order,
                priority: waiting.priority,
                first: self.checks.len() as u32,
                checks: waiting.resources.len() as u32,
            });
            self.nodes[node as usize].waits += 1;
            for wanted in &waiting.resources {
                let Some(state) = table.resources.state(wanted.resource) else {
                    continue;
                };
                let number = self.checks.len() as u32;
                self.checks.push(ResourceCheck {
                    wait,
                    resource: wanted.resource,
                    edges: self.edges.len() as u32,
                    access: wanted.access,
                    capacity: table.capacity(wanted.resource),
                    confirmed: state.confirmed,
                    exclusive: 0,
                    readers: 0,
                    used: 0,
                    waiter_ahead: false,
                });
                for slot in &state.leases {
                    let lease = table.lease(*slot);
                    // A holder without a session is not a node; it may release at any time.
                    if lease.is_predecessor() || !grantor.has_session(lease.actor) {
                        continue;
                    }
                    self.connect(lease.actor, number, EdgeKind::Lease(lease.access()));
                }
                if !waiting.may_pass {
                    let mine = QueuePosition::new(waiting.effective, waiting.order, *waiter);
                    let before = self.nearest_ahead(grantor, wanted.resource, mine, actor);
                    if let Some(before) = before {
                        self.connect(before, number, EdgeKind::Queue);
                    }
                }
            }
        }
    }

    /// The nearest grantable waiter ahead of it in the queue, which represents all waiters ahead.
    fn nearest_ahead(&self, grantor: &Grantor, resource: u32, mine: QueuePosition, actor: u32) -> Option<u32> {
        let queue = &grantor.table.resources.state(resource)?.queue;
        if queue.len() == 1 {
            return None;
        }
        let mut position = mine;
        loop {
            position = queue.before(position)?;
            let other = grantor.table.waiter(position.waiter).actor;
            if other != actor && grantor.may_be_granted(position.waiter) {
                return Some(other);
            }
        }
    }

    fn connect(&mut self, actor: u32, check: u32, kind: EdgeKind) {
        let node = self.enter(actor);
        let first = &mut self.nodes[node as usize].edges;
        let next = std::mem::replace(first, self.edges.len() as u32);
        self.edges.push(Edge { check, node, kind, next });
    }

    /// Whether the first node can get free, by reduction of the visited graph.
    pub fn is_free(&mut self, queues: bool) -> bool {
        self.live.clear();
        self.live.resize(self.nodes.len(), false);
        for check in &mut self.checks {
            (check.exclusive, check.readers, check.used, check.waiter_ahead) = (0, 0, 0, false);
        }
        for edge in &self.edges {
            self.checks[edge.check as usize].add(edge.kind);
        }
        self.unmet.clear();
        self.unmet.extend(self.waits.iter().map(|wait| wait.checks));
        self.ready.clear();
        for (i, node) in self.nodes.iter().enumerate() {
            if node.waits == 0 {
                self.live[i] = true;
                self.ready.push(i as u32);
            }
        }
        for i in 0..self.checks.len() {
            if self.checks[i].is_met(queues) {
                self.mark_met(self.checks[i].wait);
            }
        }
        while let Some(node) = self.ready.pop() {
            let mut at = self.nodes[node as usize].edges;
            while at != NONE {
                let Edge { check, kind, next, .. } = self.edges[at as usize];
                let check = &mut self.checks[check as usize];
                let before = check.is_met(queues);
                check.remove(kind);
                if !before && check.is_met(queues) {
                    let wait = check.wait;
                    self.mark_met(wait);
                }
                at = next;
            }
        }
        self.live[0]
    }

    /// Counts one more grantable resource of a wait. With the last one the actor is free: one wait is enough.
    fn mark_met(&mut self, wait: u32) {
        let unmet = &mut self.unmet[wait as usize];
        *unmet -= 1;
        let node = self.waits[wait as usize].node as usize;
        if *unmet == 0 && !self.live[node] {
            self.live[node] = true;
            self.ready.push(node as u32);
        }
    }

    /// Whether an actor was visited and can get free.
    pub fn is_free_actor(&self, actor: u32) -> bool {
        self.node(actor).is_some_and(|node| self.live[node])
    }

    /// All visited actors that can get free.
    pub fn free_actors(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().zip(&self.live).filter(|(_, live)| **live).map(|(node, _)| node.actor)
    }

    /// A stuck actor: this one, or else the first.
    pub fn stuck_actor(&self, preferred: u32) -> Option<u32> {
        let stuck = |node: &usize| !self.live[*node];
        let node = self.node(preferred).filter(stuck).or_else(|| (0..self.nodes.len()).find(stuck))?;
        Some(self.nodes[node].actor)
    }

    /// The waits of stuck actors whose leases block other stuck actors. When these pass, all others get free, so the others
    /// need not pass.
    pub fn blocking_waits(&self, grantor: &Grantor) -> Vec<u32> {
        let stuck = self.nodes.iter().zip(&self.live).filter(|(_, live)| !**live).map(|(node, _)| node);
        let waits = |node: &Node| grantor.table.actors[node.actor].waits.iter().copied();
        stuck.filter(|node| self.is_blocking(node)).flat_map(waits).collect()
    }

    fn is_blocking(&self, node: &Node) -> bool {
        let mut at = node.edges;
        while at != NONE {
            let Edge { check, kind, next, .. } = self.edges[at as usize];
            let check = &self.checks[check as usize];
            let waiting = self.waits[check.wait as usize].node;
            if matches!(kind, EdgeKind::Lease(_)) && !self.live[waiting as usize] && !check.is_met(false) {
                return true;
            }
            at = next;
        }
        false
    }

    /// What blocks a stuck actor after the reduction.
    pub fn blocked_by(&self, actor: u32) -> Option<Blocked> {
        let node = &self.nodes[self.node(actor)?];
        for wait in node.first..node.first + node.waits {
            let WaitNode { waiter, order, priority, first, .. } = self.waits[wait as usize];
            let resources = (first..).zip(&self.checks[first as usize..]).take_while(|(_, check)| check.wait == wait);
            for (wanted, check) in resources.filter(|(_, check)| !check.is_met(false)) {
                let mut edges = self.edges[check.edges as usize..].iter().take_while(|edge| edge.check == wanted);
                let is_stuck = |edge: &&Edge| !self.live[edge.node as usize];
                let stuck = edges.find(|edge| matches!(edge.kind, EdgeKind::Lease(_)) && is_stuck(edge));
                if let Some(edge) = stuck {
                    let holder = self.nodes[edge.node as usize].actor;
                    return Some(Blocked { waiter, order, priority, resource: check.resource, holder });
                }
            }
        }
        None
    }
}
