//! Actors, holder names, sessions and waiters.

use super::deadline::RenewableDeadline;
use super::ended::Usage;
use super::lease::NONE;
use crate::ids::LeaseId;
use crate::lease::Access;
use crate::record::StoredOutcome;
use crate::store::index::{Index, NameHash};
use crate::store::paged_vec::PagedVec;
use crate::store::string_arena::{StringArena, StringRef};
use crate::time::GrantorTime;
use std::collections::VecDeque;

/// One actor: a holder name within a session, or of an identity without one. With a session it is a node of the wait-for graph.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub session: u32,
    pub holder: u32,
    /// The identity; in a session, the session's owner.
    pub owner: u32,
    /// The first of its leases, and their number.
    pub leases: u32,
    pub held: u32,
    pub waits: Vec<u32>,
    /// Its indexes in the lists of its session and of its holder name.
    in_session: u32,
    in_holder: u32,
    /// The highest priority that waits for one of its leases (P2), as applied to its own waits.
    pub inherited: u8,
    /// The priorities that wait for its leases. Derived.
    pub waited_for: PriorityCounts,
}

/// The priorities that wait for an actor: for each, the number of its leases whose first waiter has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriorityCounts {
    /// Ascending by priority.
    counts: Vec<(u8, u32)>,
}

impl PriorityCounts {
    /// The highest of them; zero if there is none.
    pub fn highest(&self) -> u8 {
        self.counts.last().map_or(0, |(priority, _)| *priority)
    }

    pub fn add(&mut self, priority: u8) {
        match self.counts.binary_search_by_key(&priority, |(priority, _)| *priority) {
            Ok(at) => self.counts[at].1 += 1,
            Err(at) => self.counts.insert(at, (priority, 1)),
        }
    }

    pub fn remove(&mut self, priority: u8) {
        let at = self.counts.binary_search_by_key(&priority, |(priority, _)| *priority);
        let at = at.expect("it was counted when it was added");
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }
}

/// A holder name with its actors and their usage.
#[derive(Clone, Debug)]
pub(crate) struct HolderEntry {
    pub name: StringRef,
    pub actors: Vec<u32>,
    /// Number of sessions with this name.
    pub sessions: u32,
    pub usage: Option<Box<Usage>>,
}

/// A session, which carries leases and waits.
#[derive(Clone, Debug)]
pub(crate) struct SessionEntry {
    /// The identity that opened it. A tombstone keeps it.
    pub owner: u32,
    /// The epoch of the access rules under which the owner was last found to be allowed to renew. Not part of the state.
    pub checked: u32,
    pub holder: u32,
    pub renewal: RenewableDeadline,
    /// The digest of the secret that resumes it.
    pub secret: [u8; 32],
    pub waits_only: bool,
    pub actors: Vec<u32>,
    pub leases: u32,
    pub waits: u32,
    /// XOR of the token numbers of its leases.
    pub digest: u64,
    /// Stored replies that the client has not acknowledged, by sequence.
    pub requests: VecDeque<StoredReply>,
    pub lowest: u64,
}

/// The stored reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredReply {
    pub sequence: u64,
    pub digest: u64,
    pub outcome: StoredOutcome,
}

impl SessionEntry {
    pub fn stored_reply(&self, sequence: u64) -> Option<&StoredReply> {
        let at = self.requests.binary_search_by_key(&sequence, |request| request.sequence).ok()?;
        self.requests.get(at)
    }

    /// Stores a reply, in place of an earlier one to the same request.
    pub fn store_reply(&mut self, request: StoredReply) {
        match self.requests.binary_search_by_key(&request.sequence, |known| known.sequence) {
            Ok(at) => self.requests[at] = request,
            Err(at) => self.requests.insert(at, request),
        }
    }

    /// Drops the replies that the client acknowledged.
    pub fn acknowledge(&mut self, lowest: u64) {
        self.lowest = self.lowest.max(lowest);
        while self.requests.front().is_some_and(|request| request.sequence < self.lowest) {
            self.requests.pop_front();
        }
    }

    /// Adds a lease to the stored reply of a granted wait.
    pub fn granted(&mut self, sequence: u64, lease: LeaseId) {
        if let Ok(at) = self.requests.binary_search_by_key(&sequence, |known| known.sequence) {
            match &mut self.requests[at].outcome {
                StoredOutcome::Granted(leases) => leases.push(lease),
                other => *other = StoredOutcome::Granted(vec![lease]),
            }
        }
    }
}

/// A wait for one resource, or atomically for several.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub actor: u32,
    pub resources: Vec<ResourceRequest>,
    pub atomic: bool,
    pub ttl: u32,
    pub priority: u8,
    /// Its own priority, or the one it inherits through its actor. Derived.
    pub effective: u8,
    pub order: u64,
    pub until: GrantorTime,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: Box<[u8]>,
    /// Number of its resources granted so far in the batch that grants them all.
    pub got: u32,
    /// The tag of the request that receives the outcome. Not part of the state.
    pub tag: Option<u64>,
    /// It may pass the waiters ahead of it, because they wait for its actor. Not part of the state.
    pub may_pass: bool,
}

/// One resource of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    pub resource: u32,
    pub access: Access,
}

