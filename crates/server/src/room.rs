//! How many connections may be open at the same time: a bound that can be moved while they are.

use std::sync::{Arc, Mutex, MutexGuard};

/// Room for connections.
#[derive(Debug)]
pub struct Room {
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    open: usize,
    most: usize,
}

/// A place in the room, given back when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Room>);

impl Room {
    /// Room for so many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { places: Mutex::new(Places { open: 0, most }) })
    }

    /// Moves the bound. Nobody is sent away: above a lower bound nobody comes in until enough have left.
    pub fn resize(&self, most: usize) {
        self.places().most = most;
    }

    /// A place, if there is one.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut places = self.places();
        let free = places.open < places.most;
        places.open += usize::from(free);
        free.then(|| Place(self.clone()))
    }

    /// How many there is room for.
    pub fn most(&self) -> usize {
        self.places().most
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.places().open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_lets_the_next_in_when_one_leaves_or_the_bound_moves() {
        let room = Room::new(1);
        let first = room.enter().expect("there is a place");
        assert!(room.enter().is_none());
        drop(first);
        let _second = room.enter().expect("one has left");
        room.resize(2);
        let _third = room.enter().expect("there is one place more");
        assert!(room.enter().is_none());
    }

    #[test]
    fn a_lower_bound_sends_nobody_away_and_holds_for_those_who_come() {
        let room = Room::new(2);
        let (first, second) = (room.enter(), room.enter());
        room.resize(1);
        drop(first);
        assert!(room.enter().is_none(), "one is still there");
        drop(second);
        assert!(room.enter().is_some());
    }
}
