//! Bounds the log lines about one identity or address to one per minute, and the memory for that.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two log lines under one key.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Keys that are logged separately; all others share one line per interval. Callers choose names and addresses, so their number must be
/// bounded.
const MAX_KEYS: usize = 1_024;

/// The last log line under each key, and what was not logged since.
#[derive(Debug, Default)]
pub struct LogWindows(Mutex<HashMap<Box<str>, LogWindow>>);

#[derive(Debug)]
struct LogWindow {
    logged: Instant,
    unlogged: u64,
}

impl LogWindows {
    /// The number of events that were not logged since the last line, if a line is due now.
    pub fn admit(&self, key: &str) -> Option<u64> {
        self.admit_at(key, Instant::now())
    }

    fn admit_at(&self, key: &str, now: Instant) -> Option<u64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= MAX_KEYS && !windows.contains_key(key) {
            windows.retain(|_, window| now.saturating_duration_since(window.logged) < LOG_INTERVAL);
        }
        let has_place = windows.len() < MAX_KEYS || windows.contains_key(key);
        let key = if has_place { key } else { "" };
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
        let (log, start) = (LogWindows::default(), Instant::now());
        assert_eq!(log.admit_at("uid:1", start), Some(0));
        for _ in 0..3 {
            assert_eq!(log.admit_at("uid:1", start + Duration::from_secs(59)), None);
        }
        assert_eq!(log.admit_at("uid:2", start + Duration::from_secs(1)), Some(0), "identities are separate");
        assert_eq!(log.admit_at("uid:1", start + LOG_INTERVAL), Some(3));
        assert_eq!(log.admit_at("uid:1", start + LOG_INTERVAL), None);
    }

    #[test]
    fn many_identities_share_one_line_and_bounded_memory() {
        let (log, start) = (LogWindows::default(), Instant::now());
        let logged = (0..10 * MAX_KEYS).filter(|uid| log.admit_at(&format!("uid:{uid}"), start).is_some()).count();
        assert_eq!(logged, MAX_KEYS + 1);
        assert!(log.0.lock().expect("no thread panicked").len() <= MAX_KEYS + 1);
        assert_eq!(log.admit_at("uid:99999", start + LOG_INTERVAL), Some(0), "expired windows make place");
    }
}
