//! What ends next by time, and what ends with its session.

use std::collections::{BTreeMap, BTreeSet};

use super::{Moment, Span};
use crate::ids::SessionId;
use crate::limits::{LEASES_PER_SESSION, TICK_TIMERS};
use crate::refusal::{Limit, Refusal};
use crate::time::Millis;

/// The live entries of one table, found by deadline and by session. An entry is a number that the table knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    by_deadline: BTreeSet<(Millis, u64)>,
    by_session: BTreeMap<SessionId, BTreeSet<u64>>,
}

impl Live {
    pub(super) fn begin(&mut self, entry: u64, span: Span, session: Option<SessionId>) {
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

    /// What the session has here; the caller ends each.
    pub(super) fn of(&self, session: SessionId) -> Vec<u64> {
        self.by_session.get(&session).map(|entries| entries.iter().copied().collect()).unwrap_or_default()
    }

    /// Everything that is live; the caller ends each.
    pub(super) fn all(&self) -> Vec<u64> {
        self.by_deadline.iter().map(|(_, entry)| *entry).collect()
    }

    /// How many more entries the session may have: one end of it must stay a bounded step.
    pub(super) fn room(&self, session: Option<SessionId>) -> Result<usize, Refusal> {
        let most = LEASES_PER_SESSION as usize;
        let has = session.and_then(|s| self.by_session.get(&s)).map_or(0, BTreeSet::len);
        if has < most {
            Ok(most - has)
        } else {
            Err(Refusal::Exhausted { limit: Limit::SessionLeases, max: most as u64, got: has as u64 + 1 })
        }
    }

    /// Entries whose deadline has passed, before any stall is given back; a bounded number of them.
    pub(super) fn passed(&self, at: &Moment<'_>) -> impl Iterator<Item = u64> {
        self.by_deadline.range(..=(at.now, u64::MAX)).take(TICK_TIMERS).map(|(_, entry)| *entry)
    }

    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_deadline.len()
    }

    #[cfg(test)]
    pub(super) fn carried(&self) -> usize {
        self.by_session.values().map(BTreeSet::len).sum()
    }
}
