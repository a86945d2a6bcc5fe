//! What all clients together were told, checked as it comes: promises over grants that no single client can see.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

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

    /// How many grants were acked.
    pub fn count(&self) -> usize {
        self.acked().grants.len()
    }

    fn acked(&self) -> MutexGuard<'_, Acked> {
        // A client that found a broken promise panicked with this in hand; the others may still look.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
