//! The work that one query may do. A query runs between two turns, so that its work delays every holder.

use crate::limits::{QUERY_STEPS, VIEW_STEPS};

/// The steps that a query has left: slots to scan, leases to inspect, views to build.
#[derive(Clone, Debug)]
pub struct QueryBudget {
    limit: usize,
    left: usize,
}

impl Default for QueryBudget {
    /// The budget of one query.
    fn default() -> Self {
        Self::new(QUERY_STEPS)
    }
}

impl QueryBudget {
    /// A budget of this many steps.
    pub const fn new(steps: usize) -> Self {
        Self { limit: steps, left: steps }
    }

    /// No limit, for tests and tools that read the whole state.
    pub const fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// The steps taken so far.
    pub const fn used(&self) -> usize {
        self.limit - self.left
    }

    /// The steps left.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// Takes steps; what is not left is not counted.
    pub(super) const fn take(&mut self, steps: usize) {
        self.left = self.left.saturating_sub(steps);
    }

    /// Steps to inspect leases and to build views of some of them.
    pub(super) const fn steps_of_views(inspected: usize, views: usize) -> usize {
        inspected.saturating_add(views.saturating_mul(VIEW_STEPS))
    }
}
