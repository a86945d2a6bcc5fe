//! Replies of all clients, checked as they arrive, for promises that no single client can check.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Grantor time counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// A client and its request number.
pub type Requester = (String, u64);

/// All acknowledged grants and ends.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<AckedState>>);

#[derive(Default)]
struct AckedState {
    /// Resource and requester of each token number.
    grants: BTreeMap<u64, (String, Requester)>,
    /// Token number of each request.
    numbers: BTreeMap<Requester, u64>,
    /// Token number of each resource whose holder has not begun to release it.
    live: BTreeMap<String, u64>,
    /// Start and minimum duration of the validity promised to each holder.
    promised: BTreeMap<u64, (Instant, Duration)>,
    /// Ended token numbers and their reasons.
    ended: BTreeMap<u64, &'static str>,
    highest: u64,
}

impl History {
    /// The highest acknowledged number. Every later request is granted a higher one (T2).
    pub fn floor(&self) -> u64 {
        self.acked().highest
    }

    /// Records a grant that was first requested when `floor` was the highest number.
    pub fn granted(&self, resource: &str, requester: &Requester, number: u64, floor: u64) {
        let mut acked = self.acked();
        let known = acked.numbers.insert(requester.clone(), number);
        if let Some(known) = known {
            assert_eq!(known, number, "{requester:?} received another number for the same request (L11)");
            return;
        }
        assert!(
            number > floor,
            "{number} for {requester:?} is not above {floor}, which was acknowledged before the request (T2)"
        );
        let before = acked.grants.insert(number, (resource.to_owned(), requester.clone()));
        assert_eq!(before, None, "{number} was issued twice, now to {requester:?} (T3)");
        let live = acked.live.insert(resource.to_owned(), number);
        assert_eq!(live, None, "{resource} is held twice, now under {number} (L1)");
        acked.highest = acked.highest.max(number);
    }

    /// Records a grant or renewal requested at `from`: the lease is valid for a ttl from then on (L2).
    pub fn valid_for(&self, number: u64, from: Instant, ttl: Duration) {
        self.acked().promised.insert(number, (from, ttl));
    }

    /// Records that a lease has expired by `at`: its holder was informed, or a successor was granted.
    pub fn expired(&self, number: u64, at: Instant) {
        let acked = self.acked();
        let (from, ttl) = acked.promised.get(&number).copied().expect("every holder was promised a time");
        let lasted = at.saturating_duration_since(from);
        assert!(lasted + ROUNDING >= ttl, "{number} ended after {lasted:?} of {ttl:?} (L2)");
    }

    /// Records that its holder is about to release a lease, or was informed of its expiry.
    pub fn ending(&self, resource: &str, number: u64) {
        let mut acked = self.acked();
        if acked.live.get(resource) == Some(&number) {
            acked.live.remove(resource);
        }
    }

    /// Records an acknowledged end.
    pub fn ended(&self, number: u64, reason: &'static str) {
        self.acked().ended.insert(number, reason);
    }

    /// All acknowledged token numbers and their resources.
    pub fn grants(&self) -> BTreeMap<u64, String> {
        self.acked().grants.iter().map(|(number, (resource, _))| (*number, resource.clone())).collect()
    }

    /// All token numbers with an acknowledged end, and the reasons.
    pub fn ends(&self) -> BTreeMap<u64, &'static str> {
        self.acked().ended.clone()
    }

    /// Leases under a prefix that are certainly held.
    pub fn live(&self, prefix: &str) -> BTreeMap<String, u64> {
        let acked = self.acked();
        let live = acked.live.iter().filter(|(resource, _)| resource.starts_with(prefix));
        live.map(|(resource, number)| (resource.clone(), *number)).collect()
    }

    /// Checks that the leases listed by a server match the acknowledged ones exactly (L3).
    pub fn assert_matches(&self, prefix: &str, held: &BTreeMap<String, u64>) {
        assert_eq!(held, &self.live(prefix), "everything acknowledged, and nothing else (L3)");
    }

    /// Number of acknowledged grants.
    pub fn count(&self) -> usize {
        self.acked().grants.len()
    }

    fn acked(&self) -> MutexGuard<'_, AckedState> {
        // A client that found a broken promise panicked with the lock; the others continue.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Checks that a grant goes to the first in the queue (W1).
