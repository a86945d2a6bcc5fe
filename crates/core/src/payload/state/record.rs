//! Journal records of the stored state, their application, and the snapshot section.

use std::sync::Arc;

use super::{ResourceValues, StateTable, StateValue, cost};
use crate::access::{IdentityUsage, LOCAL_OWNER};
use crate::codec::{DecodeError, Reader, Write};
use crate::limits::{NAME_BYTES, STATE_BYTES, STATE_KEY_BYTES, STATE_KEYS};
use crate::mutants::{self, Mutant};
use crate::payload::{owner, put_owner, text};
use crate::refusal::number;
use crate::time::GrantorTime;
use crate::token::Number;

/// One change of the state of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRecord {
    /// A value was written.
    Put {
        /// The resource.
        resource: Box<str>,
        /// The token of the lease under which it was written.
        token: Number,
        /// The identity that wrote it; `None` for `local`.
        owner: Option<Box<str>>,
        /// The key.
        key: Box<str>,
        /// The value.
        bytes: Arc<[u8]>,
    },
    /// A key was removed.
    Deleted {
        /// The resource.
        resource: Box<str>,
        /// The token of the lease under which it was removed.
        token: Number,
        /// The key.
        key: Box<str>,
    },
}

impl StateRecord {
    /// The highest token number that this record assigns: none, because it only carries the token of a lease.
    pub const fn numbers(&self) -> Option<Number> {
        None
    }

    /// The identity that wrote a value; `None` for `local`, and where it does not matter.
    pub(crate) fn owner(&self) -> Option<&str> {
        match self {
            Self::Put { owner, .. } => owner.as_deref(),
            Self::Deleted { .. } => None,
        }
    }

    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put { resource, token, owner, key, bytes } => {
                // Values of `local` have the code from before values had owners.
                out.u8(if owner.is_some() { 3 } else { 1 });
                put_owner(owner, out);
                out.text(resource);
                out.num(token.get());
                out.text(key);
                out.bytes(bytes);
            }
            Self::Deleted { resource, token, key } => {
                out.u8(2);
                out.text(resource);
                out.num(token.get());
                out.text(key);
            }
        }
    }

    /// Decodes a record from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = from.u8()?;
        if !(1..=3).contains(&code) {
            return Err(from.wrong("unknown record of stored state"));
        }
        let owner = owner(code == 3, from)?;
        let resource = text(from, NAME_BYTES)?.into();
        let token = number(from)?;
        let key = text(from, STATE_KEY_BYTES)?.into();
        Ok(match code {
            2 => Self::Deleted { resource, token, key },
            _ => Self::Put { resource, token, owner, key, bytes: value(from)? },
        })
    }
}

fn value(from: &mut Reader<'_>) -> Result<Arc<[u8]>, DecodeError> {
    let bytes = from.bytes()?;
    if bytes.len() > STATE_BYTES { Err(from.wrong("value too long")) } else { Ok(bytes.into()) }
}

impl StateTable {
    /// Applies a record whose owner has this number. After an error the table is inconsistent and must be discarded.
    pub fn apply(&mut self, record: &StateRecord, _at: GrantorTime, owner: u32) -> Result<(), &'static str> {
        match record {
            StateRecord::Put { resource, token, owner: _, key, bytes } => {
                if !self.resources.contains_key(resource) {
                    self.count(owner, cost(resource, 0));
                    let values = ResourceValues { mark: *token, revision: 0, owner, keys: Default::default() };
                    self.resources.insert(resource.clone(), values);
                }
                let values = self.values_for_write(resource, *token)?;
                let stored = StateValue { token: *token, revision: values.revision, bytes: bytes.clone(), owner };
                let before = values.keys.insert(key.clone(), stored);
                self.count(owner, cost(key, bytes.len()));
                if let Some(before) = before {
                    self.discount(key, &before);
                }
                Ok(())
            }
            StateRecord::Deleted { resource, token, key } => {
                let before =
                    self.values_for_write(resource, *token)?.keys.remove(key).ok_or("a key that does not exist")?;
                self.discount(key, &before);
                Ok(())
            }
        }
    }

    fn count(&mut self, owner: u32, bytes: usize) {
        self.bytes += bytes;
        self.written.add(owner, IdentityUsage::of_state(bytes));
    }

    fn discount(&mut self, key: &str, removed: &StateValue) {
        let bytes = cost(key, removed.bytes.len());
        self.bytes -= bytes;
        self.written.remove(removed.owner, IdentityUsage::of_state(bytes));
    }

    fn values_for_write(&mut self, resource: &str, token: Number) -> Result<&mut ResourceValues, &'static str> {
        let values = self.resources.get_mut(resource).ok_or("a resource without state")?;
        if token < values.mark && !mutants::on(Mutant::LowerCheckpointAccepted) {
            return Err("a token below the mark");
        }
        values.mark = token;
        values.revision = values.revision.checked_add(1).ok_or("revisions are exhausted")?;
        Ok(values)
    }

    /// Appends the encoded section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.resources.len() as u64);
        for (resource, values) in &self.resources {
            out.text(resource);
            out.num(values.mark.get());
            out.num(values.revision);
            out.num(values.keys.len() as u64);
            for (key, stored) in &values.keys {
                out.text(key);
                out.num(stored.token.get());
                out.num(stored.revision);
                out.bytes(&stored.bytes);
            }
        }
    }

    /// Decodes the section from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut table = Self::default();
        for _ in 0..from.num()? {
            let resource = text(from, NAME_BYTES)?;
            if table.resources.last_key_value().is_some_and(|(before, _)| **before >= *resource) {
                return Err(from.wrong("resources out of order"));
            }
            table.count(LOCAL_OWNER, cost(resource, 0));
            let (mark, revision) = (number(from)?, from.num()?);
            let mut values = ResourceValues { mark, revision, owner: LOCAL_OWNER, keys: Default::default() };
            let keys = from.num()?;
            if keys > STATE_KEYS as u64 || values.revision >= 1 << 63 {
                return Err(from.wrong("too many keys or revisions"));
            }
            for _ in 0..keys {
                let key = text(from, STATE_KEY_BYTES)?;
                if values.keys.last_key_value().is_some_and(|(before, _)| **before >= *key) {
                    return Err(from.wrong("keys out of order"));
                }
                let (token, revision, bytes) = (number(from)?, from.num()?, value(from)?);
                let stored = StateValue { token, revision, bytes, owner: LOCAL_OWNER };
                if stored.token > values.mark || stored.revision == 0 || stored.revision > values.revision {
                    return Err(from.wrong("a value newer than its resource"));
                }
                table.count(LOCAL_OWNER, cost(key, stored.bytes.len()));
                values.keys.insert(key.into(), stored);
            }
            table.resources.insert(resource.into(), values);
        }
        Ok(table)
    }

    /// The owners of all resources and values: of each resource in order, then of its values.
    pub(crate) fn owners(&self) -> impl Iterator<Item = u32> {
        self.resources
            .values()
            .flat_map(|values| std::iter::once(values.owner).chain(values.keys.values().map(|value| value.owner)))
    }

    /// Sets the owners of what was decoded without them: `next` gives the owner of each place, in the same order.
    pub(crate) fn set_owners(&mut self, mut next: impl FnMut() -> u32) {
        let Self { resources, written, bytes: _ } = self;
        for (resource, values) in resources {
            values.owner = next();
            written.give(values.owner, IdentityUsage::of_state(cost(resource, 0)));
            for (key, value) in &mut values.keys {
                value.owner = next();
                written.give(value.owner, IdentityUsage::of_state(cost(key, value.bytes.len())));
            }
        }
    }
}
