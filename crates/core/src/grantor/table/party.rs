//! Who holds and who waits: an actor of a session, or a name that holds without one.

use super::ends::Usage;
use super::lease::NONE;
use super::term::Term;
use crate::ids::LeaseId;
use crate::lease::Access;
use crate::record::Outcome;
use crate::store::index::{Index, NameHash};
use crate::store::pages::Pages;
use crate::store::texts::{TextAt, Texts};
use crate::time::Millis;
use std::collections::VecDeque;

/// One actor. In the wait-for graph it is a node, if it has a session.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub session: u32,
    pub holder: u32,
    /// The first of its leases, and how many.
    pub leases: u32,
    pub held: u32,
    pub waits: Vec<u32>,
    /// Its places in the lists of its session and of its holder's name.
    in_session: u32,
    in_holder: u32,
    /// The highest priority that waits for something it holds (P2).
    pub inherited: u8,
}

/// A holder's name with all actors that go by it, and what they used.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub name: TextAt,
    pub parties: Vec<u32>,
    /// How many sessions go by it.
    pub sessions: u32,
    pub usage: Option<Box<Usage>>,
}

/// A session: liveness that leases hang on.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub holder: u32,
    pub term: Term,
    /// The digest of the secret that resumes it.
    pub secret: [u8; 32],
    pub waits_only: bool,
    pub parties: Vec<u32>,
    pub leases: u32,
    pub waits: u32,
    /// The exclusive or of the numbers of its leases.
    pub digest: u64,
    /// Requests whose answers the client may still ask for, by sequence.
    pub requests: VecDeque<Remembered>,
    pub lowest: u64,
}

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub sequence: u64,
    pub digest: u64,
    pub outcome: Outcome,
}

impl Session {
    pub fn remembered(&self, sequence: u64) -> Option<&Remembered> {
        let at = self.requests.binary_search_by_key(&sequence, |request| request.sequence).ok()?;
        self.requests.get(at)
    }

    /// Remembers an answer, in place of an earlier one to the same request.
    pub fn remember(&mut self, request: Remembered) {
        match self.requests.binary_search_by_key(&request.sequence, |known| known.sequence) {
            Ok(at) => self.requests[at] = request,
            Err(at) => self.requests.insert(at, request),
        }
    }

    /// Forgets what its client acknowledged.
    pub fn acknowledge(&mut self, lowest: u64) {
        self.lowest = self.lowest.max(lowest);
        while self.requests.front().is_some_and(|request| request.sequence < self.lowest) {
            self.requests.pop_front();
        }
    }

    /// A wait was granted: its request's answer becomes the leases, one by one.
    pub fn granted(&mut self, sequence: u64, lease: LeaseId) {
        if let Ok(at) = self.requests.binary_search_by_key(&sequence, |known| known.sequence) {
            match &mut self.requests[at].outcome {
                Outcome::Granted(leases) => leases.push(lease),
                other => *other = Outcome::Granted(vec![lease]),
            }
        }
    }
}

/// A wait for one resource, or for several at once.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub party: u32,
    pub asks: Vec<Ask>,
    pub several: bool,
    pub ttl: u32,
    pub priority: u8,
    /// Its own priority, or what it inherits from those who wait for its party. Derived.
    pub effective: u8,
    pub order: u64,
    pub until: Millis,
    pub sequence: Option<u64>,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: Box<[u8]>,
    /// How many of its resources were granted in the batch that grants them all.
    pub got: u32,
    /// Where the answer goes, while somebody listens. Not part of the state.
    pub tag: Option<u64>,
    /// It may pass those before it, because they wait for it. Not part of the state.
    pub may_pass: bool,
}

/// One resource of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub resource: u32,
    pub access: Access,
}

/// All parties and holder names.
pub(crate) struct Parties {
    parties: Pages<Party>,
    vacant: Vec<u32>,
    index: Index,
    holders: Pages<Holder>,
    vacant_holders: Vec<u32>,
    names: Index,
    hash: NameHash,
}

