//! Faults of a run: crashes, recoveries, rollbacks and restores.

use leasehold_core::grantor::{Output, RecoveredGrantor, RestoreSpec, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::EndReason;
use leasehold_core::token::Number;

use super::identity;
use super::model::number;
use super::runner::{Runner, at, opening, read};

impl Runner {
    pub fn crash(&mut self, durable: bool, unserved: bool, outage: u64) -> Result<(), String> {
        let batch = self.turn(false)?;
        self.log(|| format!("crash; the batch {}; out for {outage}", if durable { "is durable" } else { "is lost" }));
        if durable && !batch.is_empty() {
            self.count("a batch became durable and its answers were lost");
            let records = read(&batch)?;
            self.check_numbers(&records, true)?;
            self.append(batch)?;
        } else if !batch.is_empty() {
            self.count("a batch was lost");
        }
        self.advance(outage);
        self.reopen(unserved, None)
    }

    /// Opens a new tenure from the durable state. Recovery from a snapshot and from records must agree.
    fn reopen(&mut self, unserved: bool, restore: Option<RestoreSpec>) -> Result<(), String> {
        let batches = || self.journal.iter().map(|(batch, _)| &batch[..]);
        let all = recover(self.clock, None, batches()).map_err(|e| format!("the journal does not replay: {e}"))?;
        let mut from = all;
        if let Some((at, bytes)) = self.snapshot.clone().filter(|(at, _)| *at <= self.journal.len()) {
            let short = recover(self.clock ^ 5, Some(&bytes), batches().skip(at)).map_err(|e| e.to_string())?;
            if short.state_hash() != from.state_hash() {
                return Err("a snapshot and its batches give another state than all batches".to_owned());
            }
            self.count("a recovery from a snapshot");
            if self.clock.is_multiple_of(2) {
                from = short;
            }
        }
        self.generation += 1;
        let now = at(self.clock, self.wall);
        let mut core = from.open(now, &opening(self.generation, restore)).map_err(|e| e.to_string())?;
        let mut out = Output::default();
        core.take_output(&mut out);
        let mut spec = self.journal.last().expect("a journal starts with its creation").1.clone();
        let how = restore.map(|restore| (restore.incarnation.0, restore.floor.map(Number::get)));
        spec.open(self.wall, how);
        self.spec = spec;
        self.core = core;
        self.standby = recover(3, None, self.journal.iter().map(|(batch, _)| &batch[..])).map_err(|e| e.to_string())?;
        self.append(out.batch)?;
        if unserved {
            self.count("a recovery that never served");
            self.advance(7);
            return self.reopen(false, None);
        }
        self.advance(3);
        self.core.serve(at(self.clock, self.wall));
        self.spec.serve(self.clock);
        let tenure = self.spec.tenure;
        self.log(|| format!("tenure {tenure} serves"));
        self.pending.clear();
        super::compare::views(&self.core, &self.spec)
    }

    pub fn take_snapshot(&mut self) -> Result<(), String> {
        // Only after a turn with records do the journal and the state have the same position.
        if self.standby.state_hash() != self.core.state_hash() {
            return Ok(());
        }
        let bytes = self.core.snapshot();
        let again =
            RecoveredGrantor::from_snapshot(&bytes, 1).map_err(|e| format!("a snapshot cannot be read: {e}"))?;
        if again.state_hash() != self.core.state_hash() || again.snapshot() != bytes {
            return Err("a snapshot differs from the state that it was taken from".to_owned());
        }
        self.count("a snapshot");
        self.snapshot = Some((self.journal.len(), bytes));
        Ok(())
    }

    /// Silently drops the newest batches. The clock is right, so no token number repeats (T4).
    pub fn roll_back(&mut self, batches: u64, outage: u64) -> Result<(), String> {
        let batch = self.turn(false)?;
        drop(batch);
        let keep = self.journal.len().saturating_sub(batches as usize).max(2);
        let lost = self.journal.len() - keep;
        self.log(|| format!("crash; {lost} durable batches are rolled back; out for {outage}"));
        self.journal.truncate(keep);
        self.snapshot = None;
        if lost > 0 {
            self.count("a rollback");
        }
        self.advance(outage);
        self.forget_reusable_ids();
        self.reopen(false, None)
    }

    pub fn restore(&mut self, batches: u64, outage: u64, floor: bool) -> Result<(), String> {
        let batch = self.turn(false)?;
        drop(batch);
        let keep = self.journal.len().saturating_sub(batches as usize).max(2);
        self.log(|| format!("crash; a backup of {batches} batches ago is restored; out for {outage}"));
        self.journal.truncate(keep);
        self.snapshot = None;
        self.advance(outage);
        let ahead = self.ahead_of_the_clock();
        // An operator's floor may be above the number that the clock gives.
        let above = self.highest.max(self.counter()).max((self.wall + 60_000) << 22);
        let floor = (floor || ahead).then(|| number(above + 5));
        let incarnation = identity::incarnation(self.spec.incarnation + 1);
        self.count("a restore");
        let last = &self.journal.last().expect("the first batch is never removed").1;
        if !last.live().is_empty() {
            self.count(EndReason::Restored.word());
        }
        self.forget_reusable_ids();
        self.reopen(false, Some(RestoreSpec { incarnation, floor, uid: None }))
    }

    fn counter(&self) -> u64 {
        self.journal.iter().map(|(_, spec)| spec.counter).max().unwrap_or(0)
    }

    /// A counter ahead of the clock was rolled back. This is the only case in which numbers may repeat, as documented.
    fn ahead_of_the_clock(&self) -> bool {
        self.highest >= self.wall << 22
    }

    /// Forgets ids that may be reused after a rollback: with an old id, a client would refer to another lease.
    fn forget_reusable_ids(&mut self) {
        let spec = &self.journal.last().expect("the first batch is never removed").1;
        let known = |id: &SessionId| spec.sessions.len() > id.slot as usize;
        self.sessions.retain(|(id, _)| known(id));
        self.sent.retain(|(id, _)| known(&id.session));
        self.grants.retain(|grant| spec.leases.len() > grant.lease.slot as usize);
        if self.ahead_of_the_clock() {
            self.highest = spec.counter.min(self.highest);
        }
    }
}
