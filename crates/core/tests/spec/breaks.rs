//! What breaks in a run: crashes, openings, rollbacks and restores.

use leasehold_core::grantor::{Output, Recovered, Restoring, recover};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Reason;
use leasehold_core::token::Number;

use super::identity;
use super::model::number;
use super::world::{World, at, opening, read};

impl World {
    pub fn crash(&mut self, landed: bool, unserved: bool, outage: u64) -> Result<(), String> {
        let batch = self.turn(false)?;
        self.note(|| format!("crash; the batch {}; out for {outage}", if landed { "landed" } else { "is lost" }));
        if landed && !batch.is_empty() {
            self.see("a batch landed and nobody heard");
            let records = read(&batch)?;
            self.numbers_rise(&records, true)?;
            self.append(batch)?;
        } else if !batch.is_empty() {
            self.see("a batch was lost");
        }
        self.pass(outage);
        self.reopen(unserved, None)
    }

    /// Opens a new tenure from what is durable; from a snapshot and from records it is the same.
    fn reopen(&mut self, unserved: bool, restore: Option<Restoring>) -> Result<(), String> {
        let batches = || self.journal.iter().map(|(batch, _)| &batch[..]);
        let all = recover(self.clock, None, batches()).map_err(|e| format!("the journal does not replay: {e}"))?;
        let mut from = all;
        if let Some((at, bytes)) = self.snapshot.clone().filter(|(at, _)| *at <= self.journal.len()) {
            let short = recover(self.clock ^ 5, Some(&bytes), batches().skip(at)).map_err(|e| e.to_string())?;
            if short.state_hash() != from.state_hash() {
                return Err("a snapshot and its batches give another state than all batches".to_owned());
            }
            self.see("an opening from a snapshot");
            if self.clock.is_multiple_of(2) {
                from = short;
            }
        }
        self.generation += 1;
        let now = at(self.clock, self.wall);
        let mut core = from.open(now, &opening(self.generation, restore)).map_err(|e| e.to_string())?;
        let mut out = Output::default();
        core.take_output(&mut out);
        let mut spec = self.journal.last().expect("a journal begins with its creation").1.clone();
        let how = restore.map(|restore| (restore.incarnation.0, restore.floor.map(Number::get)));
        spec.open(self.wall, how);
        self.spec = spec;
        self.core = core;
        self.standby = recover(3, None, self.journal.iter().map(|(batch, _)| &batch[..])).map_err(|e| e.to_string())?;
        self.append(out.batch)?;
        if unserved {
            self.see("an opening that never served");
            self.pass(7);
            return self.reopen(false, None);
        }
        self.pass(3);
        self.core.serve(at(self.clock, self.wall));
        self.spec.serve(self.clock);
        let tenure = self.spec.tenure;
        self.note(|| format!("tenure {tenure} serves"));
        self.asked.clear();
        super::compare::views(&self.core, &self.spec)
    }

    pub fn keep_snapshot(&mut self) -> Result<(), String> {
        // At a turn's end that put something on record: there the journal and the state are at one position.
        if self.standby.state_hash() != self.core.state_hash() {
            return Ok(());
        }
        let bytes = self.core.snapshot();
        let again = Recovered::from_snapshot(&bytes, 1).map_err(|e| format!("a snapshot cannot be read: {e}"))?;
        if again.state_hash() != self.core.state_hash() || again.snapshot() != bytes {
            return Err("a snapshot gives another state than it was taken of".to_owned());
        }
        self.see("a snapshot");
        self.snapshot = Some((self.journal.len(), bytes));
        Ok(())
    }

    /// The newest batches are gone, and nobody says so. The clock is right, so no number comes again (T4).
    pub fn roll_back(&mut self, batches: u64, outage: u64) -> Result<(), String> {
        let batch = self.turn(false)?;
        drop(batch);
        let keep = self.journal.len().saturating_sub(batches as usize).max(2);
        let lost = self.journal.len() - keep;
        self.note(|| format!("crash; {lost} durable batches are rolled back; out for {outage}"));
        self.journal.truncate(keep);
        self.snapshot = None;
        if lost > 0 {
            self.see("a rollback");
        }
        self.pass(outage);
        self.forget_what_is_lost();
        self.reopen(false, None)
    }

    pub fn restore(&mut self, batches: u64, outage: u64, floor: bool) -> Result<(), String> {
        let batch = self.turn(false)?;
        drop(batch);
        let keep = self.journal.len().saturating_sub(batches as usize).max(2);
        self.note(|| format!("crash; a backup of {batches} batches ago is restored; out for {outage}"));
        self.journal.truncate(keep);
        self.snapshot = None;
        self.pass(outage);
        let ahead = self.ahead_of_the_clock();
        // An operator's floor may lie above what the clock alone would give.
        let above = self.highest.max(self.counter()).max((self.wall + 60_000) << 22);
        let floor = (floor || ahead).then(|| number(above + 5));
        let incarnation = identity::incarnation(self.spec.incarnation + 1);
        self.see("a restore");
        let last = &self.journal.last().expect("the creation is kept").1;
        if !last.live().is_empty() {
            self.see(Reason::Restored.word());
        }
        self.forget_what_is_lost();
        self.reopen(false, Some(Restoring { incarnation, floor }))
    }

    fn counter(&self) -> u64 {
        self.journal.iter().map(|(_, spec)| spec.counter).max().unwrap_or(0)
    }

    /// A lift above the clock was rolled back: the one case in which numbers may come again, and the documents say so.
    fn ahead_of_the_clock(&self) -> bool {
        self.highest >= self.wall << 22
    }

    /// Ids may be given out again after a rollback; a client that knows the old ones would name other leases.
    fn forget_what_is_lost(&mut self) {
        let spec = &self.journal.last().expect("the creation is kept").1;
        let known = |id: &SessionId| spec.sessions.len() > id.slot as usize;
        self.sessions.retain(|(id, _)| known(id));
        self.sent.retain(|(id, _)| known(&id.session));
        self.grants.retain(|grant| spec.leases.len() > grant.lease.slot as usize);
        if self.ahead_of_the_clock() {
            self.highest = spec.counter.min(self.highest);
        }
    }
}