/// All actors and holder names.
pub(crate) struct Actors {
    actors: PagedVec<Actor>,
    vacant: Vec<u32>,
    index: Index,
    holders: PagedVec<HolderEntry>,
    vacant_holders: Vec<u32>,
    names: Index,
    hash: NameHash,
}

impl Actors {
    pub fn new(hash: NameHash) -> Self {
        Self {
            actors: PagedVec::new(),
            vacant: Vec::new(),
            index: Index::new(),
            holders: PagedVec::new(),
            vacant_holders: Vec::new(),
            names: Index::new(),
            hash,
        }
    }

    pub fn find_holder(&self, name: &str, texts: &StringArena) -> Option<u32> {
        let hash = self.hash.hash(name.as_bytes());
        self.names.find(hash, |at| texts.bytes(self.holders[at].name) == name.as_bytes())
    }

    pub fn intern_holder(&mut self, name: &str, texts: &mut StringArena) -> u32 {
        if let Some(at) = self.find_holder(name, texts) {
            return at;
        }
        let hash = self.hash.hash(name.as_bytes());
        let holder = HolderEntry { name: texts.put(name), actors: Vec::new(), sessions: 0, usage: None };
        let at = match self.vacant_holders.pop() {
            Some(at) => {
                self.holders[at] = holder;
                at
            }
            None => self.holders.push(holder),
        };
        let (holders, hasher) = (&self.holders, &self.hash);
        self.names.insert(hash, at, |other| hasher.hash(texts.bytes(holders[other].name)));
        at
    }

    /// Removes a name without actors, sessions and usage.
    pub fn remove_holder_if_unused(&mut self, at: u32, texts: &mut StringArena) {
        let holder = &self.holders[at];
        if !holder.actors.is_empty() || holder.sessions > 0 || holder.usage.is_some() {
            return;
        }
        let hash = self.hash.hash(texts.bytes(holder.name));
        let known = self.names.remove(hash, at);
        assert!(known, "a holder is indexed under its name");
        texts.free(holder.name);
        self.vacant_holders.push(at);
    }

    /// The actor with this name in a session, or of an identity without one.
    pub fn find(&self, session: u32, owner: u32, holder: u32) -> Option<u32> {
        self.index.find(Self::key(session, owner, holder), |at| {
            let actor = &self.actors[at];
            actor.session == session && actor.owner == owner && actor.holder == holder
        })
    }

    /// The index of the actor, added if it is new. `in_session` is its index in its session's list.
    pub fn enter(&mut self, session: u32, owner: u32, holder: u32, in_session: u32) -> u32 {
        if let Some(at) = self.find(session, owner, holder) {
            return at;
        }
        let in_holder = self.holders[holder].actors.len() as u32;
        let actor = Actor {
            session,
            holder,
            owner,
            leases: NONE,
            held: 0,
            waits: Vec::new(),
            in_session,
            in_holder,
            inherited: 0,
            waited_for: PriorityCounts::default(),
        };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.actors[at] = actor;
                at
            }
            None => self.actors.push(actor),
        };
        self.holders[holder].actors.push(at);
        let actors = &self.actors;
        let key_of = |actor: &Actor| Self::key(actor.session, actor.owner, actor.holder);
        self.index.insert(Self::key(session, owner, holder), at, |other| key_of(&actors[other]));
        at
    }

    /// Removes an actor without leases and waits. Returns its index in its session's list and its holder.
    pub fn leave(&mut self, at: u32) -> (u32, u32) {
        let Actor { session, owner, holder, in_session, in_holder, .. } = self.actors[at];
        let known = self.index.remove(Self::key(session, owner, holder), at);
        assert!(known, "an actor is indexed under its session, owner and name");
        let list = &mut self.holders[holder].actors;
        list.swap_remove(in_holder as usize);
        if let Some(moved) = list.get(in_holder as usize) {
            self.actors[*moved].in_holder = in_holder;
        }
        self.vacant.push(at);
        (in_session, holder)
    }

    /// Updates the index of an actor that moved in its session's list.
    pub fn moved_in_session(&mut self, at: u32, index: u32) {
        self.actors[at].in_session = index;
    }

    pub fn holder(&self, at: u32) -> &HolderEntry {
        &self.holders[at]
    }

    pub fn holder_mut(&mut self, at: u32) -> &mut HolderEntry {
        &mut self.holders[at]
    }

    /// All holder names in use.
    pub fn holders(&self) -> impl Iterator<Item = &HolderEntry> {
        self.holders
            .iter()
            .map(|(_, holder)| holder)
            .filter(|holder| !holder.actors.is_empty() || holder.sessions > 0 || holder.usage.is_some())
    }

    /// Number of actor slots, used or vacant.
    pub fn slot_count(&self) -> usize {
        self.actors.len()
    }

    fn key(session: u32, owner: u32, holder: u32) -> u64 {
        let owner = u64::from(owner).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed =
            (u64::from(session) << 32 | u64::from(holder)).wrapping_add(owner).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

impl std::ops::Index<u32> for Actors {
    type Output = Actor;

    fn index(&self, at: u32) -> &Actor {
        &self.actors[at]
    }
}

impl std::ops::IndexMut<u32> for Actors {
    fn index_mut(&mut self, at: u32) -> &mut Actor {
        &mut self.actors[at]
    }
}
