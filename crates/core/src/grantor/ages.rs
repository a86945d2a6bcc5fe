//! How long ago things should have happened, for whoever watches the grantor from outside.

use super::Grantor;

impl Grantor {
    /// For how many milliseconds the oldest end is due that a turn had no room for; nothing if none is left.
    pub fn overdue(&self) -> u64 {
        let due = self.table.due.leases.next();
        due.map_or(0, |due| due.until(self.table.time))
    }

    /// How many milliseconds ago the lease that is furthest behind showed progress, of those that must. At most so many
    /// leases with something special are looked at.
    pub fn oldest_progress(&self, most: usize) -> Option<u64> {
        let now = self.table.time;
        let progress = self.table.extras.values().take(most).filter_map(|extra| extra.progress);
        progress.map(|progress| progress.term.renewed(now).until(now)).max()
    }
}
