//! A limit on open connections that can be changed while they are open.

use std::sync::{Arc, Mutex, MutexGuard};

/// A resizable semaphore.
#[derive(Debug)]
pub struct ConnectionLimit {
    counts: Mutex<PermitCounts>,
}

#[derive(Debug)]
struct PermitCounts {
    open: usize,
    limit: usize,
}

/// Permission for one open connection, returned when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<ConnectionLimit>);

impl ConnectionLimit {
    /// At most `limit` connections.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::new(PermitCounts { open: 0, limit }) })
    }

    /// Changes the limit. Open connections stay open: above a lower limit no new one is accepted until enough have closed.
    pub fn resize(&self, limit: usize) {
        self.counts().limit = limit;
    }

    /// A permit, unless the limit is reached.
    pub fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut counts = self.counts();
        let is_free = counts.open < counts.limit;
        counts.open += usize::from(is_free);
        is_free.then(|| ConnectionPermit(self.clone()))
    }

    /// The current limit.
    pub fn limit(&self) -> usize {
        self.counts().limit
    }

    fn counts(&self) -> MutexGuard<'_, PermitCounts> {
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.counts().open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_limit_a_permit_is_free_again_after_a_close_or_a_resize() {
        let limit = ConnectionLimit::new(1);
        let first = limit.try_acquire().expect("below the limit");
        assert!(limit.try_acquire().is_none());
        drop(first);
        let _second = limit.try_acquire().expect("the first was closed");
        limit.resize(2);
        let _third = limit.try_acquire().expect("the limit was raised");
        assert!(limit.try_acquire().is_none());
    }

    #[test]
    fn a_lower_limit_closes_no_connection_and_applies_to_new_ones() {
        let limit = ConnectionLimit::new(2);
        let (first, second) = (limit.try_acquire(), limit.try_acquire());
        limit.resize(1);
        drop(first);
        assert!(limit.try_acquire().is_none(), "one is still open");
        drop(second);
        assert!(limit.try_acquire().is_some());
    }
}
