//! State stored under a lease: small values by resource and key. Each write checks the token, so a zombie's write is refused.
//!
//! A deleted key needs no tombstone. The resource's mark refuses every lower token for every key, and the resource's
//! revision keeps rising, so a key that is created again is never mistaken for its predecessor.

mod record;
#[cfg(test)]
mod tests;

pub use record::StateRecord;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::owner_usage::OwnerUsage;
use super::{Decision, RefusedDecision, TurnContext};
use crate::access::IdentityUsage;
use crate::limits::{STATE_BYTES, STATE_KEY_BYTES, STATE_KEYS, STATE_TOTAL};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, Refusal, RefusalSubject};
use crate::token::Number;

/// Accounted overhead of a resource or a key in bytes, so that many empty ones are bounded too.
const OVERHEAD: usize = 64;

/// A command for the state of a resource. The caller has checked that the lease is current.
#[derive(Clone, Copy, Debug)]
pub enum StateCommand<'a> {
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
        /// Write only if the key has this revision; 0 means only if the key does not exist.
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
        /// Remove only if the key has this revision.
        expect: Option<u64>,
    },
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateAnswer {
    /// The value is stored.
    Put {
        /// The new revision of the key.
        revision: u64,
    },
    /// The key is removed.
    Deleted,
}

/// A stored value with the token it was written under (H1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateValue {
    /// The token of the lease under which it was written.
    pub token: Number,
    /// Rises with every write to the resource.
    pub revision: u64,
    /// The value.
    pub bytes: Arc<[u8]>,
    /// The identity that wrote it, by its number among the owners.
    pub(crate) owner: u32,
}

/// The state of all resources. It outlives the leases under which it was written.
#[derive(Clone, Debug, Default)]
pub struct StateTable {
    resources: BTreeMap<Box<str>, ResourceValues>,
    bytes: usize,
    /// The accounted bytes of each identity.
    written: OwnerUsage,
}

#[derive(Clone, Debug)]
struct ResourceValues {
    mark: Number,
    revision: u64,
    /// The identity that wrote first; its name and its mark stay.
    owner: u32,
    keys: BTreeMap<Box<str>, StateValue>,
}

impl StateTable {
    /// Decides a command without changing the table.
    pub fn decide(&self, at: &TurnContext<'_>, command: &StateCommand<'_>) -> Decision<StateRecord, StateAnswer> {
        let decided = match *command {
            StateCommand::Put { resource, token, key, bytes, expect } => {
                self.put(at, resource, token, key, bytes, expect)
            }
            StateCommand::Delete { resource, token, key, expect } => self.delete(resource, token, key, expect),
        };
        decided.unwrap_or_else(|refusal| RefusedDecision::from(refusal).into())
    }

    fn put(
        &self,
        at: &TurnContext<'_>,
        resource: &str,
        token: Number,
        key: &str,
        bytes: &[u8],
        expect: Option<u64>,
    ) -> Result<Decision<StateRecord, StateAnswer>, Refusal> {
        if key.is_empty() || key.len() > STATE_KEY_BYTES || key.chars().any(char::is_control) {
            return Err(Refusal::Invalid { field: "key", reason: "1 to 128 bytes without control characters" });
        }
        within(Limit::Value, STATE_BYTES, bytes.len())?;
        let (values, current) = self.check_write(resource, token, key, expect)?;
        if current.is_none() {
            within(Limit::Keys, STATE_KEYS, values.map_or(0, |s| s.keys.len()) + 1)?;
        }
        let new_shelf = if values.is_some() { 0 } else { cost(resource, 0) };
        let freed = current.map_or(0, |s| cost(key, s.bytes.len()));
        within(Limit::Value, STATE_TOTAL, self.bytes - freed + new_shelf + cost(key, bytes.len()))?;
        let revision = values.map_or(0, |s| s.revision) + 1;
        let (owner, resource, key) = (at.owner.map(Into::into), resource.into(), key.into());
        let record = StateRecord::Put { resource, token, owner, key, bytes: bytes.into() };
        Ok(Decision::accept(vec![record], StateAnswer::Put { revision }))
    }

    fn delete(
        &self,
        resource: &str,
        token: Number,
        key: &str,
        expect: Option<u64>,
    ) -> Result<Decision<StateRecord, StateAnswer>, Refusal> {
        let (_, current) = self.check_write(resource, token, key, expect)?;
        if current.is_none() {
            return Err(Refusal::NotFound(RefusalSubject::Key));
        }
        let record = StateRecord::Deleted { resource: resource.into(), token, key: key.into() };
        Ok(Decision::accept(vec![record], StateAnswer::Deleted))
    }

    /// The current values, if the token may change them and the revision is as expected. The token is checked first, so
    /// that a zombie learns that it is stale.
    fn check_write(
        &self,
        resource: &str,
        token: Number,
        key: &str,
        expect: Option<u64>,
    ) -> Result<(Option<&ResourceValues>, Option<&StateValue>), Refusal> {
        let values = self.resources.get(resource);
        if let Some(values) = values
            && token < values.mark
            && !mutants::on(Mutant::LowerCheckpointAccepted)
        {
            return Err(Refusal::Stale { presented: token.get(), mark: values.mark.get() });
        }
        let current = values.and_then(|s| s.keys.get(key));
        if expect.is_some_and(|revision| revision != current.map_or(0, |s| s.revision)) {
            return Err(Refusal::Conflict(RefusalSubject::Key));
        }
        Ok((values, current))
    }

    /// What an identity wrote last.
    pub(crate) fn usage_of(&self, owner: u32) -> IdentityUsage {
        self.written.get(owner)
    }

    /// How much more an identity has after it wrote a value; `None` for one that owns nothing yet.
    pub(crate) fn growth(&self, owner: Option<u32>, resource: &str, key: &str, bytes: usize) -> IdentityUsage {
        let values = self.resources.get(resource);
        let before = values.and_then(|values| values.keys.get(key)).filter(|value| Some(value.owner) == owner);
        let freed = before.map_or(0, |value| cost(key, value.bytes.len()));
        let new_shelf = if values.is_some() { 0 } else { cost(resource, 0) };
        IdentityUsage::of_state((new_shelf + cost(key, bytes)).saturating_sub(freed))
    }

    /// The value of a key.
    pub fn get(&self, resource: &str, key: &str) -> Option<&StateValue> {
        self.resources.get(resource)?.keys.get(key)
    }

    /// The keys of a resource with their values, in order.
    pub fn list(&self, resource: &str) -> impl Iterator<Item = (&str, &StateValue)> {
        self.resources.get(resource).into_iter().flat_map(|s| s.keys.iter().map(|(key, stored)| (&**key, stored)))
    }

    /// The value written last under a resource, from which a successor starts (H1).
    pub fn newest(&self, resource: &str) -> Option<(&str, &StateValue)> {
        self.list(resource).max_by_key(|(_, stored)| stored.revision)
    }

    /// The highest token under which a resource's state was changed.
    pub fn mark(&self, resource: &str) -> Option<Number> {
        self.resources.get(resource).map(|s| s.mark)
    }
}

/// Accounted size of a name and its value.
fn cost(name: &str, bytes: usize) -> usize {
    OVERHEAD + name.len() + bytes
}

fn within(limit: Limit, max: usize, got: usize) -> Result<(), Refusal> {
    if got <= max { Ok(()) } else { Err(Refusal::Exhausted { limit, max: max as u64, got: got as u64 }) }
}
