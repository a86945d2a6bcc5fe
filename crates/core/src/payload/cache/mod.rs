//! Cache invalidation: read leases and write intents on cached keys.
//!
//! No write becomes visible while a read lease is live, and no read lease is granted while a write intent exists. A version
//! is the token number of the write or fill that created it, so it rises over every failover and restore and never names two
//! different copies. An evicted key leaves its version behind as a floor.

mod apply;
mod command;
mod record;
mod snapshot;
#[cfg(test)]
mod tests;

pub use command::{CacheAnswer, CacheCommand, CachedKeyView};
pub use record::{CacheRecord, OwnerKind};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::expiry_index::ExpiryIndex;
use super::owner_usage::OwnerUsage;
use super::{Decision, PastGrant, PayloadNotice, PayloadOwner, RefusedDecision, Span, TurnContext, not_current};
use crate::access::IdentityUsage;
use crate::ids::SessionId;
use crate::lease::EndReason;
use crate::limits::{CACHE_KEYS, CACHE_READERS};
use crate::mutants::{self, Mutant};
use crate::refusal::{Limit, NotCurrent, Refusal, RefusalSubject};
use crate::time::GrantorTime;
use crate::token::Number;

/// All cached keys of a cluster.
#[derive(Clone, Debug)]
pub struct CacheTable {
    entries: BTreeMap<Arc<str>, KeyEntry>,
    /// The highest version of an evicted key: no key that is added again starts lower.
    floor: u64,
    /// Keys without readers, writer or filler, by version: the first to be evicted.
    idle: BTreeSet<(u64, Arc<str>)>,
    /// The key of every live number.
    held: BTreeMap<u64, Arc<str>>,
    live: ExpiryIndex,
    /// The grants that each identity has.
    granted: OwnerUsage,
    capacity: usize,
}

#[derive(Clone, Debug, Default)]
struct KeyEntry {
    version: u64,
    filled: bool,
    readers: BTreeMap<Number, KeyGrant>,
    owner: Option<KeyOwner>,
    past: Option<PastGrant>,
}

#[derive(Clone, Debug)]
struct KeyGrant {
    span: Span,
    session: Option<SessionId>,
    /// The identity, by its number among the owners.
    owner: u32,
    holder: Box<str>,
}

/// The one writer or filler of a key. A write intent replaces a filler, whose copy would be outdated.
#[derive(Clone, Debug)]
struct KeyOwner {
    kind: OwnerKind,
    number: Number,
    lease: KeyGrant,
}

impl Default for CacheTable {
    fn default() -> Self {
        Self::with_capacity(CACHE_KEYS)
    }
}

/// The state of a key after its expired owner is removed, with the records that remove it.
struct CurrentKey<'a> {
    version: u64,
    filled: bool,
    owner: Option<&'a KeyOwner>,
    readers: Option<&'a BTreeMap<Number, KeyGrant>>,
    records: Vec<CacheRecord>,
}

type CacheDecision = Result<Decision<CacheRecord, CacheAnswer>, RefusedDecision<CacheRecord>>;