pub fn assert_in_order<T: PartialEq + std::fmt::Debug>(queue: &VecDeque<T>, granted: &T) {
    assert_eq!(queue.front(), Some(granted), "granted out of order: {queue:?} (W1)");
}

/// Checks that the tokens of applied writes never decrease (F1).
pub fn assert_never_decreases(applied: &[u64]) {
    let decrease = applied.windows(2).find(|two| two[1] < two[0]);
    assert_eq!(decrease, None, "a write under a lower token was applied (F1)");
}

/// Each check must detect an invalid history.
#[cfg(test)]
mod tests {
    use super::*;

    fn requester(name: &str) -> Requester {
        (name.to_owned(), 1)
    }

    #[test]
    fn valid_histories_are_accepted() {
        let (history, start) = (History::default(), Instant::now());
        history.granted("a", &requester("one"), 5, history.floor());
        history.granted("a", &requester("one"), 5, 0);
        history.valid_for(5, start, Duration::from_secs(2));
        history.expired(5, start + Duration::from_secs(2));
        history.ending("a", 5);
        history.granted("a", &requester("two"), 6, history.floor());
        assert_in_order(&VecDeque::from([1, 2]), &1);
        assert_never_decreases(&[5, 5, 6]);
        assert_eq!(history.live("a"), BTreeMap::from([("a".to_owned(), 6)]));
    }

    #[test]
    #[should_panic(expected = "(T3)")]
    fn a_duplicate_number_is_detected() {
        let history = History::default();
        history.granted("a", &requester("one"), 5, 0);
        history.granted("b", &requester("two"), 5, 0);
    }

    #[test]
    #[should_panic(expected = "(T2)")]
    fn a_number_below_an_acknowledged_one_is_detected() {
        let history = History::default();
        history.granted("a", &requester("one"), 5, 0);
        history.granted("b", &requester("two"), 4, history.floor());
    }

    #[test]
    #[should_panic(expected = "(L1)")]
    fn two_holders_of_one_resource_are_detected() {
        let history = History::default();
        history.granted("a", &requester("one"), 5, 0);
        history.granted("a", &requester("two"), 6, 5);
    }

    #[test]
    #[should_panic(expected = "(L11)")]
    fn two_replies_to_one_request_are_detected() {
        let history = History::default();
        history.granted("a", &requester("one"), 5, 0);
        history.granted("a", &requester("one"), 6, 0);
    }

    #[test]
    #[should_panic(expected = "(L2)")]
    fn an_early_successor_is_detected() {
        let (history, start) = (History::default(), Instant::now());
        history.granted("a", &requester("one"), 5, 0);
        history.valid_for(5, start, Duration::from_secs(2));
        history.valid_for(5, start + Duration::from_secs(1), Duration::from_secs(2));
        history.expired(5, start + Duration::from_millis(2_990));
    }

    #[test]
    #[should_panic(expected = "everything acknowledged")]
    fn a_lost_or_invented_grant_is_detected() {
        let history = History::default();
        history.granted("a", &requester("one"), 5, 0);
        history.assert_matches("a", &BTreeMap::new());
    }

    #[test]
    #[should_panic(expected = "(W1)")]
    fn a_grant_out_of_order_is_detected() {
        assert_in_order(&VecDeque::from([1, 2]), &2);
    }

    #[test]
    #[should_panic(expected = "(F1)")]
    fn a_stale_write_is_detected() {
        assert_never_decreases(&[5, 6, 5]);
    }
}
