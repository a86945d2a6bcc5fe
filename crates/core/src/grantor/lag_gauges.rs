//! Lag gauges for monitoring: overdue expiries and the oldest progress.

use super::Grantor;

impl Grantor {
    /// Milliseconds by which the oldest unprocessed expiry is overdue; zero if there is none.
    pub fn overdue(&self) -> u64 {
        let due = self.table.due.leases.next();
        due.map_or(0, |due| due.until(self.table.time))
    }

    /// Milliseconds since the oldest progress report, over leases that require progress. Inspects at most `limit` leases with
    /// extra fields.
    pub fn oldest_progress(&self, limit: usize) -> Option<u64> {
        let now = self.table.time;
        let progress = self.table.extras.values().take(limit).filter_map(|extra| extra.progress);
        progress.map(|progress| progress.renewal.renewed(now).until(now)).max()
    }
}