impl CacheTable {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            floor: 0,
            idle: BTreeSet::new(),
            held: BTreeMap::new(),
            live: ExpiryIndex::default(),
            granted: OwnerUsage::default(),
            capacity,
        }
    }

    /// Decides a command without changing the table.
    pub fn decide(&self, at: &TurnContext<'_>, command: &CacheCommand<'_>) -> Decision<CacheRecord, CacheAnswer> {
        let decided = match *command {
            CacheCommand::Read { key, session, reader, ttl_ms } => self.read(at, key, session, reader, ttl_ms),
            CacheCommand::RenewRead { key, lease } => self.renew(at, key, lease),
            CacheCommand::Invalidated { key, lease } => self.invalidated(at, key, lease),
            CacheCommand::Intend { key, session, writer, ttl_ms } => self.intend(at, key, session, writer, ttl_ms),
            CacheCommand::Commit { key, intent } => self.commit(at, key, intent),
            CacheCommand::Abort { key, number } => self.owner(at, key, None, number).map(|_| {
                Decision::accept(vec![CacheRecord::Ended { number, reason: EndReason::Released }], CacheAnswer::Aborted)
            }),
            CacheCommand::GetOrFill { key, session, reader, ttl_ms, missing } => {
                self.get_or_fill(at, key, session, reader, ttl_ms, missing)
            }
            CacheCommand::Filled { key, token } => self.owner(at, key, Some(OwnerKind::Fill), token).map(|_| {
                Decision::accept(
                    vec![CacheRecord::Done { number: token }],
                    CacheAnswer::Filled { version: token.get() },
                )
            }),
        };
        decided.unwrap_or_else(Decision::from)
    }

    fn read(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        session: Option<SessionId>,
        reader: &str,
        ttl_ms: u64,
    ) -> CacheDecision {
        let span = at.span("ttl", ttl_ms)?;
        let key_state = self.current_key(at, key);
        check_no_intent(&key_state)?;
        self.grant_read(at, key, session, reader, span, key_state)
    }

    fn grant_read(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        session: Option<SessionId>,
        reader: &str,
        span: Span,
        key_state: CurrentKey<'_>,
    ) -> CacheDecision {
        let readers = key_state.readers.map_or(0, BTreeMap::len);
        if readers >= CACHE_READERS {
            let (max, got) = (CACHE_READERS as u64, readers as u64 + 1);
            return Err(Refusal::Exhausted { limit: Limit::CacheReaders, max, got }.into());
        }
        let mut records = key_state.records;
        let (lease, floor) = self.prepare(at, key, session, &mut records)?;
        let version = if key_state.readers.is_some() { key_state.version } else { floor };
        records.push(CacheRecord::Read {
            key: key.into(),
            lease,
            session,
            owner: at.owner.map(Into::into),
            reader: reader.into(),
            ttl_ms: span.ttl,
        });
        Ok(Decision::accept(records, CacheAnswer::Reading { version, lease, remaining_ms: at.remaining(span) }))
    }

    /// Checks the limits of the session and the table, evicting an idle key if needed. Returns the number of the grant and
    /// the version at which a new key starts.
    fn prepare(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        session: Option<SessionId>,
        records: &mut Vec<CacheRecord>,
    ) -> Result<(Number, u64), Refusal> {
        self.live.remaining_capacity(session)?;
        let mut floor = self.floor;
        if self.entries.len() >= self.capacity && !self.entries.contains_key(key) {
            let Some((version, idle)) = self.idle.first() else {
                let (max, got) = (self.capacity as u64, self.entries.len() as u64 + 1);
                return Err(Refusal::Exhausted { limit: Limit::CacheKeys, max, got });
            };
            floor = floor.max(*version);
            records.push(CacheRecord::Forgotten { key: idle.clone() });
        }
        Ok((at.number(0)?, floor))
    }

    fn renew(&self, at: &TurnContext<'_>, key: &str, lease: Number) -> CacheDecision {
        let span = self.reading(at, key, lease)?;
        let mut key_state = self.current_key(at, key);
        // A renewed read lease would delay the writer just like a new one (R1).
        check_no_intent(&key_state)?;
        key_state.records.push(CacheRecord::Renewed { lease });
        let remaining_ms = at.remaining(Span { since: at.now, ..span });
        Ok(Decision::accept(
            key_state.records,
            CacheAnswer::Reading { version: key_state.version, lease, remaining_ms },
        ))
    }

    fn invalidated(&self, at: &TurnContext<'_>, key: &str, lease: Number) -> CacheDecision {
        self.reading(at, key, lease)?;
        let record = CacheRecord::Ended { number: lease, reason: EndReason::Released };
        let mut decision = Decision::accept(vec![record], CacheAnswer::Dropped);
        let key_state = self.current_key(at, key);
        if let Some(KeyOwner { kind: OwnerKind::Intent, number, lease: KeyGrant { session: Some(session), .. } }) =
            key_state.owner
            && self.readers(at, key).all(|(other, _)| other == lease)
        {
            decision.notices.push(PayloadNotice::Clear { session: *session, key: key.into(), intent: *number });
        }
        Ok(decision)
    }

    fn intend(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        session: Option<SessionId>,
        writer: &str,
        ttl_ms: u64,
    ) -> CacheDecision {
        at.span("ttl", ttl_ms)?;
        let key_state = self.current_key(at, key);
        if key_state.owner.is_some_and(|owner| owner.kind == OwnerKind::Intent) {
            return Err(Refusal::busy(1).into());
        }
        let mut records = key_state.records;
        let (intent, _) = self.prepare(at, key, session, &mut records)?;
        records.push(CacheRecord::Began {
            key: key.into(),
            kind: OwnerKind::Intent,
            number: intent,
            session,
            owner: at.owner.map(Into::into),
            holder: writer.into(),
            ttl_ms,
        });
        let (mut waiting_for, mut until, mut notices) = (0, at.now, Vec::new());
        let shared: Arc<str> = key.into();
        for (lease, reader) in self.readers(at, key) {
            waiting_for += 1;
            until = until.max(at.end_of(reader.span));
            if let Some(session) = reader.session {
                notices.push(PayloadNotice::Invalidate { session, key: shared.clone(), lease });
            }
        }
        Ok(Decision { records, answer: Ok(CacheAnswer::Intended { intent, waiting_for, until }), notices })
    }

    fn commit(&self, at: &TurnContext<'_>, key: &str, intent: Number) -> CacheDecision {
        self.owner(at, key, Some(OwnerKind::Intent), intent)?;
        let left = if mutants::on(Mutant::WriteDoesNotWait) { 0 } else { self.readers(at, key).count() };
        if left > 0 {
            return Err(Refusal::busy(u32::try_from(left).unwrap_or(u32::MAX)).into());
        }
        Ok(Decision::accept(
            vec![CacheRecord::Done { number: intent }],
            CacheAnswer::Committed { version: intent.get() },
        ))
    }

    fn get_or_fill(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        session: Option<SessionId>,
        reader: &str,
        ttl_ms: u64,
        missing: Option<u64>,
    ) -> CacheDecision {
        let span = at.span("ttl", ttl_ms)?;
        let key_state = self.current_key(at, key);
        check_no_intent(&key_state)?;
        if key_state.filled && missing != Some(key_state.version) {
            return self.grant_read(at, key, session, reader, span, key_state);
        }
        if let Some(filler) = key_state.owner {
            let remaining_ms = at.remaining(filler.lease.span);
            return Ok(Decision::accept(key_state.records, CacheAnswer::Wait { remaining_ms }));
        }
        let mut records = key_state.records;
        let (token, _) = self.prepare(at, key, session, &mut records)?;
        records.push(CacheRecord::Began {
            key: key.into(),
            kind: OwnerKind::Fill,
            number: token,
            session,
            owner: at.owner.map(Into::into),
            holder: reader.into(),
            ttl_ms,
        });
        Ok(Decision::accept(records, CacheAnswer::Fill { token, remaining_ms: at.remaining(span) }))
    }

    fn current_key(&self, at: &TurnContext<'_>, key: &str) -> CurrentKey<'_> {
        let Some(entry) = self.entries.get(key) else {
            return CurrentKey { version: self.floor, filled: false, owner: None, readers: None, records: Vec::new() };
        };
        let readers = Some(&entry.readers);
        match &entry.owner {
            Some(owner) if at.is_over(owner.lease.span) => {
                let (version, filled) = entry.after(owner, EndReason::Ttl);
                let records = vec![CacheRecord::Ended { number: owner.number, reason: EndReason::Ttl }];
                CurrentKey { version, filled, owner: None, readers, records }
            }
            owner => CurrentKey {
                version: entry.version,
                filled: entry.filled,
                owner: owner.as_ref(),
                readers,
                records: Vec::new(),
            },
        }
    }

    /// The readers whose copies may still be in use.
    fn readers(&self, at: &TurnContext<'_>, key: &str) -> impl Iterator<Item = (Number, &KeyGrant)> {
        let readers = self.entries.get(key).into_iter().flat_map(|entry| &entry.readers);
        readers.filter(|(_, reader)| !at.is_over(reader.span)).map(|(lease, reader)| (*lease, reader))
    }

    fn reading(&self, at: &TurnContext<'_>, key: &str, lease: Number) -> Result<Span, RefusedDecision<CacheRecord>> {
        let reader = self.entries.get(key).and_then(|entry| entry.readers.get(&lease));
        let span = reader.ok_or(Refusal::NotCurrent(NotCurrent::Unknown))?.span;
        if at.is_over(span) {
            let records = vec![CacheRecord::Ended { number: lease, reason: EndReason::Ttl }];
            return Err(RefusedDecision { records, refusal: Refusal::Lost(EndReason::Ttl) });
        }
        Ok(span)
    }

    /// The writer or filler, if it has this number. An expiry that is not recorded yet is recorded with the refusal.
    fn owner(
        &self,
        at: &TurnContext<'_>,
        key: &str,
        kind: Option<OwnerKind>,
        presented: Number,
    ) -> Result<&KeyOwner, RefusedDecision<CacheRecord>> {
        let unknown = Refusal::NotCurrent(NotCurrent::Unknown);
        let entry = self.entries.get(key).ok_or(unknown.clone())?;
        match &entry.owner {
            Some(owner) if owner.number == presented && kind.is_some_and(|kind| kind != owner.kind) => {
                Err(unknown.into())
            }
            Some(owner) if owner.number == presented && at.is_over(owner.lease.span) => {
                let records = vec![CacheRecord::Ended { number: presented, reason: EndReason::Ttl }];
                Err(RefusedDecision { records, refusal: Refusal::Lost(EndReason::Ttl) })
            }
            Some(owner) if owner.number == presented => Ok(owner),
            Some(owner) => Err(not_current(presented, owner.number).into()),
            None => Err(PastGrant::refusal(entry.past, presented).into()),
        }
    }

    /// Expiry records of read leases, intents and fills in deadline order, at most `limit`.
    pub fn due(&self, at: &TurnContext<'_>, limit: usize) -> Vec<CacheRecord> {
        let over = self.live.past_deadline(at).filter_map(|number| {
            let number = Number::new(number)?;
            let span = self.lease(number)?.span;
            at.is_over(span).then_some(CacheRecord::Ended { number, reason: EndReason::Ttl })
        });
        over.take(limit).collect()
    }

    fn lease(&self, number: Number) -> Option<&KeyGrant> {
        let entry = self.entries.get(self.held.get(&number.get())?)?;
        match &entry.owner {
            Some(owner) if owner.number == number => Some(&owner.lease),
            _ => entry.readers.get(&number),
        }
    }

    /// The earliest deadline. Stalls can move the end later, never earlier.
    pub fn next_deadline(&self) -> Option<GrantorTime> {
        self.live.next_deadline()
    }

    /// The latest deadline.
    pub(crate) fn last_deadline(&self) -> Option<GrantorTime> {
        self.live.last_deadline()
    }

    /// Number of readers that a writer still waits for; it writes only when there is none.
    pub fn waiting_for(&self, at: &TurnContext<'_>, key: &str, intent: Number) -> Result<usize, Refusal> {
        match self.owner(at, key, Some(OwnerKind::Intent), intent) {
            Ok(_) => Ok(self.readers(at, key).count()),
            Err(refused) => Err(refused.refusal),
        }
    }

    /// The keys on which a session has a read lease.
    pub fn read_by(&self, session: SessionId) -> Vec<Arc<str>> {
        let keys = self.live.of(session).into_iter().filter_map(|number| self.held.get(&number));
        keys.cloned().collect()
    }

    /// The notice for the writer of a key once no reader is left.
    pub fn cleared(&self, at: &TurnContext<'_>, key: &str) -> Option<PayloadNotice> {
        match &self.entries.get(key)?.owner {
            Some(KeyOwner { kind: OwnerKind::Intent, number, lease: KeyGrant { session: Some(session), .. } })
                if self.readers(at, key).next().is_none() =>
            {
                Some(PayloadNotice::Clear { session: *session, key: key.into(), intent: *number })
            }
            _ => None,
        }
    }

    /// The state of a key.
    pub fn view(&self, key: &str) -> CachedKeyView {
        match self.entries.get(key) {
            None => CachedKeyView { version: self.floor, filled: false, readers: 0, owner: None },
            Some(entry) => CachedKeyView {
                version: entry.version,
                filled: entry.filled,
                readers: entry.readers.len(),
                owner: entry.owner.as_ref().map(|owner| (owner.kind, owner.number)),
            },
        }
    }

    /// The owner of a read lease, an intent or a fill of this key.
    pub(crate) fn owner_of(&self, key: &str, number: Number) -> Option<PayloadOwner> {
        self.held.get(&number.get()).filter(|held| ***held == *key)?;
        let KeyGrant { owner, session, .. } = self.lease(number)?;
        Some(PayloadOwner { owner: *owner, session: *session })
    }

    /// The read leases, intents and fills that an identity has.
    pub(crate) fn usage_of(&self, owner: u32) -> IdentityUsage {
        self.granted.get(owner)
    }

    /// Key and holder of a read lease, an intent or a fill, for the audit log.
    pub fn holder_of(&self, number: Number) -> Option<(&str, &str)> {
        let key = self.held.get(&number.get())?;
        Some((key, &self.lease(number)?.holder))
    }
}

impl KeyEntry {
    /// Version and fill state after the owner ends. A write intent that was not aborted may have been written, so copies
    /// from before it are invalid.
    fn after(&self, owner: &KeyOwner, reason: EndReason) -> (u64, bool) {
        match owner.kind {
            OwnerKind::Intent if reason != EndReason::Released => (owner.number.get(), false),
            _ => (self.version, self.filled),
        }
    }
}

fn check_no_intent(key_state: &CurrentKey<'_>) -> Result<(), Refusal> {
    match key_state.owner {
        Some(owner) if owner.kind == OwnerKind::Intent && !mutants::on(Mutant::ReadDuringIntent) => {
            Err(Refusal::Conflict(RefusalSubject::Intent))
        }
        _ => Ok(()),
    }
}
