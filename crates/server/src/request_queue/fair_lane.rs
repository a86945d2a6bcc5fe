//! A queue that serves identities in turn, so that the flood of one delays no other (A12).

use std::collections::{HashMap, VecDeque};

use tokio::sync::OwnedSemaphorePermit;

/// Items by identity. Those of one identity keep their order.
pub(super) struct FairLane<T> {
    items: HashMap<Box<str>, VecDeque<LaneItem<T>>>,
    /// Identities with items; the first one is next.
    turns: VecDeque<Box<str>>,
}

struct LaneItem<T> {
    item: T,
    /// Its part of what the identity may queue.
    _share: Option<OwnedSemaphorePermit>,
}

impl<T> Default for FairLane<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<T> FairLane<T> {
    pub(super) fn push(&mut self, principal: &str, item: T, share: Option<OwnedSemaphorePermit>) {
        let item = LaneItem { item, _share: share };
        match self.items.get_mut(principal) {
            Some(items) => items.push_back(item),
            None => {
                self.items.insert(principal.into(), VecDeque::from([item]));
                self.turns.push_back(principal.into());
            }
        }
    }

    /// The next item of the identity whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let principal = self.turns.front()?;
        let items = self.items.get_mut(principal).expect("an identity with a turn has items");
        let next = items.pop_front().expect("an identity with a turn has items");
        if items.is_empty() {
            self.items.remove(principal);
            self.turns.pop_front();
        } else {
            self.turns.rotate_left(1);
        }
        Some(next.item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_served_in_turn_and_each_in_its_order() {
        let mut lane = FairLane::default();
        for item in 0..5 {
            lane.push("a", ("a", item), None);
        }
        lane.push("b", ("b", 0), None);
        assert_eq!((lane.pop(), lane.pop()), (Some(("a", 0)), Some(("b", 0))), "one is not behind the five of another");
        lane.push("c", ("c", 0), None);
        lane.push("b", ("b", 1), None);
        let rest: Vec<_> = std::iter::from_fn(|| lane.pop()).collect();
        assert_eq!(rest, [("a", 1), ("c", 0), ("b", 1), ("a", 2), ("a", 3), ("a", 4)]);
        assert!(lane.is_empty() && lane.items.is_empty());
    }
}
