//! A queue that divides its service between identities by the weight of what they send, so that the flood of one delays no other
//! (A12).
//!
//! This is start-time fair queueing. The lane has a virtual time. An item starts when the one before it of the same identity ends,
//! and not before the lane's time; the item that starts first is served. So an identity with large requests waits longer between
//! them than one with small requests.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// Items by identity. Those of one identity keep their order.
pub(super) struct FairLane<T> {
    identities: HashMap<Arc<str>, IdentityItems<T>>,
    /// Identities with items, by the start of the first one and the order in which they got it.
    turns: BTreeSet<(u64, u64, Arc<str>)>,
    /// Identities without items that were served ahead of the lane's time, by the end of their last item.
    ahead: BTreeSet<(u64, Arc<str>)>,
    /// Virtual time: the start of the item that was served last.
    time: u64,
    next_order: u64,
}

struct IdentityItems<T> {
    items: VecDeque<LaneItem<T>>,
    /// Start of the first item; without items, the end of the last one.
    start: u64,
}

struct LaneItem<T> {
    item: T,
    weight: u32,
    /// Its part of what the identity may queue.
    _share: Option<OwnedSemaphorePermit>,
}

impl<T> Default for FairLane<T> {
    fn default() -> Self {
        Self { identities: HashMap::new(), turns: BTreeSet::new(), ahead: BTreeSet::new(), time: 0, next_order: 0 }
    }
}

impl<T> FairLane<T> {
    pub(super) fn push(&mut self, principal: &str, item: T, weight: u32, share: Option<OwnedSemaphorePermit>) {
        let item = LaneItem { item, weight: weight.max(1), _share: share };
        if let Some(known) = self.identities.get_mut(principal) {
            let is_waiting = !known.items.is_empty();
            known.items.push_back(item);
            if is_waiting {
                return;
            }
            let (name, ended) = (self.name_of(principal), self.identities[principal].start);
            self.ahead.remove(&(ended, name.clone()));
            return self.schedule(name, ended.max(self.time));
        }
        let name: Arc<str> = principal.into();
        self.identities.insert(name.clone(), IdentityItems { items: VecDeque::from([item]), start: self.time });
        self.schedule(name, self.time);
    }

    /// The item that starts first.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (start, _, name) = self.turns.pop_first()?;
        self.time = start;
        let identity = self.identities.get_mut(&name).expect("an identity with a turn has items");
        let next = identity.items.pop_front().expect("an identity with a turn has items");
        let end = start + u64::from(next.weight);
        if identity.items.is_empty() {
            identity.start = end;
            self.ahead.insert((end, name));
        } else {
            self.schedule(name, end);
        }
        self.forget_passed();
        Some(next.item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn name_of(&self, principal: &str) -> Arc<str> {
        self.identities.get_key_value(principal).expect("a known identity").0.clone()
    }

    /// Sets when the first item of an identity starts.
    fn schedule(&mut self, name: Arc<str>, start: u64) {
        self.identities.get_mut(&name).expect("a known identity").start = start;
        self.next_order += 1;
        self.turns.insert((start, self.next_order, name));
    }

    /// Forgets identities that have no items and are not ahead of the lane's time any more; all of them if nothing waits.
    fn forget_passed(&mut self) {
        let is_idle = self.turns.is_empty();
        while let Some((end, name)) = self.ahead.pop_first() {
            if end > self.time && !is_idle {
                self.ahead.insert((end, name));
                return;
            }
            self.identities.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_served_in_turn_and_each_in_its_order() {
        let mut lane = FairLane::default();
        for item in 0..5 {
            lane.push("a", ("a", item), 1, None);
        }
        lane.push("b", ("b", 0), 1, None);
        assert_eq!((lane.pop(), lane.pop()), (Some(("a", 0)), Some(("b", 0))), "one is not behind the five of another");
        lane.push("c", ("c", 0), 1, None);
        lane.push("b", ("b", 1), 1, None);
        let rest: Vec<_> = std::iter::from_fn(|| lane.pop()).collect();
        assert_eq!(rest, [("c", 0), ("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4)]);
        assert!(lane.is_empty() && lane.identities.is_empty() && lane.ahead.is_empty());
    }

    #[test]
    fn service_is_divided_by_weight_and_not_by_the_number_of_items() {
        let mut lane = FairLane::default();
        for _ in 0..100 {
            lane.push("large", 100, 100, None);
        }
        for _ in 0..1_000 {
            lane.push("small", 1, 1, None);
        }
        let (mut large, mut small) = (0, 0);
        for _ in 0..808 {
            let weight = lane.pop().expect("both have more");
            if weight == 100 {
                large += weight
            } else {
                small += weight
            }
            assert!(large - small <= 100 && small - large <= 100, "large {large}, small {small}");
        }
        assert_eq!((large, small), (800, 800));
    }

    #[test]
    fn an_identity_that_was_served_ahead_waits_also_if_it_had_nothing_queued_meanwhile() {
        let mut lane = FairLane::default();
        (0..100).for_each(|_| lane.push("small", 1, 1, None));
        for _ in 0..3 {
            lane.push("large", 10, 10, None);
            let served: Vec<_> = (0..11).map_while(|_| lane.pop()).collect();
            assert_eq!(served.iter().filter(|weight| **weight == 10).count(), 1, "{served:?}");
        }
    }
}
