//! What ends: everything of a backup, a session with all it holds, a hold that became a commitment.

use super::super::Table;
use super::Misfit;
use crate::ids::SessionId;
use crate::lease::{Access, Reason};
use crate::mutants::{self, Mutant};
use crate::token::Number;

impl Table {
    /// Nothing in a backup is renewable (T5).
    pub(super) fn restore(&mut self) {
        if mutants::on(Mutant::BackupRenewable) {
            return;
        }
        let sessions: Vec<(u32, u32)> = self.sessions.iter_live().map(|(slot, reuse, _)| (slot, reuse)).collect();
        for (slot, reuse) in sessions {
            self.end_session_as(SessionId { slot, reuse }, Reason::Restored).expect("live");
        }
        let leases: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in leases {
            self.unlink_lease(slot, Reason::Restored, false);
        }
        self.queues.restored(self.time);
        self.cache.restored(self.time);
    }

    /// Many ends at once, each as if it were alone.
    pub(super) fn expire(&mut self, ends: &[(u32, Number)]) -> Result<(), Misfit> {
        for (lease, number) in ends {
            self.guard_end(*lease, *number)?;
            self.unlink_lease(*lease, Reason::Ttl, false);
        }
        Ok(())
    }

    /// L7: an end is guarded by the lease's token.
    pub(super) fn guard_end(&self, lease: u32, number: Number) -> Result<(), Misfit> {
        if self.known(lease)?.number() != number && !mutants::on(Mutant::EndNotGuarded) {
            return Err("an end is guarded by the lease's token");
        }
        Ok(())
    }

    /// S1: a session's end ends all that it holds and waits for, in one step.
    pub(super) fn end_session(&mut self, id: SessionId) -> Result<(), Misfit> {
        self.end_session_as(id, Reason::Session)
    }

    pub(super) fn end_session_as(&mut self, id: SessionId, reason: Reason) -> Result<(), Misfit> {
        self.sessions.live(id.slot, id.reuse).ok_or("no such session")?;
        for slot in self.session_waits(id.slot) {
            self.dequeue(slot);
        }
        if !mutants::on(Mutant::SessionLeavesLeases) {
            for slot in self.session_leases(id.slot) {
                self.unlink_lease(slot, reason, false);
            }
        }
        self.queues.session_ended(id, self.time);
        self.cache.session_ended(id, self.time);
        self.due.sessions.disarm(id.slot);
        let session = self.sessions.vacate(id.slot);
        session.requests = std::collections::VecDeque::new();
        session.parties = Vec::new();
        let holder = session.holder;
        self.parties.holder_mut(holder).sessions -= 1;
        self.parties.leave_holder_if_empty(holder, &mut self.resources.names);
        Ok(())
    }

    /// The units stay taken; the lease is over.
    pub(super) fn confirm_hold(&mut self, slot: u32, number: Number) -> Result<(), Misfit> {
        let lease = *self.known(slot)?;
        let Access::Units(units) = lease.access() else {
            return Err("only a hold is confirmed");
        };
        if lease.number() != number {
            return Err("an end is guarded by the lease's token");
        }
        if !mutants::on(Mutant::ConfirmForgetsUnits) {
            self.resources.gather(lease.resource).confirmed += u64::from(units);
        }
        self.unlink_lease(slot, Reason::Released, false);
        Ok(())
    }

    pub(super) fn resize_hold(&mut self, slot: u32, units: u32) -> Result<(), Misfit> {
        let lease = *self.known(slot)?;
        let Access::Units(before) = lease.access() else {
            return Err("only a hold is resized");
        };
        let capacity = self.capacity(lease.resource);
        let crowd = self.resources.gather(lease.resource);
        let used = u64::from(crowd.used - before) + u64::from(units);
        let oversold = units > before && used + crowd.confirmed > u64::from(capacity);
        if units == 0 || (oversold && !mutants::on(Mutant::ResizeOversells)) {
            return Err("more units held than there are");
        }
        crowd.used = used as u32;
        self.leases.at_mut(slot).expect("known").units = units;
        self.offer_later(lease.resource);
        Ok(())
    }
}
