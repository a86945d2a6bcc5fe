//! What all clients together were told, checked as it comes: promises over grants that no single client can see.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Grantor time counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// Who asked: a client and its request.
pub type Asker = (String, u64);

/// Everything that was acked, by everybody.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Acked>>);

#[derive(Default)]
struct Acked {
    /// Who was granted which number.
    grants: BTreeMap<u64, (String, Asker)>,
    /// Which number each request was granted.
    numbers: BTreeMap<Asker, u64>,
    /// The number under which a resource is held by somebody who has not yet begun to give it back.
    live: BTreeMap<String, u64>,
    /// From when on and for how long a number's holder was promised the lease at least.
    promised: BTreeMap<u64, (Instant, Duration)>,
    /// The numbers that are over, and why.
    ended: BTreeMap<u64, &'static str>,
    highest: u64,
}

impl History {
    /// The highest number acked so far: whatever is asked from now on is granted above it (T2).
    pub fn floor(&self) -> u64 {
        self.acked().highest
    }

    /// A grant was acked that was first asked for when `floor` was the highest number.
    pub fn granted(&self, resource: &str, asker: &Asker, number: u64, floor: u64) {
        let mut acked = self.acked();
        let known = acked.numbers.insert(asker.clone(), number);
        if let Some(known) = known {
            assert_eq!(known, number, "{asker:?} was told another number for the same request (L11)");
            return;
        }
        assert!(number > floor, "{number} for {asker:?} is not above {floor}, which was acked before it asked (T2)");
        let before = acked.grants.insert(number, (resource.to_owned(), asker.clone()));
        assert_eq!(before, None, "{number} was given out twice, now to {asker:?} (T3)");
        let live = acked.live.insert(resource.to_owned(), number);
        assert_eq!(live, None, "{resource} is held twice, now under {number} (L1)");
        acked.highest = acked.highest.max(number);
    }

    /// A grant or a renewal was acked that was asked for at this moment: for a ttl from there on it is its holder's (L2).
    pub fn lasts(&self, number: u64, from: Instant, ttl: Duration) {
        self.acked().promised.insert(number, (from, ttl));
    }

    /// Somebody was told at this moment that it has run out, or holds what was held under it.
    pub fn ran_out(&self, number: u64, at: Instant) {
        let acked = self.acked();
        let (from, ttl) = acked.promised.get(&number).copied().expect("whoever holds was promised a time");
        let lasted = at.saturating_duration_since(from);
        assert!(lasted + ROUNDING >= ttl, "{number} was over after {lasted:?} of {ttl:?} (L2)");
    }

    /// Its holder is about to give it back, or has been told that it ran out.
    pub fn ending(&self, resource: &str, number: u64) {
        let mut acked = self.acked();
        if acked.live.get(resource) == Some(&number) {
            acked.live.remove(resource);
        }
    }

    /// Its holder was told that it is over, and why.
    pub fn ended(&self, number: u64, why: &'static str) {
        self.acked().ended.insert(number, why);
    }

    /// Every number that was acked, and what it was granted on.
    pub fn grants(&self) -> BTreeMap<u64, String> {
        self.acked().grants.iter().map(|(number, (resource, _))| (*number, resource.clone())).collect()
    }

    /// Every number whose end was acked, and why it ended.
    pub fn ends(&self) -> BTreeMap<u64, &'static str> {
        self.acked().ended.clone()
    }

    /// What is certainly held under a prefix, by number.
    pub fn live(&self, prefix: &str) -> BTreeMap<String, u64> {
        let acked = self.acked();
        let live = acked.live.iter().filter(|(resource, _)| resource.starts_with(prefix));
        live.map(|(resource, number)| (resource.clone(), *number)).collect()
    }

    /// What a server says is held under a prefix is what its holders were told, all of it and nothing else (L3).
    pub fn is_all(&self, prefix: &str, held: &BTreeMap<String, u64>) {
        assert_eq!(held, &self.live(prefix), "everything acked, and nothing else (L3)");
    }

    /// How many grants were acked.
    pub fn count(&self) -> usize {
        self.acked().grants.len()
    }

    fn acked(&self) -> MutexGuard<'_, Acked> {
        // A client that found a broken promise panicked with this in hand; the others may still look.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Whoever is granted stands first in the queue, as it was told (W1).
