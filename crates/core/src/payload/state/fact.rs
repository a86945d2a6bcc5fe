//! What is put on record about small state, the only way in which it changes, and its section of a snapshot.

use std::sync::Arc;

use super::{Shelf, Small, Stored, cost};
use crate::codec::{Malformed, Reader, Write};
use crate::limits::{NAME_BYTES, STATE_BYTES, STATE_KEY_BYTES, STATE_KEYS};
use crate::mutants::{self, Mutant};
use crate::payload::text;
use crate::refusal::number;
use crate::time::Millis;
use crate::token::Number;

/// One change of a resource's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A value was written.
    Put {
        /// The resource.
        resource: Box<str>,
        /// The token of the lease under which it was written.
        token: Number,
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

impl Fact {
    /// The highest token number that this fact assigns: none, for it only shows the token of a lease.
    pub const fn numbers(&self) -> Option<Number> {
        None
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put { resource, token, key, bytes } => {
                out.u8(1);
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

    /// Takes a fact off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let code = from.u8()?;
        if !(1..=2).contains(&code) {
            return Err(from.wrong("no such fact about small state"));
        }
        let resource = text(from, NAME_BYTES)?.into();
        let token = number(from)?;
        let key = text(from, STATE_KEY_BYTES)?.into();
        Ok(match code {
            1 => Self::Put { resource, token, key, bytes: value(from)? },
            _ => Self::Deleted { resource, token, key },
        })
    }
}

fn value(from: &mut Reader<'_>) -> Result<Arc<[u8]>, Malformed> {
    let bytes = from.bytes()?;
    if bytes.len() > STATE_BYTES { Err(from.wrong("value too long")) } else { Ok(bytes.into()) }
}

impl Small {
    /// Makes a fact true. One that does not fit what is there says so, and the table is then good for nothing more.
    pub fn apply(&mut self, fact: &Fact, _at: Millis) -> Result<(), &'static str> {
        match fact {
            Fact::Put { resource, token, key, bytes } => {
                if !self.resources.contains_key(resource) {
                    self.bytes += cost(resource, 0);
                    let shelf = Shelf { mark: *token, revision: 0, keys: Default::default() };
                    self.resources.insert(resource.clone(), shelf);
                }
                let shelf = self.changed(resource, *token)?;
                let stored = Stored { token: *token, revision: shelf.revision, bytes: bytes.clone() };
                let before = shelf.keys.insert(key.clone(), stored);
                self.bytes += cost(key, bytes.len());
                self.bytes -= before.map_or(0, |s| cost(key, s.bytes.len()));
                Ok(())
            }
            Fact::Deleted { resource, token, key } => {
                let before = self.changed(resource, *token)?.keys.remove(key).ok_or("a key that is not there")?;
                self.bytes -= cost(key, before.bytes.len());
                Ok(())
            }
        }
    }

    fn changed(&mut self, resource: &str, token: Number) -> Result<&mut Shelf, &'static str> {
        let shelf = self.resources.get_mut(resource).ok_or("a resource without state")?;
        if token < shelf.mark && !mutants::on(Mutant::LowerCheckpointAccepted) {
            return Err("a token below the mark");
        }
        shelf.mark = token;
        shelf.revision = shelf.revision.checked_add(1).ok_or("revisions beyond counting")?;
        Ok(shelf)
    }

    /// Appends the section's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.resources.len() as u64);
        for (resource, shelf) in &self.resources {
            out.text(resource);
            out.num(shelf.mark.get());
            out.num(shelf.revision);
            out.num(shelf.keys.len() as u64);
            for (key, stored) in &shelf.keys {
                out.text(key);
                out.num(stored.token.get());
                out.num(stored.revision);
                out.bytes(&stored.bytes);
            }
        }
    }

    /// Takes the section off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut small = Self::default();
        for _ in 0..from.num()? {
            let resource = text(from, NAME_BYTES)?;
            if small.resources.last_key_value().is_some_and(|(before, _)| **before >= *resource) {
                return Err(from.wrong("resources out of order"));
            }
            small.bytes += cost(resource, 0);
            let mut shelf = Shelf { mark: number(from)?, revision: from.num()?, keys: Default::default() };
            let keys = from.num()?;
            if keys > STATE_KEYS as u64 || shelf.revision >= 1 << 63 {
                return Err(from.wrong("too many keys or revisions"));
            }
            for _ in 0..keys {
                let key = text(from, STATE_KEY_BYTES)?;
                if shelf.keys.last_key_value().is_some_and(|(before, _)| **before >= *key) {
                    return Err(from.wrong("keys out of order"));
                }
                let stored = Stored { token: number(from)?, revision: from.num()?, bytes: value(from)? };
                if stored.token > shelf.mark || stored.revision == 0 || stored.revision > shelf.revision {
                    return Err(from.wrong("a value newer than its resource"));
                }
                small.bytes += cost(key, stored.bytes.len());
                shelf.keys.insert(key.into(), stored);
            }
            small.resources.insert(resource.into(), shelf);
        }
        Ok(small)
    }
}
