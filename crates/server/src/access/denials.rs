//! Denials: a counter by action and reason, and a bounded number of log lines. They are never journaled.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::access::Action;

use crate::identity::Identity;
use crate::metrics::{DenialReason, Metrics};

/// Time between two log lines about one identity.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Identities whose denials are logged separately; all others share one line per interval.
const MAX_IDENTITIES: usize = 1_024;

/// The log of denials. Identities are names that callers choose within what certificates allow, so their number is bounded.
#[derive(Debug, Default)]
pub struct DenialLog {
    windows: Mutex<HashMap<Box<str>, LogWindow>>,
}

/// Denials of one identity since its last log line.
#[derive(Debug)]
struct LogWindow {
    logged: Instant,
    unlogged: u64,
}

impl DenialLog {
    /// Counts a denial, and logs it unless one of the same identity was logged in the last minute.
    pub fn denied(&self, metrics: &Metrics, identity: &Identity, action: Action, reason: DenialReason) {
        metrics.rejections().denied(action, reason);
        let Some(unlogged) = self.admit(&identity.principal, Instant::now()) else { return };
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

    /// Logs a token that would prove a rollback and had no effect, because the caller did not prove it (A9).
    pub fn unproven(&self, identity: &Identity, token_number: u64) {
        let Some(unlogged) = self.admit(&identity.principal, Instant::now()) else { return };
        tracing::warn!(
            principal = &*identity.principal,
            via = identity.via.word(),
            credential = &*identity.credential,
            peer = identity.peer_text(),
            token_number,
            unlogged,
            "token ignored: this journal never issued it, and it is not sealed by a key of this cluster; find out who made it"
        );
    }

    /// The number of denials that were not logged since the last line, if a line is due now.
    fn admit(&self, principal: &str, now: Instant) -> Option<u64> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= MAX_IDENTITIES && !windows.contains_key(principal) {
            windows.retain(|_, window| now.saturating_duration_since(window.logged) < LOG_INTERVAL);
        }
        let has_place = windows.len() < MAX_IDENTITIES || windows.contains_key(principal);
        let key = if has_place { principal } else { "" };
        match windows.get_mut(key) {
            Some(window) if now.saturating_duration_since(window.logged) < LOG_INTERVAL => {
                window.unlogged += 1;
                None
            }
            Some(window) => {
                window.logged = now;
                Some(std::mem::take(&mut window.unlogged))
            }
            None => {
                windows.insert(key.into(), LogWindow { logged: now, unlogged: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_identity_and_minute_carries_the_count_of_the_others() {
        let (log, start) = (DenialLog::default(), Instant::now());
        assert_eq!(log.admit("uid:1", start), Some(0));
        for _ in 0..3 {
            assert_eq!(log.admit("uid:1", start + Duration::from_secs(59)), None);
        }
        assert_eq!(log.admit("uid:2", start + Duration::from_secs(1)), Some(0), "identities are separate");
        assert_eq!(log.admit("uid:1", start + LOG_INTERVAL), Some(3));
        assert_eq!(log.admit("uid:1", start + LOG_INTERVAL), None);
    }

    #[test]
    fn many_identities_share_one_line_and_bounded_memory() {
        let (log, start) = (DenialLog::default(), Instant::now());
        let logged = (0..10 * MAX_IDENTITIES).filter(|uid| log.admit(&format!("uid:{uid}"), start).is_some()).count();
        assert_eq!(logged, MAX_IDENTITIES + 1);
        assert!(log.windows.lock().expect("no thread panicked").len() <= MAX_IDENTITIES + 1);
        assert_eq!(log.admit("uid:99999", start + LOG_INTERVAL), Some(0), "expired windows make place");
    }
}
