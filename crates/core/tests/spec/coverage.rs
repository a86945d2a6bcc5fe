//! Coverage of a run: the situations it reached.

use leasehold_core::coverage::CoverageRecord;
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::record::Record;

use super::model::Wait;
use super::runner::Runner;

impl Runner {
    /// Counts the situations that a turn reached.
    pub fn count_turn(&mut self, records: &[Record<'_>]) {
        for record in records {
            let what = match record {
                Record::Stalled { .. } => "a stall",
                Record::RolledBack { .. } => "a presented token revealed a rollback",
                Record::SessionEnded { reason: EndReason::Ttl, .. } => "an expired session",
                Record::SessionEnded { .. } => EndReason::Session.word(),
                Record::SessionAlive { .. } => "a session was renewed again",
                Record::Alive { .. } => "a first renewal of a tenure",
                Record::Retimed { .. } => "a new ttl",
                Record::Granted(granted) if granted.overlaps.is_some() => "an overlap",
                Record::Granted(granted) if granted.waiter.is_some() => "a grant after a wait",
                Record::Depth { .. } => "a reentrant grant",
                Record::Ended { hold: true, .. } => "a resource reserved for an operator",
                Record::Ended { reason, .. } => reason.word(),
                Record::Rotated { .. } => "a rotated token",
                Record::Progressed { .. } => "recorded progress",
                Record::WaitEnded { refusal, .. } => refusal.code(),
                Record::Draining { .. } => "a drain notice",
                Record::DrainDropped { .. } => "a canceled preemption",
                Record::HoldConfirmed { .. } => "a confirmed reservation",
                Record::HoldResized { .. } => "a resized reservation",
                Record::Vetoed { .. } => "a veto",
                Record::Pinned { .. } => "a pin",
                Record::Floor { .. } => "a collection",
                Record::Freed { .. } => "a reserved resource freed",
                Record::QuarantineWaived { .. } => "a quarantine waived",
                Record::Coverage(CoverageRecord::Reported { .. }) => "a target that reported",
                Record::Coverage(CoverageRecord::Zombie { .. }) => "a zombie",
                Record::Coverage(CoverageRecord::Forgotten { .. }) => "a target forgotten",
                Record::Deadlocked { policy, .. } => {
                    ["a deadlock reported", "a deadlock refused", "a deadlock revoked"][usize::from(*policy).min(2)]
                }
                _ => continue,
            };
            self.count(what);
        }
        if self.spec.turn.lost_below_counter {
            self.count("a lost token below the counter");
        }
        if self.spec.waits.iter().any(|wait| wait.may_pass) {
            self.count("a wait may overtake");
        }
        if self.spec.waits.iter().any(|wait| wait.atomic) {
            self.count("a wait for several resources");
        }
        if self.spec.waits.iter().any(|wait| !self.spec.is_confirmed(wait)) {
            self.count("a wait of a session that is not renewed yet");
        }
        let mut waits = self.spec.waits.iter();
        if waits.any(|wait| {
            let theirs = |other: &&Wait| other.actor.session == wait.actor.session && other.actor != wait.actor;
            self.spec.waits.iter().any(|other| theirs(&other))
        }) {
            self.count("a wait by several actors of one session");
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
            self.count(what);
            if over && what != "exclusive" && what != "shared" {
                self.count("more units used than the capacity");
            }
        }
        let effective = self.spec.effective();
        if self.spec.waits.iter().any(|wait| effective[&wait.order] > wait.priority) {
            self.count("an inherited priority");
        }
    }
}
