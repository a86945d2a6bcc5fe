//! What a run met, so that all runs together can show that they met everything.

use leasehold_core::coverage::Fact;
use leasehold_core::lease::{Access, Reason};
use leasehold_core::record::Record;

use super::model::Wait;
use super::world::World;

impl World {
    /// Counts what a turn brought, so that a run can show what it met.
    pub fn look_at(&mut self, records: &[Record<'_>]) {
        for record in records {
            let what = match record {
                Record::Stalled { .. } => "a stall",
                Record::RolledBack { .. } => "a shown token proved a rollback",
                Record::SessionEnded { reason: Reason::Ttl, .. } => "a session ran out",
                Record::SessionEnded { .. } => Reason::Session.word(),
                Record::SessionAlive { .. } => "a session was heard again",
                Record::Alive { .. } => "a first renewal of a tenure",
                Record::Retimed { .. } => "a new ttl",
                Record::Granted(granted) if granted.overlaps.is_some() => "an overlap",
                Record::Granted(granted) if granted.waiter.is_some() => "a grant after a wait",
                Record::Depth { .. } => "a hold entered again",
                Record::Ended { hold: true, .. } => "a hold for an operator",
                Record::Ended { reason, .. } => reason.word(),
                Record::Rotated { .. } => "a rotated token",
                Record::Progressed { .. } => "progress on record",
                Record::WaitEnded { why, .. } => why.code(),
                Record::Draining { .. } => "a notice to go",
                Record::DrainDropped { .. } => "a pre-emption taken back",
                Record::HoldConfirmed { .. } => "a confirmed hold",
                Record::HoldResized { .. } => "a resized hold",
                Record::Vetoed { .. } => "a veto",
                Record::Pinned { .. } => "a pin",
                Record::Floor { .. } => "a collection",
                Record::Freed { .. } => "a hold freed",
                Record::QuarantineWaived { .. } => "a quarantine waived",
                Record::Coverage(Fact::Reported { .. }) => "a target that reported",
                Record::Coverage(Fact::Zombie { .. }) => "a zombie",
                Record::Coverage(Fact::Forgotten { .. }) => "a target forgotten",
                Record::Deadlocked { policy, .. } => {
                    ["a deadlock reported", "a deadlock refused", "a deadlock revoked"][usize::from(*policy).min(2)]
                }
                _ => continue,
            };
            self.see(what);
        }
        if self.spec.waits.iter().any(|wait| wait.passes) {
            self.see("a wait may pass");
        }
        if self.spec.waits.iter().any(|wait| wait.several) {
            self.see("a wait for several resources");
        }
        if self.spec.waits.iter().any(|wait| !self.spec.is_heard(wait)) {
            self.see("a wait that was not heard yet");
        }
        let mut waits = self.spec.waits.iter();
        if waits.any(|wait| {
            let theirs = |other: &&Wait| other.actor.session == wait.actor.session && other.actor != wait.actor;
            self.spec.waits.iter().any(|other| theirs(&other))
        }) {
            self.see("a wait by several actors of one session");
        }
        for i in self.spec.live() {
            let lease = &self.spec.leases[i];
            let what = match lease.access {
                Access::Exclusive => "exclusive",
                Access::Shared => "shared",
                Access::Slot => "slot",
                Access::Units(_) => "units",
            };
            let over = self.spec.used(lease.resource) > u64::from(self.spec.capacity(lease.resource));
            self.see(what);
            if over && what != "exclusive" && what != "shared" {
                self.see("more units used than there are");
            }
        }
        let effective = self.spec.effective();
        if self.spec.waits.iter().any(|wait| effective[&wait.order] > wait.priority) {
            self.see("an inherited priority");
        }
    }
}
