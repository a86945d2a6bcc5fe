//! Read leases on cached keys: while one lives no write becomes visible, and while a write is meant none is granted.
//!
//! A version is the number of the write or fill that made it, so it rises over every failover and restore, and it is
//! never given to two different copies. A key that is forgotten for want of room leaves its version behind as a floor.

mod apply;
mod command;
mod fact;
mod snapshot;
#[cfg(test)]
mod tests;

pub use command::{Answer, Command, View};
pub use fact::{Fact, Kind};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::live::Live;
use super::{Decision, Moment, Notice, Past, Refused, Span, not_current};
use crate::ids::SessionId;
use crate::lease::Reason;
use crate::limits::{CACHE_KEYS, CACHE_READERS};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, NotCurrent, Refusal, What};
use crate::time::Millis;
use crate::token::Number;

/// All cached keys of a cluster.
#[derive(Clone, Debug)]
pub struct Cache {
    entries: BTreeMap<Arc<str>, Entry>,
    /// The highest version of a forgotten key: no key that comes back starts lower.
    floor: u64,
    /// Keys that nobody reads, writes or fills, by version: the first to be forgotten.
    idle: BTreeSet<(u64, Arc<str>)>,
    /// The key of every number that is live.
    held: BTreeMap<u64, Arc<str>>,
    live: Live,
    room: usize,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    version: u64,
    filled: bool,
    readers: BTreeMap<Number, Lease>,
    sole: Option<Sole>,
    past: Option<Past>,
}

#[derive(Clone, Debug)]
struct Lease {
    span: Span,
    session: Option<SessionId>,
    holder: Box<str>,
}

/// The one writer or the one filler. A write that is meant takes the key from a filler, whose copy would be old.
#[derive(Clone, Debug)]
struct Sole {
    kind: Kind,
    number: Number,
    lease: Lease,
}

impl Default for Cache {
    fn default() -> Self {
        Self::with_room(CACHE_KEYS)
    }
}

/// A key as it is once that which time has ended is on record.
struct Seen<'a> {
    version: u64,
    filled: bool,
    sole: Option<&'a Sole>,
    readers: Option<&'a BTreeMap<Number, Lease>>,
    facts: Vec<Fact>,
}

type Decided = Result<Decision<Fact, Answer>, Refused<Fact>>;

