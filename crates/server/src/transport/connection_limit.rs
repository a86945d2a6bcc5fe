//! A limit on open connections that can be changed while they are open. At the limit the longest idle connection makes room,
//! that of a stranger before that of a known peer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::connection_activity::ConnectionActivity;

/// The open connections, and how many there may be.
#[derive(Debug)]
pub struct ConnectionLimit {
    connections: Mutex<OpenConnections>,
}

#[derive(Debug)]
struct OpenConnections {
    limit: usize,
    next_id: u64,
    /// In the order in which they were opened.
    open: BTreeMap<u64, Arc<ConnectionActivity>>,
}

/// Permission for one open connection, returned when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    /// Whether an idle connection was closed for it.
    pub made_room: bool,
}

impl ConnectionLimit {
    /// At most `limit` connections.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { connections: Mutex::new(OpenConnections { limit, next_id: 0, open: BTreeMap::new() }) })
    }

    /// Changes the limit. Open connections stay open: above a lower limit no new one is accepted until enough have closed.
    pub fn resize(&self, limit: usize) {
        self.connections().limit = limit;
    }

    /// A permit for a new connection. At the limit the longest idle connection is closed for it; there is none if all serve
    /// requests, or if the limit was lowered below the number of open connections.
    pub fn try_acquire(self: &Arc<Self>, activity: &Arc<ConnectionActivity>) -> Option<ConnectionPermit> {
        let mut connections = self.connections();
        let made_room = connections.open.len() == connections.limit && connections.close_longest_idle();
        if connections.open.len() >= connections.limit {
            return None;
        }
        let id = connections.next_id;
        connections.next_id += 1;
        connections.open.insert(id, activity.clone());
        Some(ConnectionPermit { limit: self.clone(), id, made_room })
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.connections().open.len()
    }

    /// The current limit.
    pub fn limit(&self) -> usize {
        self.connections().limit
    }

    fn connections(&self) -> MutexGuard<'_, OpenConnections> {
        self.connections.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl OpenConnections {
    /// True if there was one.
    fn close_longest_idle(&mut self) -> bool {
        let idle =
            |(id, activity): (&u64, &Arc<ConnectionActivity>)| Some((activity.is_known(), activity.idle_since()?, *id));
        let Some((.., id)) = self.open.iter().filter_map(idle).min() else { return false };
        // A request may have begun on it since; then there is no room, and the caller retries.
        let closed = self.open[&id].close_if_idle();
        if closed {
            self.open.remove(&id);
        }
        closed
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.connections().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_activity::{Phase, RequestGuard};
    use super::*;

    /// A connection that serves a request.
    fn busy() -> (Arc<ConnectionActivity>, RequestGuard) {
        let activity = ConnectionActivity::new();
        let request = activity.begin().expect("the connection is open");
        (activity, request)
    }

    #[test]
    fn at_the_limit_a_permit_is_free_again_after_a_close_or_a_resize() {
        let limit = ConnectionLimit::new(1);
        let (activity, _request) = busy();
        let first = limit.try_acquire(&activity).expect("below the limit");
        assert!(limit.try_acquire(&activity).is_none());
        drop(first);
        let _second = limit.try_acquire(&activity).expect("the first was closed");
        limit.resize(2);
        let _third = limit.try_acquire(&activity).expect("the limit was raised");
        assert!(limit.try_acquire(&activity).is_none());
    }

    #[test]
    fn a_lower_limit_closes_no_connection_and_applies_to_new_ones() {
        let limit = ConnectionLimit::new(2);
        let (one, other) = (ConnectionActivity::new(), ConnectionActivity::new());
        let (first, second) = (limit.try_acquire(&one), limit.try_acquire(&other));
        limit.resize(1);
        let (activity, _request) = busy();
        assert!(limit.try_acquire(&activity).is_none());
        assert!(!matches!(one.phase(), Phase::Closed) && !matches!(other.phase(), Phase::Closed));
        drop((first, second));
        assert!(limit.try_acquire(&activity).is_some());
    }

    #[test]
    fn at_the_limit_the_longest_idle_connection_is_closed() {
        let limit = ConnectionLimit::new(3);
        let activities = [ConnectionActivity::new(), ConnectionActivity::new(), ConnectionActivity::new()];
        let mut permits: Vec<_> =
            activities.iter().map(|activity| limit.try_acquire(activity).expect("below")).collect();
        let _request = activities[0].begin().expect("the connection is open");
        drop(activities[1].begin().expect("the connection is open"));
        let is_closed = || activities.each_ref().map(|activity| activity.phase() == Phase::Closed);
        let (activity, _other) = busy();
        permits.push(limit.try_acquire(&activity).expect("an idle connection makes room"));
        assert_eq!(is_closed(), [false, false, true], "the first is busy, the second was used after the third");
        permits.push(limit.try_acquire(&activity).expect("an idle connection makes room"));
        assert_eq!(is_closed(), [false, true, true]);
        assert!(limit.try_acquire(&activity).is_none(), "all others serve requests");
        permits.drain(1..3);
        assert!(limit.try_acquire(&activity).is_none(), "the place of a closed connection was taken");
    }

    #[test]
    fn a_silent_stranger_makes_room_before_a_known_peer_that_is_idle_for_longer() {
        let limit = ConnectionLimit::new(3);
        let [known, first, second] = [0; 3].map(|_| ConnectionActivity::new());
        known.set_known();
        let _permits = [&known, &first, &second].map(|activity| limit.try_acquire(activity).expect("below the limit"));
        let _new = [0; 2].map(|_| {
            let permit = limit.try_acquire(&busy().0).expect("an idle connection makes room");
            assert!(permit.made_room);
            permit
        });
        let phases = [&known, &first, &second].map(|activity| activity.phase() == Phase::Closed);
        assert_eq!(phases, [false, true, true]);
    }
}
