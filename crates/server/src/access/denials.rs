//! Denials and reached limits: counters, a bounded number of log lines, and the last denials for administrators. They are never
//! journaled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::access::Action;
use leasehold_core::time::WallClock;
use leasehold_wire::v1;

use crate::clock;
use crate::identity::Identity;
use crate::log_windows::LogWindows;
use crate::metrics::{DenialReason, Metrics};

/// Denials that are kept for administrators.
const MAX_DENIALS: usize = 1_000;

/// The log of denials.
#[derive(Debug, Default)]
pub struct DenialLog {
    windows: LogWindows,
    last: Mutex<LastDenials>,
}

#[derive(Debug, Default)]
struct LastDenials {
    /// Oldest first.
    denials: VecDeque<DenialEntry>,
    total: u64,
}

/// A request that the access rules refused.
#[derive(Clone, Debug)]
pub struct DenialEntry {
    /// When it was refused.
    pub wall: WallClock,
    /// Who sent it.
    pub identity: Arc<Identity>,
    /// What it requested.
    pub action: Action,
    /// Why it was refused.
    pub reason: DenialReason,
}

impl From<DenialEntry> for v1::Denial {
    fn from(denial: DenialEntry) -> Self {
        let identity = &denial.identity;
        Self {
            wall_ms: denial.wall.0,
            principal: identity.principal.to_string(),
            via: identity.via.word().to_owned(),
            credential: identity.credential.to_string(),
            from: identity.peer.map(|peer| peer.to_string()).unwrap_or_default(),
            action: denial.action.word().to_owned(),
            reason: denial.reason.word().to_owned(),
        }
    }
}

impl DenialLog {
    /// Counts a denial, keeps it for administrators, and logs it unless one of the same identity was logged in the last minute.
    pub fn denied(&self, metrics: &Metrics, identity: &Arc<Identity>, action: Action, reason: DenialReason) {
        metrics.rejections().denied(action, reason);
        self.keep(DenialEntry { wall: clock::now().wall, identity: identity.clone(), action, reason });
        let Some(unlogged) = self.windows.admit(&identity.principal) else { return };
        tracing::warn!(
            principal = &*identity.principal,
            via = identity.via.word(),
            credential = &*identity.credential,
            peer = identity.peer_text(),
            action = action.word(),
            reason = reason.word(),
            unlogged,
            "request denied"
        );
    }

    fn keep(&self, denial: DenialEntry) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.total += 1;
        if last.denials.len() >= MAX_DENIALS {
            last.denials.pop_front();
        }
        last.denials.push_back(denial);
    }

    /// The last denials, newest first, and how many there were since the start.
    pub fn last(&self) -> (Vec<DenialEntry>, u64) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.denials.iter().rev().cloned().collect(), last.total)
    }

    /// Logs that an identity reached a limit of its own, unless one of its lines was logged in the last minute. Metrics count it
    /// where the refusal is sent.
    pub fn limit_reached(&self, identity: &Identity, limit: &str) {
        let Some(unlogged) = self.windows.admit(&identity.principal) else { return };
        tracing::warn!(
            principal = &*identity.principal,
            credential = &*identity.credential,
            peer = identity.peer_text(),
            limit,
            unlogged,
            "limit of an identity reached"
        );
    }

    /// Logs a number that this journal never issued, with what came of it (A9), unless one of the same identity was logged in the
    /// last minute.
    pub fn unissued_number(&self, identity: &Identity, token_number: u64, effect: UnissuedNumber) {
        let Some(unlogged) = self.windows.admit(&identity.principal) else { return };
        tracing::warn!(
            principal = &*identity.principal,
            via = identity.via.word(),
            credential = &*identity.credential,
            peer = identity.peer_text(),
            token_number,
            unlogged,
            "{}",
            effect.sentence()
        );
    }
}

/// What came of a presented number that this journal never issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnissuedNumber {
    /// It had no effect, because the caller did not prove it.
    Ignored,
    /// Its reporter had started a quarantine before: it raised the numbers of later grants, and stopped nothing.
    ReportedAgain,
}

impl UnissuedNumber {
    const fn sentence(self) -> &'static str {
        match self {
            Self::Ignored => {
                "token ignored: this journal never issued it, and it is not sealed by a key of this cluster; find out who made it"
            }
            Self::ReportedAgain => {
                "reporter presented another number that this journal never issued; it starts no further quarantine; \
                 find out whether another server grants, or whether the reporter is wrong"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_denials_are_kept_and_older_ones_make_place() {
        let log = DenialLog::default();
        let identity = Arc::new(Identity::anonymous(None));
        for at in 0..MAX_DENIALS as u64 + 5 {
            let wall = WallClock(at);
            let denial =
                DenialEntry { wall, identity: identity.clone(), action: Action::Revoke, reason: DenialReason::Role };
            log.keep(denial);
        }
        let (last, total) = log.last();
        assert_eq!((last.len(), total), (MAX_DENIALS, MAX_DENIALS as u64 + 5));
        assert_eq!((last[0].wall.0, last[MAX_DENIALS - 1].wall.0), (MAX_DENIALS as u64 + 4, 5), "newest first");
    }
}