impl Parties {
    pub fn new(hash: NameHash) -> Self {
        Self {
            parties: Pages::new(),
            vacant: Vec::new(),
            index: Index::new(),
            holders: Pages::new(),
            vacant_holders: Vec::new(),
            names: Index::new(),
            hash,
        }
    }

    pub fn find_holder(&self, name: &str, texts: &Texts) -> Option<u32> {
        let hash = self.hash.hash(name.as_bytes());
        self.names.find(hash, |at| texts.bytes(self.holders[at].name) == name.as_bytes())
    }

    pub fn enter_holder(&mut self, name: &str, texts: &mut Texts) -> u32 {
        if let Some(at) = self.find_holder(name, texts) {
            return at;
        }
        let hash = self.hash.hash(name.as_bytes());
        let holder = Holder { name: texts.put(name), parties: Vec::new(), sessions: 0, usage: None };
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

    /// Forgets a name that nobody goes by and that used nothing.
    pub fn leave_holder_if_empty(&mut self, at: u32, texts: &mut Texts) {
        let holder = &self.holders[at];
        if !holder.parties.is_empty() || holder.sessions > 0 || holder.usage.is_some() {
            return;
        }
        let hash = self.hash.hash(texts.bytes(holder.name));
        let known = self.names.remove(hash, at);
        assert!(known, "a holder is indexed under its name");
        texts.free(holder.name);
        self.vacant_holders.push(at);
    }

    pub fn find(&self, session: u32, holder: u32) -> Option<u32> {
        self.index.find(Self::key(session, holder), |at| {
            self.parties[at].session == session && self.parties[at].holder == holder
        })
    }

    /// The actor's place; new if it is new. `in_session` is the place it gets in its session's list.
    pub fn enter(&mut self, session: u32, holder: u32, in_session: u32) -> u32 {
        if let Some(at) = self.find(session, holder) {
            return at;
        }
        let in_holder = self.holders[holder].parties.len() as u32;
        let party =
            Party { session, holder, leases: NONE, held: 0, waits: Vec::new(), in_session, in_holder, inherited: 0 };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.parties[at] = party;
                at
            }
            None => self.parties.push(party),
        };
        self.holders[holder].parties.push(at);
        let parties = &self.parties;
        self.index
            .insert(Self::key(session, holder), at, |other| Self::key(parties[other].session, parties[other].holder));
        at
    }

    /// Forgets an actor that holds and waits for nothing. Returns its place in its session's list and its holder.
    pub fn leave(&mut self, at: u32) -> (u32, u32) {
        let Party { session, holder, in_session, in_holder, .. } = self.parties[at];
        let known = self.index.remove(Self::key(session, holder), at);
        assert!(known, "a party is indexed under its session and name");
        let list = &mut self.holders[holder].parties;
        list.swap_remove(in_holder as usize);
        if let Some(moved) = list.get(in_holder as usize) {
            self.parties[*moved].in_holder = in_holder;
        }
        self.vacant.push(at);
        (in_session, holder)
    }

    /// Another party took a place in its session's list.
    pub fn moved_in_session(&mut self, at: u32, place: u32) {
        self.parties[at].in_session = place;
    }

    pub fn holder(&self, at: u32) -> &Holder {
        &self.holders[at]
    }

    pub fn holder_mut(&mut self, at: u32) -> &mut Holder {
        &mut self.holders[at]
    }

    /// Every holder name that is known.
    pub fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.holders
            .iter()
            .map(|(_, holder)| holder)
            .filter(|holder| !holder.parties.is_empty() || holder.sessions > 0 || holder.usage.is_some())
    }

    /// How many places there are, taken or not; a bound for marks.
    pub fn places(&self) -> usize {
        self.parties.len()
    }

    fn key(session: u32, holder: u32) -> u64 {
        let mixed = (u64::from(session) << 32 | u64::from(holder)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }
}

impl std::ops::Index<u32> for Parties {
    type Output = Party;

    fn index(&self, at: u32) -> &Party {
        &self.parties[at]
    }
}

impl std::ops::IndexMut<u32> for Parties {
    fn index_mut(&mut self, at: u32) -> &mut Party {
        &mut self.parties[at]
    }
}
