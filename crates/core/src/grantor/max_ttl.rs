//! The longest ttl of a cluster: an operator raises it at once, and lowers it when nothing in use is longer.

use super::Grantor;
use super::operator::check_comment;
use crate::command::Answer;
use crate::limits;
use crate::record::Record;
use crate::refusal::{Refusal, RefusalSubject};

impl Grantor {
    /// Changes the longest ttl; a comment is required. It is lowered only if no lease can outlast it: the quarantine after a restore
    /// or a rollback lasts one longest ttl, and must cover every lease that may be held then (T5, T9).
    pub(super) fn set_max_ttl(&mut self, max_ttl: u64, comment: &str) -> Result<Answer, Refusal> {
        self.check_max_ttl(max_ttl, comment)?;
        if max_ttl != self.table.max_ttl() {
            self.record(&Record::MaxTtlSet { max_ttl, comment });
        }
        Ok(Answer::Done)
    }

    /// Checks a new longest ttl and its comment.
    pub(super) fn check_max_ttl(&self, max_ttl: u64, comment: &str) -> Result<(), Refusal> {
        if comment.trim().is_empty() {
            return Err(Refusal::Invalid { field: "comment", reason: "required to change max_ttl; explain why" });
        }
        check_comment(comment)?;
        if !(limits::TTL_MIN..=limits::TTL_MAX_EVER).contains(&max_ttl) {
            return Err(Refusal::Invalid { field: "max_ttl", reason: "from 100ms to 7d" });
        }
        if self.is_longer_in_use(max_ttl) {
            return Err(Refusal::Conflict(RefusalSubject::MaxTtl));
        }
        Ok(())
    }

    /// Whether a lease, a session, a wait, a message, a cached key or a charter has a longer ttl. It reads all of them until it finds
    /// one, which is acceptable for a rare command.
    fn is_longer_in_use(&self, max_ttl: u64) -> bool {
        let table = &self.table;
        if max_ttl >= table.max_ttl() {
            return false;
        }
        let longer = |ttl: u32| u64::from(ttl) > max_ttl;
        // A payload is extended by at most the longest ttl, so only its current deadline counts.
        let last = [table.queues.last_deadline(), table.cache.last_deadline()].into_iter().flatten().max();
        table.leases.iter_live().any(|(_, _, lease)| longer(lease.renewal.ttl))
            || table.sessions.iter_live().any(|(_, _, session)| longer(session.renewal.ttl))
            || table.waiters.iter_live().any(|(_, _, waiter)| longer(waiter.ttl))
            || last.is_some_and(|last| self.now().until(last) > max_ttl)
            || table.charters.iter().any(|(_, charter)| charter.validate(max_ttl).is_err())
    }

    /// Length of a quarantine: the longest ttl that a lease of a lost state may have (T5, T9).
    pub(super) fn quarantine_ms(&self) -> u64 {
        self.table.max_ttl().max(self.stated_max_ttl)
    }
}
