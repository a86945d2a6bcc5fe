//! Application of records that end something: restores, sessions, leases, and reservations.

use super::super::GrantorTable;
use super::ApplyError;
use crate::ids::SessionId;
use crate::lease::{Access, EndReason};
use crate::mutants::{self, Mutant};
use crate::token::Number;

impl GrantorTable {
    /// Ends everything of a backup after a restore (T5).
    pub(super) fn restore(&mut self) {
        if mutants::on(Mutant::BackupRenewable) {
            return;
        }
        let sessions: Vec<(u32, u32)> = self.sessions.iter_live().map(|(slot, reuse, _)| (slot, reuse)).collect();
        for (slot, reuse) in sessions {
            self.end_session_as(SessionId { slot, reuse }, EndReason::Restored).expect("live");
        }
        let leases: Vec<u32> = self.leases.iter_live().map(|(slot, _, _)| slot).collect();
        for slot in leases {
            self.unlink_lease(slot, EndReason::Restored, false);
        }
        self.queues.restored(self.time);
        self.cache.restored(self.time);
    }

    /// Ends many expired leases, each as if alone.
    pub(super) fn expire(&mut self, ends: &[(u32, Number)]) -> Result<(), ApplyError> {
        for (lease, number) in ends {
            self.guard_end(*lease, *number)?;
            self.unlink_lease(*lease, EndReason::Ttl, false);
        }
        Ok(())
    }

    /// Checks that an end carries the lease's token (L7).
    pub(super) fn guard_end(&self, lease: u32, number: Number) -> Result<(), ApplyError> {
        if self.known(lease)?.number() != number && !mutants::on(Mutant::EndNotGuarded) {
            return Err("an end with another token than the lease's");
        }
        Ok(())
    }

    /// Ends a session with all its leases and waits in one step (S1).
    pub(super) fn end_session(&mut self, id: SessionId) -> Result<(), ApplyError> {
        self.end_session_as(id, EndReason::Session)
    }

    pub(super) fn end_session_as(&mut self, id: SessionId, reason: EndReason) -> Result<(), ApplyError> {
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
        self.forget_key_session(id.slot);
        let usage = self.session_usage(id.slot);
        let session = self.sessions.vacate(id.slot);
        session.requests = std::collections::VecDeque::new();
        session.actors = Vec::new();
        let (holder, owner) = (session.holder, session.owner);
        self.owners.usage_mut(owner).remove(usage);
        self.actors.holder_mut(holder).sessions -= 1;
        self.actors.remove_holder_if_unused(holder, &mut self.resources.names);
        Ok(())
    }

    /// Turns a reservation into a commitment: its units stay occupied, and the lease ends.
    pub(super) fn confirm_hold(&mut self, slot: u32, number: Number) -> Result<(), ApplyError> {
        let lease = *self.known(slot)?;
        let Access::Units(units) = lease.access() else {
            return Err("a confirmation of a lease that is not a reservation");
        };
        if lease.number() != number {
            return Err("an end with another token than the lease's");
        }
        if !mutants::on(Mutant::ConfirmForgetsUnits) {
            self.resources.ensure_state(lease.resource).confirmed += u64::from(units);
        }
        self.unlink_lease(slot, EndReason::Released, false);
        Ok(())
    }

    pub(super) fn resize_hold(&mut self, slot: u32, units: u32) -> Result<(), ApplyError> {
        let lease = *self.known(slot)?;
        let Access::Units(before) = lease.access() else {
            return Err("a resize of a lease that is not a reservation");
        };
        let capacity = self.capacity(lease.resource);
        let state = self.resources.ensure_state(lease.resource);
        let used = u64::from(state.used - before) + u64::from(units);
        let oversold = units > before && used + state.confirmed > u64::from(capacity);
        if units == 0 || (oversold && !mutants::on(Mutant::ResizeOversells)) {
            return Err("more units granted than the capacity");
        }
        state.used = used as u32;
        self.leases.at_mut(slot).expect("known").units = units;
        self.schedule_offer(lease.resource);
        Ok(())
    }
}