pub fn in_turn<T: PartialEq + std::fmt::Debug>(queue: &VecDeque<T>, granted: &T) {
    assert_eq!(queue.front(), Some(granted), "granted out of turn: {queue:?} (W1)");
}

/// What a fenced target applied, in its order: the tokens never fall (F1).
pub fn never_falls(applied: &[u64]) {
    let fell = applied.windows(2).find(|two| two[1] < two[0]);
    assert_eq!(fell, None, "a write under a lower token was applied (F1)");
}

/// Each check is shown a history that must not be.
#[cfg(test)]
mod tests {
    use super::*;

    fn asker(name: &str) -> Asker {
        (name.to_owned(), 1)
    }

    #[test]
    fn what_may_be_is_taken() {
        let (history, asked) = (History::default(), Instant::now());
        history.granted("a", &asker("one"), 5, history.floor());
        history.granted("a", &asker("one"), 5, 0);
        history.lasts(5, asked, Duration::from_secs(2));
        history.ran_out(5, asked + Duration::from_secs(2));
        history.ending("a", 5);
        history.granted("a", &asker("two"), 6, history.floor());
        in_turn(&VecDeque::from([1, 2]), &1);
        never_falls(&[5, 5, 6]);
        assert_eq!(history.live("a"), BTreeMap::from([("a".to_owned(), 6)]));
    }

    #[test]
    #[should_panic(expected = "(T3)")]
    fn a_number_given_out_twice_is_seen() {
        let history = History::default();
        history.granted("a", &asker("one"), 5, 0);
        history.granted("b", &asker("two"), 5, 0);
    }

    #[test]
    #[should_panic(expected = "(T2)")]
    fn a_number_below_one_that_was_acked_before_is_seen() {
        let history = History::default();
        history.granted("a", &asker("one"), 5, 0);
        history.granted("b", &asker("two"), 4, history.floor());
    }

    #[test]
    #[should_panic(expected = "(L1)")]
    fn two_holders_of_one_name_are_seen() {
        let history = History::default();
        history.granted("a", &asker("one"), 5, 0);
        history.granted("a", &asker("two"), 6, 5);
    }

    #[test]
    #[should_panic(expected = "(L11)")]
    fn two_answers_to_one_request_are_seen() {
        let history = History::default();
        history.granted("a", &asker("one"), 5, 0);
        history.granted("a", &asker("one"), 6, 0);
    }

    #[test]
    #[should_panic(expected = "(L2)")]
    fn an_early_successor_is_seen() {
        let (history, asked) = (History::default(), Instant::now());
        history.granted("a", &asker("one"), 5, 0);
        history.lasts(5, asked, Duration::from_secs(2));
        history.lasts(5, asked + Duration::from_secs(1), Duration::from_secs(2));
        history.ran_out(5, asked + Duration::from_millis(2_990));
    }

    #[test]
    #[should_panic(expected = "everything acked")]
    fn a_grant_that_was_lost_or_invented_is_seen() {
        let history = History::default();
        history.granted("a", &asker("one"), 5, 0);
        history.is_all("a", &BTreeMap::new());
    }

    #[test]
    #[should_panic(expected = "(W1)")]
    fn a_grant_out_of_turn_is_seen() {
        in_turn(&VecDeque::from([1, 2]), &2);
    }

    #[test]
    #[should_panic(expected = "(F1)")]
    fn a_stale_write_is_seen() {
        never_falls(&[5, 6, 5]);
    }
}