impl Cache {
    fn with_room(room: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            floor: 0,
            idle: BTreeSet::new(),
            held: BTreeMap::new(),
            live: Live::default(),
            room,
        }
    }

    /// What is to be put on record and told for a command; nothing changes by it.
    pub fn decide(&self, at: &Moment<'_>, command: &Command<'_>) -> Decision<Fact, Answer> {
        let decided = match *command {
            Command::Read { key, session, reader, ttl_ms } => self.read(at, key, session, reader, ttl_ms),
            Command::RenewRead { key, lease } => self.renew(at, key, lease),
            Command::Invalidated { key, lease } => self.invalidated(at, key, lease),
            Command::Intend { key, session, writer, ttl_ms } => self.intend(at, key, session, writer, ttl_ms),
            Command::Commit { key, intent } => self.commit(at, key, intent),
            Command::Abort { key, number } => self
                .sole(at, key, None, number)
                .map(|_| Decision::yes(vec![Fact::Ended { number, reason: Reason::Released }], Answer::Aborted)),
            Command::GetOrFill { key, session, reader, ttl_ms, missing } => {
                self.get_or_fill(at, key, session, reader, ttl_ms, missing)
            }
            Command::Filled { key, token } => self
                .sole(at, key, Some(Kind::Fill), token)
                .map(|_| Decision::yes(vec![Fact::Done { number: token }], Answer::Filled { version: token.get() })),
        };
        decided.unwrap_or_else(Decision::from)
    }

    fn read(&self, at: &Moment<'_>, key: &str, session: Option<SessionId>, reader: &str, ttl_ms: u64) -> Decided {
        let span = at.span("ttl", ttl_ms)?;
        let seen = self.see(at, key);
        no_intent(&seen)?;
        self.grant_read(at, key, session, reader, span, seen)
    }

    fn grant_read(
        &self,
        at: &Moment<'_>,
        key: &str,
        session: Option<SessionId>,
        reader: &str,
        span: Span,
        seen: Seen<'_>,
    ) -> Decided {
        let readers = seen.readers.map_or(0, BTreeMap::len);
        if readers >= CACHE_READERS {
            let (max, got) = (CACHE_READERS as u64, readers as u64 + 1);
            return Err(Refusal::Exhausted { limit: Limit::CacheReaders, max, got }.into());
        }
        let mut facts = seen.facts;
        let (lease, floor) = self.prepare(at, key, session, &mut facts)?;
        let version = if seen.readers.is_some() { seen.version } else { floor };
        facts.push(Fact::Read { key: key.into(), lease, session, reader: reader.into(), ttl_ms: span.ttl });
        Ok(Decision::yes(facts, Answer::Reading { version, lease, remaining_ms: at.remaining(span) }))
    }

    /// A number for a grant on the key, after making room for the key and the session; and the version that a key new
    /// here starts from.
    fn prepare(
        &self,
        at: &Moment<'_>,
        key: &str,
        session: Option<SessionId>,
        facts: &mut Vec<Fact>,
    ) -> Result<(Number, u64), Refusal> {
        self.live.room(session)?;
        let mut floor = self.floor;
        if self.entries.len() >= self.room && !self.entries.contains_key(key) {
            let Some((version, idle)) = self.idle.first() else {
                let (max, got) = (self.room as u64, self.entries.len() as u64 + 1);
                return Err(Refusal::Exhausted { limit: Limit::CacheKeys, max, got });
            };
            floor = floor.max(*version);
            facts.push(Fact::Forgotten { key: idle.clone() });
        }
        Ok((at.number(0)?, floor))
    }

    fn renew(&self, at: &Moment<'_>, key: &str, lease: Number) -> Decided {
        let span = self.reading(at, key, lease)?;
        let mut seen = self.see(at, key);
        // A renewed read lease would keep the writer waiting just like a new one (R1).
        no_intent(&seen)?;
        seen.facts.push(Fact::Renewed { lease });
        let remaining_ms = at.remaining(Span { since: at.now, ..span });
        Ok(Decision::yes(seen.facts, Answer::Reading { version: seen.version, lease, remaining_ms }))
    }

    fn invalidated(&self, at: &Moment<'_>, key: &str, lease: Number) -> Decided {
        self.reading(at, key, lease)?;
        let fact = Fact::Ended { number: lease, reason: Reason::Released };
        let mut decision = Decision::yes(vec![fact], Answer::Dropped);
        let seen = self.see(at, key);
        if let Some(Sole { kind: Kind::Intent, number, lease: Lease { session: Some(session), .. } }) = seen.sole
            && self.readers(at, key).all(|(other, _)| other == lease)
        {
            decision.notices.push(Notice::Clear { session: *session, key: key.into(), intent: *number });
        }
        Ok(decision)
    }

    fn intend(&self, at: &Moment<'_>, key: &str, session: Option<SessionId>, writer: &str, ttl_ms: u64) -> Decided {
        at.span("ttl", ttl_ms)?;
        let seen = self.see(at, key);
        if seen.sole.is_some_and(|sole| sole.kind == Kind::Intent) {
            return Err(Refusal::Busy { position: 1 }.into());
        }
        let mut facts = seen.facts;
        let (intent, _) = self.prepare(at, key, session, &mut facts)?;
        facts.push(Fact::Began {
            key: key.into(),
            kind: Kind::Intent,
            number: intent,
            session,
            holder: writer.into(),
            ttl_ms,
        });
        let (mut waiting_for, mut until, mut notices) = (0, at.now, Vec::new());
        let shared: Arc<str> = key.into();
        for (lease, reader) in self.readers(at, key) {
            waiting_for += 1;
            until = until.max(at.end_of(reader.span));
            if let Some(session) = reader.session {
                notices.push(Notice::Invalidate { session, key: shared.clone(), lease });
            }
        }
        Ok(Decision { facts, answer: Ok(Answer::Intended { intent, waiting_for, until }), notices })
    }

    fn commit(&self, at: &Moment<'_>, key: &str, intent: Number) -> Decided {
        self.sole(at, key, Some(Kind::Intent), intent)?;
        let left = if mutants::on(Mutant::WriteDoesNotWait) { 0 } else { self.readers(at, key).count() };
        if left > 0 {
            return Err(Refusal::Busy { position: u32::try_from(left).unwrap_or(u32::MAX) }.into());
        }
        Ok(Decision::yes(vec![Fact::Done { number: intent }], Answer::Committed { version: intent.get() }))
    }

    fn get_or_fill(
        &self,
        at: &Moment<'_>,
        key: &str,
        session: Option<SessionId>,
        reader: &str,
        ttl_ms: u64,
        missing: Option<u64>,
    ) -> Decided {
        let span = at.span("ttl", ttl_ms)?;
        let seen = self.see(at, key);
        no_intent(&seen)?;
        if seen.filled && missing != Some(seen.version) {
            return self.grant_read(at, key, session, reader, span, seen);
        }
        if let Some(filler) = seen.sole {
            let remaining_ms = at.remaining(filler.lease.span);
            return Ok(Decision::yes(seen.facts, Answer::Wait { remaining_ms }));
        }
        let mut facts = seen.facts;
        let (token, _) = self.prepare(at, key, session, &mut facts)?;
        facts.push(Fact::Began {
            key: key.into(),
            kind: Kind::Fill,
            number: token,
            session,
            holder: reader.into(),
            ttl_ms,
        });
        Ok(Decision::yes(facts, Answer::Fill { token, remaining_ms: at.remaining(span) }))
    }

    fn see(&self, at: &Moment<'_>, key: &str) -> Seen<'_> {
        let Some(entry) = self.entries.get(key) else {
            return Seen { version: self.floor, filled: false, sole: None, readers: None, facts: Vec::new() };
        };
        let readers = Some(&entry.readers);
        match &entry.sole {
            Some(sole) if at.is_over(sole.lease.span) => {
                let (version, filled) = entry.after(sole, Reason::Ttl);
                let facts = vec![Fact::Ended { number: sole.number, reason: Reason::Ttl }];
                Seen { version, filled, sole: None, readers, facts }
            }
            sole => {
                Seen { version: entry.version, filled: entry.filled, sole: sole.as_ref(), readers, facts: Vec::new() }
            }
        }
    }

    /// The readers whose copies may still be in use.
    fn readers(&self, at: &Moment<'_>, key: &str) -> impl Iterator<Item = (Number, &Lease)> {
        let readers = self.entries.get(key).into_iter().flat_map(|entry| &entry.readers);
        readers.filter(|(_, reader)| !at.is_over(reader.span)).map(|(lease, reader)| (*lease, reader))
    }

    fn reading(&self, at: &Moment<'_>, key: &str, lease: Number) -> Result<Span, Refused<Fact>> {
        let reader = self.entries.get(key).and_then(|entry| entry.readers.get(&lease));
        let span = reader.ok_or(Refusal::NotCurrent(NotCurrent::Unknown))?.span;
        if at.is_over(span) {
            let facts = vec![Fact::Ended { number: lease, reason: Reason::Ttl }];
            return Err(Refused { facts, why: Refusal::Lost(Reason::Ttl) });
        }
        Ok(span)
    }

    /// The one writer or filler, if the number is its; an end that nobody recorded yet goes on record with the refusal.
    fn sole(&self, at: &Moment<'_>, key: &str, kind: Option<Kind>, shown: Number) -> Result<&Sole, Refused<Fact>> {
        let unknown = Refusal::NotCurrent(NotCurrent::Unknown);
        let entry = self.entries.get(key).ok_or(unknown.clone())?;
        match &entry.sole {
            Some(sole) if sole.number == shown && kind.is_some_and(|kind| kind != sole.kind) => Err(unknown.into()),
            Some(sole) if sole.number == shown && at.is_over(sole.lease.span) => {
                let facts = vec![Fact::Ended { number: shown, reason: Reason::Ttl }];
                Err(Refused { facts, why: Refusal::Lost(Reason::Ttl) })
            }
            Some(sole) if sole.number == shown => Ok(sole),
            Some(sole) => Err(not_current(shown, sole.number).into()),
            None => Err(Past::refusal(entry.past, shown).into()),
        }
    }

    /// Read leases, intents and fills that time has ended, in deadline order, at most so many.
    pub fn due(&self, at: &Moment<'_>, most: usize) -> Vec<Fact> {
        let over = self.live.passed(at).filter_map(|number| {
            let number = Number::new(number)?;
            let span = self.lease(number)?.span;
            at.is_over(span).then_some(Fact::Ended { number, reason: Reason::Ttl })
        });
        over.take(most).collect()
    }

    fn lease(&self, number: Number) -> Option<&Lease> {
        let entry = self.entries.get(self.held.get(&number.get())?)?;
        match &entry.sole {
            Some(sole) if sole.number == number => Some(&sole.lease),
            _ => entry.readers.get(&number),
        }
    }

    /// The earliest deadline; stalls may move the end further, never closer.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.live.next_deadline()
    }

    /// How many readers the holder of an intent still waits for; it writes only when there is none.
    pub fn waiting_for(&self, at: &Moment<'_>, key: &str, intent: Number) -> Result<usize, Refusal> {
        match self.sole(at, key, Some(Kind::Intent), intent) {
            Ok(_) => Ok(self.readers(at, key).count()),
            Err(refused) => Err(refused.why),
        }
    }

    /// The keys on which a session has a read lease.
    pub fn read_by(&self, session: SessionId) -> Vec<Arc<str>> {
        let keys = self.live.of(session).into_iter().filter_map(|number| self.held.get(&number));
        keys.cloned().collect()
    }

    /// What the writer of a key is told when a reader is gone, however it went: that none is left.
    pub fn cleared(&self, at: &Moment<'_>, key: &str) -> Option<Notice> {
        match &self.entries.get(key)?.sole {
            Some(Sole { kind: Kind::Intent, number, lease: Lease { session: Some(session), .. } })
                if self.readers(at, key).next().is_none() =>
            {
                Some(Notice::Clear { session: *session, key: key.into(), intent: *number })
            }
            _ => None,
        }
    }

    /// What is known about a key.
    pub fn view(&self, key: &str) -> View {
        match self.entries.get(key) {
            None => View { version: self.floor, filled: false, readers: 0, sole: None },
            Some(entry) => View {
                version: entry.version,
                filled: entry.filled,
                readers: entry.readers.len(),
                sole: entry.sole.as_ref().map(|sole| (sole.kind, sole.number)),
            },
        }
    }

    /// Who holds a read lease, an intent or a fill, and on which key; for whoever describes a fact.
    pub fn holder_of(&self, number: Number) -> Option<(&str, &str)> {
        let key = self.held.get(&number.get())?;
        Some((key, &self.lease(number)?.holder))
    }
}

impl Entry {
    /// Version and whether it is filled, once the writer or filler is gone. An intent that nobody took back may have
    /// been written: copies from before it must not be believed.
    fn after(&self, sole: &Sole, reason: Reason) -> (u64, bool) {
        match sole.kind {
            Kind::Intent if reason != Reason::Released => (sole.number.get(), false),
            _ => (self.version, self.filled),
        }
    }
}

fn no_intent(seen: &Seen<'_>) -> Result<(), Refusal> {
    match seen.sole {
        Some(sole) if sole.kind == Kind::Intent && !mutants::on(Mutant::ReadDuringIntent) => {
            Err(Refusal::Conflict(What::Intent))
        }
        _ => Ok(()),
    }
}
