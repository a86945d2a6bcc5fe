//! What each identity has in one table of payloads, so that it can be limited (A12).

use crate::access::{IdentityUsage, LOCAL_OWNER};

/// Counts by the numbers of the owners.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerUsage {
    counts: Vec<IdentityUsage>,
}

impl OwnerUsage {
    pub fn get(&self, owner: u32) -> IdentityUsage {
        self.counts.get(owner as usize).copied().unwrap_or_default()
    }

    pub fn add(&mut self, owner: u32, counted: IdentityUsage) {
        let at = owner as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, IdentityUsage::default());
        }
        self.counts[at].add(counted);
    }

    /// Removes what was added before.
    pub fn remove(&mut self, owner: u32, counted: IdentityUsage) {
        self.counts[owner as usize].remove(counted);
    }

    /// Gives what `local` has to another owner, whose name was decoded later.
    pub fn give(&mut self, to: u32, counted: IdentityUsage) {
        self.remove(LOCAL_OWNER, counted);
        self.add(to, counted);
    }
}
