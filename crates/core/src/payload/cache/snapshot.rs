//! Snapshot section of the cached keys. Equal states have equal bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CacheTable, KeyEntry, KeyGrant, KeyOwner, OwnerKind};
use crate::access::{IdentityUsage, LOCAL_OWNER};
use crate::codec::{DecodeError, Reader, Write};
use crate::limits::{CACHE_KEYS, CACHE_READERS, HOLDER_BYTES, NAME_BYTES};
use crate::payload::{PastGrant, Span, put_session, session, text};
use crate::refusal::number;
use crate::token::Number;

impl CacheTable {
    /// Appends the encoded section, with the keys in order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.floor);
        out.num(self.entries.len() as u64);
        for (key, entry) in &self.entries {
            out.text(key);
            out.num(entry.version);
            out.flag(entry.filled);
            PastGrant::encode(entry.past, out);
            match &entry.owner {
                None => out.u8(0),
                Some(owner) => {
                    out.u8(match owner.kind {
                        OwnerKind::Intent => 1,
                        OwnerKind::Fill => 2,
                    });
                    out.num(owner.number.get());
                    owner.lease.encode(out);
                }
            }
            out.num(entry.readers.len() as u64);
            for (lease, reader) in &entry.readers {
                out.num(lease.get());
                reader.encode(out);
            }
        }
    }

    /// Decodes the section from the front of the input.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut cache = Self { floor: version(from)?, ..Self::default() };
        let keys = from.num()?;
        if keys > CACHE_KEYS as u64 {
            return Err(from.wrong("too many cached keys"));
        }
        for _ in 0..keys {
            let key: Arc<str> = text(from, NAME_BYTES)?.into();
            if cache.entries.last_key_value().is_some_and(|(before, _)| *before >= key) {
                return Err(from.wrong("cached keys out of order"));
            }
            let entry = KeyEntry {
                version: version(from)?,
                filled: from.flag()?,
                past: PastGrant::decode(from)?,
                owner: owner(from)?,
                readers: readers(from)?,
            };
            let owner = entry.owner.iter().map(|owner| (owner.number, &owner.lease));
            for (number, lease) in owner.chain(entry.readers.iter().map(|(number, lease)| (*number, lease))) {
                if cache.held.insert(number.get(), key.clone()).is_some() {
                    return Err(from.wrong("a number issued twice"));
                }
                cache.live.insert(number.get(), lease.span, lease.session);
                cache.granted.add(lease.owner, IdentityUsage::CACHE_GRANT);
            }
            cache.entries.insert(key.clone(), entry);
            cache.retire_if_idle(&key);
            if !cache.entries.contains_key(&key) {
                return Err(from.wrong("a cached key without content"));
            }
        }
        Ok(cache)
    }

    /// The owners of all read leases, intents and fills, in order of their numbers.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (u64, u32)> {
        self.held.keys().filter_map(|number| Some((*number, self.lease(Number::new(*number)?)?.owner)))
    }

    /// Sets the owner of a read lease, an intent or a fill that was decoded without it; false if it does not exist.
    pub(crate) fn set_owner(&mut self, number: u64, to: u32) -> bool {
        let entry = self.held.get(&number).and_then(|key| self.entries.get_mut(key));
        let (Some(entry), Some(number)) = (entry, Number::new(number)) else { return false };
        let grant = match &mut entry.owner {
            Some(owner) if owner.number == number => Some(&mut owner.lease),
            _ => entry.readers.get_mut(&number),
        };
        let Some(grant) = grant else { return false };
        grant.owner = to;
        self.granted.give(to, IdentityUsage::CACHE_GRANT);
        true
    }
}

impl KeyGrant {
    fn encode(&self, out: &mut Vec<u8>) {
        self.span.encode(out);
        put_session(self.session, out);
        out.text(&self.holder);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let span = Span::decode(from)?;
        Ok(Self { span, session: session(from)?, owner: LOCAL_OWNER, holder: text(from, HOLDER_BYTES)?.into() })
    }
}

/// A version: a token number, or 0.
fn version(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let version = from.num()?;
    if version <= Number::MAX.get() { Ok(version) } else { Err(from.wrong("not a version")) }
}

fn owner(from: &mut Reader<'_>) -> Result<Option<KeyOwner>, DecodeError> {
    let kind = match from.u8()? {
        0 => return Ok(None),
        1 => OwnerKind::Intent,
        2 => OwnerKind::Fill,
        _ => return Err(from.wrong("neither a writer nor a filler")),
    };
    Ok(Some(KeyOwner { kind, number: number(from)?, lease: KeyGrant::decode(from)? }))
}

fn readers(from: &mut Reader<'_>) -> Result<BTreeMap<Number, KeyGrant>, DecodeError> {
    let count = from.num()?;
    if count > CACHE_READERS as u64 {
        return Err(from.wrong("too many readers"));
    }
    let mut readers = BTreeMap::new();
    for _ in 0..count {
        let lease = number(from)?;
        if readers.last_key_value().is_some_and(|(before, _)| *before >= lease) {
            return Err(from.wrong("readers out of order"));
        }
        readers.insert(lease, KeyGrant::decode(from)?);
    }
    Ok(readers)
}
