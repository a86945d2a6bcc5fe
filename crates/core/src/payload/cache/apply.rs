//! Application of records to the cached keys, in service and in replay.

use std::sync::Arc;

use super::{CacheRecord, CacheTable, KeyEntry, KeyGrant, KeyOwner, OwnerKind};
use crate::access::IdentityUsage;
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::payload::{PastGrant, Span};
use crate::time::GrantorTime;
use crate::token::Number;

impl CacheTable {
    /// Applies a record whose owner has this number. After an error the table is inconsistent and must be discarded.
    pub fn apply(&mut self, record: &CacheRecord, at: GrantorTime, owner: u32) -> Result<(), &'static str> {
        match record {
            CacheRecord::Forgotten { key } => {
                let entry = self.entries.get(key).filter(|e| e.is_idle()).ok_or("a key that is not idle")?;
                let version = entry.version;
                self.floor = self.floor.max(version);
                self.idle.remove(&(version, key.clone()));
                self.entries.remove(key);
                Ok(())
            }
            CacheRecord::Read { key, lease, session, owner: _, reader, ttl_ms } => {
                let span = Span { since: at, ttl: *ttl_ms };
                let entry = KeyGrant { span, session: *session, owner, holder: reader.clone() };
                if self.entries.get(&**key).is_some_and(KeyEntry::has_intent) {
                    return Err("a read lease under an intent");
                }
                self.insert_grant(key, *lease, &entry)?.readers.insert(*lease, entry);
                Ok(())
            }
            CacheRecord::Renewed { lease } => {
                let key = self.held.get(&lease.get()).ok_or("a number that is not live")?;
                let entry = self.entries.get_mut(key).ok_or("a key that does not exist")?;
                let reader = entry.readers.get_mut(lease).ok_or("not a read lease")?;
                let to = Span { since: at, ..reader.span };
                let from = std::mem::replace(&mut reader.span, to);
                self.live.renew(lease.get(), from, to);
                Ok(())
            }
            CacheRecord::Began { key, kind, number, session, owner: _, holder, ttl_ms } => {
                let before = self.entries.get(&**key).and_then(|entry| entry.owner.as_ref());
                match before.map(|owner| (owner.kind, owner.number)) {
                    // The filler read before the write: its copy is outdated, and its token is stale from here on.
                    Some((OwnerKind::Fill, fill)) if *kind == OwnerKind::Intent => {
                        self.end(fill, EndReason::Released)?
                    }
                    Some(_) => return Err("a second writer or filler"),
                    None => {}
                }
                let span = Span { since: at, ttl: *ttl_ms };
                let lease = KeyGrant { span, session: *session, owner, holder: holder.clone() };
                let entry = self.insert_grant(key, *number, &lease)?;
                entry.owner = Some(KeyOwner { kind: *kind, number: *number, lease });
                Ok(())
            }
            CacheRecord::Done { number } => self.finish(*number),
            CacheRecord::Ended { number, reason } => self.end(*number, *reason),
        }
    }

    /// Ends the reads, intents and fills of a session in the same step as the session (S1).
    pub fn session_ended(&mut self, session: SessionId, _at: GrantorTime) {
        self.end_all(self.live.of(session), EndReason::Session);
    }

    /// Ends all grants of a backup after a restore (T5).
    pub fn restored(&mut self, _at: GrantorTime) {
        self.end_all(self.live.all(), EndReason::Restored);
    }

    fn end_all(&mut self, numbers: Vec<u64>, reason: EndReason) {
        for number in numbers.into_iter().filter_map(Number::new) {
            self.end(number, reason).expect("the index contains only live numbers");
        }
    }

    /// Adds a live number to the key and returns the key's entry.
    fn insert_grant(&mut self, key: &str, number: Number, lease: &KeyGrant) -> Result<&mut KeyEntry, &'static str> {
        let key = match self.entries.get_key_value(key) {
            Some((key, entry)) => {
                if entry.version >= number.get() || entry.past.is_some_and(|past| past.number >= number) {
                    return Err("a number that does not rise");
                }
                key.clone()
            }
            None if self.floor >= number.get() => return Err("a number that does not rise"),
            None => Arc::from(key),
        };
        if self.held.contains_key(&number.get()) {
            return Err("a number issued twice");
        }
        let floor = self.floor;
        let entry =
            self.entries.entry(key.clone()).or_insert_with(|| KeyEntry { version: floor, ..KeyEntry::default() });
        self.idle.remove(&(entry.version, key.clone()));
        self.live.insert(number.get(), lease.span, lease.session);
        self.granted.add(lease.owner, IdentityUsage::CACHE_GRANT);
        self.held.insert(number.get(), key);
        Ok(entry)
    }

    fn finish(&mut self, number: Number) -> Result<(), &'static str> {
        let key = self.held.get(&number.get()).ok_or("a number that is not live")?.clone();
        let entry = self.entries.get_mut(&key).ok_or("a key that does not exist")?;
        let owner = entry.owner.take_if(|owner| owner.number == number).ok_or("neither a writer nor a filler")?;
        self.held.remove(&number.get());
        self.live.end(number.get(), owner.lease.span, owner.lease.session);
        self.granted.remove(owner.lease.owner, IdentityUsage::CACHE_GRANT);
        if owner.kind == OwnerKind::Intent {
            // A commit is granted only after every remaining reader expired; this record also ends those readers.
            for (lease, reader) in std::mem::take(&mut entry.readers) {
                self.held.remove(&lease.get());
                self.live.end(lease.get(), reader.span, reader.session);
                self.granted.remove(reader.owner, IdentityUsage::CACHE_GRANT);
            }
        }
        entry.version = number.get();
        entry.filled = owner.kind == OwnerKind::Fill;
        entry.past = Some(PastGrant { number, reason: EndReason::Released });
        self.retire_if_idle(&key);
        Ok(())
    }

    fn end(&mut self, number: Number, reason: EndReason) -> Result<(), &'static str> {
        let key = self.held.get(&number.get()).ok_or("a number that is not live")?.clone();
        let entry = self.entries.get_mut(&key).ok_or("a key that does not exist")?;
        let lease = match entry.owner.take_if(|owner| owner.number == number) {
            Some(owner) => {
                (entry.version, entry.filled) = entry.after(&owner, reason);
                entry.past = Some(PastGrant { number, reason });
                owner.lease
            }
            None => entry.readers.remove(&number).ok_or("neither a reader, a writer nor a filler")?,
        };
        self.held.remove(&number.get());
        self.live.end(number.get(), lease.span, lease.session);
        self.granted.remove(lease.owner, IdentityUsage::CACHE_GRANT);
        self.retire_if_idle(&key);
        Ok(())
    }

    /// Marks an unused key as idle, or removes it immediately if the floor already covers its version.
    pub(super) fn retire_if_idle(&mut self, key: &Arc<str>) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.is_idle()) else { return };
        if entry.version <= self.floor && entry.past.is_none() {
            self.entries.remove(key);
        } else {
            self.idle.insert((entry.version, key.clone()));
        }
    }
}

impl KeyEntry {
    fn is_idle(&self) -> bool {
        self.readers.is_empty() && self.owner.is_none()
    }

    fn has_intent(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == OwnerKind::Intent)
    }
}
