//! The only way in which cached keys change, in service and in replay.

use std::sync::Arc;

use super::{Cache, Entry, Fact, Kind, Lease, Sole};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::payload::{Past, Span};
use crate::time::Millis;
use crate::token::Number;

impl Cache {
    /// Makes a fact true. One that does not fit what is there says so, and the table is then good for nothing more.
    pub fn apply(&mut self, fact: &Fact, at: Millis) -> Result<(), &'static str> {
        match fact {
            Fact::Forgotten { key } => {
                let entry = self.entries.get(key).filter(|e| e.is_idle()).ok_or("a key that is not idle")?;
                let version = entry.version;
                self.floor = self.floor.max(version);
                self.idle.remove(&(version, key.clone()));
                self.entries.remove(key);
                Ok(())
            }
            Fact::Read { key, lease, session, reader, ttl_ms } => {
                let span = Span { since: at, ttl: *ttl_ms };
                let entry = Lease { span, session: *session, holder: reader.clone() };
                if self.entries.get(&**key).is_some_and(Entry::has_intent) {
                    return Err("a read lease under an intent");
                }
                self.begin(key, *lease, &entry)?.readers.insert(*lease, entry);
                Ok(())
            }
            Fact::Renewed { lease } => {
                let key = self.held.get(&lease.get()).ok_or("a number that is not live")?;
                let entry = self.entries.get_mut(key).ok_or("a key that is not there")?;
                let reader = entry.readers.get_mut(lease).ok_or("not a read lease")?;
                let to = Span { since: at, ..reader.span };
                let from = std::mem::replace(&mut reader.span, to);
                self.live.renew(lease.get(), from, to);
                Ok(())
            }
            Fact::Began { key, kind, number, session, holder, ttl_ms } => {
                let before = self.entries.get(&**key).and_then(|entry| entry.sole.as_ref());
                match before.map(|sole| (sole.kind, sole.number)) {
                    // The filler read before the write: what it brings is old, and its token is stale from here on.
                    Some((Kind::Fill, fill)) if *kind == Kind::Intent => self.end(fill, Reason::Released)?,
                    Some(_) => return Err("a second writer or filler"),
                    None => {}
                }
                let span = Span { since: at, ttl: *ttl_ms };
                let lease = Lease { span, session: *session, holder: holder.clone() };
                let entry = self.begin(key, *number, &lease)?;
                entry.sole = Some(Sole { kind: *kind, number: *number, lease });
                Ok(())
            }
            Fact::Done { number } => self.done(*number),
            Fact::Ended { number, reason } => self.end(*number, *reason),
        }
    }

    /// A session's end ends its reads, intents and fills in the same step (S1).
    pub fn session_ended(&mut self, session: SessionId, _at: Millis) {
        self.end_all(self.live.of(session), Reason::Session);
    }

    /// After a restore nothing of the backup is worth anything (T5).
    pub fn restored(&mut self, _at: Millis) {
        self.end_all(self.live.all(), Reason::Restored);
    }

    fn end_all(&mut self, numbers: Vec<u64>, reason: Reason) {
        for number in numbers.into_iter().filter_map(Number::new) {
            self.end(number, reason).expect("the indexes know only live numbers");
        }
    }

    /// The key's entry with a new number among its live ones.
    fn begin(&mut self, key: &str, number: Number, lease: &Lease) -> Result<&mut Entry, &'static str> {
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
            return Err("a number given out twice");
        }
        let floor = self.floor;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry { version: floor, ..Entry::default() });
        self.idle.remove(&(entry.version, key.clone()));
        self.live.begin(number.get(), lease.span, lease.session);
        self.held.insert(number.get(), key);
        Ok(entry)
    }

    fn done(&mut self, number: Number) -> Result<(), &'static str> {
        let key = self.held.get(&number.get()).ok_or("a number that is not live")?.clone();
        let entry = self.entries.get_mut(&key).ok_or("a key that is not there")?;
        let sole = entry.sole.take_if(|sole| sole.number == number).ok_or("neither a writer nor a filler")?;
        self.held.remove(&number.get());
        self.live.end(number.get(), sole.lease.span, sole.lease.session);
        if sole.kind == Kind::Intent {
            // A commit is granted only when every reader left has run out; this is their end on record.
            for (lease, reader) in std::mem::take(&mut entry.readers) {
                self.held.remove(&lease.get());
                self.live.end(lease.get(), reader.span, reader.session);
            }
        }
        entry.version = number.get();
        entry.filled = sole.kind == Kind::Fill;
        entry.past = Some(Past { number, reason: Reason::Released });
        self.rest(&key);
        Ok(())
    }

    fn end(&mut self, number: Number, reason: Reason) -> Result<(), &'static str> {
        let key = self.held.get(&number.get()).ok_or("a number that is not live")?.clone();
        let entry = self.entries.get_mut(&key).ok_or("a key that is not there")?;
        let lease = match entry.sole.take_if(|sole| sole.number == number) {
            Some(sole) => {
                (entry.version, entry.filled) = entry.after(&sole, reason);
                entry.past = Some(Past { number, reason });
                sole.lease
            }
            None => entry.readers.remove(&number).ok_or("neither a reader, a writer nor a filler")?,
        };
        self.held.remove(&number.get());
        self.live.end(number.get(), lease.span, lease.session);
        self.rest(&key);
        Ok(())
    }

    /// A key that nobody uses may be forgotten; at once, if it has nothing to say that the floor does not.
    pub(super) fn rest(&mut self, key: &Arc<str>) {
        let Some(entry) = self.entries.get(key).filter(|entry| entry.is_idle()) else { return };
        if entry.version <= self.floor && entry.past.is_none() {
            self.entries.remove(key);
        } else {
            self.idle.insert((entry.version, key.clone()));
        }
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.readers.is_empty() && self.sole.is_none()
    }

    fn has_intent(&self) -> bool {
        self.sole.as_ref().is_some_and(|sole| sole.kind == Kind::Intent)
    }
}
