//! Index of live entries by deadline and by session, shared by all payload tables.

use std::collections::{BTreeMap, BTreeSet};

use super::{Span, TurnContext};
use crate::ids::SessionId;
use crate::limits::{LEASES_PER_SESSION, TICK_TIMERS};
use crate::refusal::{Limit, Refusal};
use crate::time::GrantorTime;

/// The live entries of one table, by deadline and by session. An entry is a number that the table defines.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpiryIndex {
    by_deadline: BTreeSet<(GrantorTime, u64)>,
    by_session: BTreeMap<SessionId, BTreeSet<u64>>,
}

impl ExpiryIndex {
    pub(super) fn insert(&mut self, entry: u64, span: Span, session: Option<SessionId>) {
        self.by_deadline.insert((span.deadline(), entry));
        if let Some(session) = session {
            self.by_session.entry(session).or_default().insert(entry);
        }
    }

    pub(super) fn renew(&mut self, entry: u64, from: Span, to: Span) {
        self.by_deadline.remove(&(from.deadline(), entry));
        self.by_deadline.insert((to.deadline(), entry));
    }

    pub(super) fn end(&mut self, entry: u64, span: Span, session: Option<SessionId>) {
        self.by_deadline.remove(&(span.deadline(), entry));
        if let Some(session) = session
            && let Some(entries) = self.by_session.get_mut(&session)
        {
            entries.remove(&entry);
            if entries.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// Entries of a session; the caller ends each of them.
    pub(super) fn of(&self, session: SessionId) -> Vec<u64> {
        self.by_session.get(&session).map(|entries| entries.iter().copied().collect()).unwrap_or_default()
    }

    /// All live entries; the caller ends each of them.
    pub(super) fn all(&self) -> Vec<u64> {
        self.by_deadline.iter().map(|(_, entry)| *entry).collect()
    }

    /// How many more entries the session may have. The limit bounds the step that ends a session.
    pub(super) fn remaining_capacity(&self, session: Option<SessionId>) -> Result<usize, Refusal> {
        let limit = LEASES_PER_SESSION as usize;
        let has = session.and_then(|s| self.by_session.get(&s)).map_or(0, BTreeSet::len);
        if has < limit {
            Ok(limit - has)
        } else {
            Err(Refusal::Exhausted { limit: Limit::SessionLeases, max: limit as u64, got: has as u64 + 1 })
        }
    }

    /// Entries past their deadline, without credit for stalls; at most [`TICK_TIMERS`].
    pub(super) fn past_deadline(&self, at: &TurnContext<'_>) -> impl Iterator<Item = u64> {
        self.by_deadline.range(..=(at.now, u64::MAX)).take(TICK_TIMERS).map(|(_, entry)| *entry)
    }

    pub(super) fn next_deadline(&self) -> Option<GrantorTime> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn last_deadline(&self) -> Option<GrantorTime> {
        self.by_deadline.last().map(|(deadline, _)| *deadline)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    #[cfg(test)]
    pub(super) fn session_entries(&self) -> usize {
        self.by_session.values().map(BTreeSet::len).sum()
    }
}
