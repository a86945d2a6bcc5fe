//! Small state written under a lease: the write is the check, and no zombie's write gets past a newer token.
//!
//! A deleted key needs no tombstone. The resource's mark refuses every lower token at every key, and the resource's
//! revisions go on counting, so a key that comes back is never taken for what it was.

mod fact;
#[cfg(test)]
mod tests;

pub use fact::Fact;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Decision, Moment, Refused};
use crate::limits::{STATE_BYTES, STATE_KEY_BYTES, STATE_KEYS, STATE_TOTAL};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, Refusal, What};
use crate::token::Number;

/// What the bookkeeping of a resource or a key is taken to cost, so that many empty ones are bounded too.
const OVERHEAD: usize = 64;

/// What can be asked of a resource's state. The caller has checked that the lease is current.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Writes a value.
    Put {
        /// The resource.
        resource: &'a str,
        /// The token of the lease under which it is written.
        token: Number,
        /// The key.
        key: &'a str,
        /// The value.
        bytes: &'a [u8],
        /// Only if the key is at this revision; 0 means only if there is no such key.
        expect: Option<u64>,
    },
    /// Removes a key.
    Delete {
        /// The resource.
        resource: &'a str,
        /// The token of the lease under which it is removed.
        token: Number,
        /// The key.
        key: &'a str,
        /// Only if the key is at this revision.
        expect: Option<u64>,
    },
}

/// What a granted command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value is kept.
    Put {
        /// The key's revision from now on.
        revision: u64,
    },
    /// The key is gone.
    Deleted,
}

/// A value with the token it was written under (H1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The token of the lease under which it was written.
    pub token: Number,
    /// Rises with every write to the resource.
    pub revision: u64,
    /// The value.
    pub bytes: Arc<[u8]>,
}

/// The small state of all resources. It outlives the leases under which it was written.
#[derive(Clone, Debug, Default)]
pub struct Small {
    resources: BTreeMap<Box<str>, Shelf>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Shelf {
    mark: Number,
    revision: u64,
    keys: BTreeMap<Box<str>, Stored>,
}

impl Small {
    /// What is to be put on record and told for a command; nothing changes by it.
    pub fn decide(&self, _at: &Moment<'_>, command: &Command<'_>) -> Decision<Fact, Answer> {
        let decided = match *command {
            Command::Put { resource, token, key, bytes, expect } => self.put(resource, token, key, bytes, expect),
            Command::Delete { resource, token, key, expect } => self.delete(resource, token, key, expect),
        };
        decided.unwrap_or_else(|why| Refused::from(why).into())
    }

    fn put(
        &self,
        resource: &str,
        token: Number,
        key: &str,
        bytes: &[u8],
        expect: Option<u64>,
    ) -> Result<Decision<Fact, Answer>, Refusal> {
        if key.is_empty() || key.len() > STATE_KEY_BYTES || key.chars().any(char::is_control) {
            return Err(Refusal::Invalid { field: "key", reason: "1 to 128 bytes without control characters" });
        }
        within(Limit::Value, STATE_BYTES, bytes.len())?;
        let (shelf, there) = self.look(resource, token, key, expect)?;
        if there.is_none() {
            within(Limit::Keys, STATE_KEYS, shelf.map_or(0, |s| s.keys.len()) + 1)?;
        }
        let new_shelf = if shelf.is_some() { 0 } else { cost(resource, 0) };
        let freed = there.map_or(0, |s| cost(key, s.bytes.len()));
        within(Limit::Value, STATE_TOTAL, self.bytes - freed + new_shelf + cost(key, bytes.len()))?;
        let revision = shelf.map_or(0, |s| s.revision) + 1;
        let fact = Fact::Put { resource: resource.into(), token, key: key.into(), bytes: bytes.into() };
        Ok(Decision::yes(vec![fact], Answer::Put { revision }))
    }

    fn delete(
        &self,
        resource: &str,
        token: Number,
        key: &str,
        expect: Option<u64>,
    ) -> Result<Decision<Fact, Answer>, Refusal> {
        let (_, there) = self.look(resource, token, key, expect)?;
        if there.is_none() {
            return Err(Refusal::NotFound(What::Key));
        }
        let fact = Fact::Deleted { resource: resource.into(), token, key: key.into() };
        Ok(Decision::yes(vec![fact], Answer::Deleted))
    }

    /// What is there, if the token may change it and it is as expected. The token is looked at first: a zombie learns
    /// that it is one.
    fn look(
        &self,
        resource: &str,
        token: Number,
        key: &str,
        expect: Option<u64>,
    ) -> Result<(Option<&Shelf>, Option<&Stored>), Refusal> {
        let shelf = self.resources.get(resource);
        if let Some(shelf) = shelf
            && token < shelf.mark
            && !mutants::on(Mutant::LowerCheckpointAccepted)
        {
            return Err(Refusal::Stale { presented: token.get(), mark: shelf.mark.get() });
        }
        let there = shelf.and_then(|s| s.keys.get(key));
        if expect.is_some_and(|revision| revision != there.map_or(0, |s| s.revision)) {
            return Err(Refusal::Conflict(What::Key));
        }
        Ok((shelf, there))
    }

    /// The value of a key.
    pub fn get(&self, resource: &str, key: &str) -> Option<&Stored> {
        self.resources.get(resource)?.keys.get(key)
    }

    /// The keys of a resource with their values, in order.
    pub fn list(&self, resource: &str) -> impl Iterator<Item = (&str, &Stored)> {
        self.resources.get(resource).into_iter().flat_map(|s| s.keys.iter().map(|(key, stored)| (&**key, stored)))
    }

    /// What was written last under a resource: where a successor starts from (H1).
    pub fn newest(&self, resource: &str) -> Option<(&str, &Stored)> {
        self.list(resource).max_by_key(|(_, stored)| stored.revision)
    }

    /// The highest token under which a resource's state was changed.
    pub fn mark(&self, resource: &str) -> Option<Number> {
        self.resources.get(resource).map(|s| s.mark)
    }
}

/// What a name and its value are taken to cost.
fn cost(name: &str, bytes: usize) -> usize {
    OVERHEAD + name.len() + bytes
}

fn within(limit: Limit, max: usize, got: usize) -> Result<(), Refusal> {
    if got <= max { Ok(()) } else { Err(Refusal::Exhausted { limit, max: max as u64, got: got as u64 }) }
}
