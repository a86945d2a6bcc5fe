//! The cached keys as one section of a snapshot: the same state always gives the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Cache, Entry, Kind, Lease, Sole};
use crate::codec::{Malformed, Reader, Write};
use crate::limits::{CACHE_KEYS, CACHE_READERS, HOLDER_BYTES, NAME_BYTES};
use crate::payload::{Past, Span, put_session, session, text};
use crate::refusal::number;
use crate::token::Number;

impl Cache {
    /// Appends the section's bytes: the keys in order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.num(self.floor);
        out.num(self.entries.len() as u64);
        for (key, entry) in &self.entries {
            out.text(key);
            out.num(entry.version);
            out.flag(entry.filled);
            Past::encode(entry.past, out);
            match &entry.sole {
                None => out.u8(0),
                Some(sole) => {
                    out.u8(match sole.kind {
                        Kind::Intent => 1,
                        Kind::Fill => 2,
                    });
                    out.num(sole.number.get());
                    sole.lease.encode(out);
                }
            }
            out.num(entry.readers.len() as u64);
            for (lease, reader) in &entry.readers {
                out.num(lease.get());
                reader.encode(out);
            }
        }
    }

    /// Takes the section off the front of bytes.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
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
            let entry = Entry {
                version: version(from)?,
                filled: from.flag()?,
                past: Past::decode(from)?,
                sole: sole(from)?,
                readers: readers(from)?,
            };
            let sole = entry.sole.iter().map(|sole| (sole.number, &sole.lease));
            for (number, lease) in sole.chain(entry.readers.iter().map(|(number, lease)| (*number, lease))) {
                if cache.held.insert(number.get(), key.clone()).is_some() {
                    return Err(from.wrong("a number given out twice"));
                }
                cache.live.begin(number.get(), lease.span, lease.session);
            }
            cache.entries.insert(key.clone(), entry);
            cache.rest(&key);
            if !cache.entries.contains_key(&key) {
                return Err(from.wrong("a cached key that says nothing"));
            }
        }
        Ok(cache)
    }
}

impl Lease {
    fn encode(&self, out: &mut Vec<u8>) {
        self.span.encode(out);
        put_session(self.session, out);
        out.text(&self.holder);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let span = Span::decode(from)?;
        Ok(Self { span, session: session(from)?, holder: text(from, HOLDER_BYTES)?.into() })
    }
}

/// A version: a token number, or 0.
fn version(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let version = from.num()?;
    if version <= Number::MAX.get() { Ok(version) } else { Err(from.wrong("not a version")) }
}

fn sole(from: &mut Reader<'_>) -> Result<Option<Sole>, Malformed> {
    let kind = match from.u8()? {
        0 => return Ok(None),
        1 => Kind::Intent,
        2 => Kind::Fill,
        _ => return Err(from.wrong("neither a writer nor a filler")),
    };
    Ok(Some(Sole { kind, number: number(from)?, lease: Lease::decode(from)? }))
}

fn readers(from: &mut Reader<'_>) -> Result<BTreeMap<Number, Lease>, Malformed> {
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
        readers.insert(lease, Lease::decode(from)?);
    }
    Ok(readers)
}
