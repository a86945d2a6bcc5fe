//! A grant: all that was asked for, or nothing; each at the next number, on record, and then told.

use super::Grantor;
use super::acquire::{Asker, Wish};
use super::table::lease::NONE;
use crate::charter::AfterRevocation;
use crate::command::{Answer, Event, Grant, Terms};
use crate::ids::LeaseId;
use crate::lease::{Access, Reason};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::{Granted, Record};
use crate::refusal::Refusal;
use crate::token::Number;

/// Everything about a lease to be granted but its number and place.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub resource: &'a str,
    pub session: u32,
    pub holder: &'a str,
    pub access: Access,
    pub ttl: u32,
    pub priority: u8,
    pub max_hold: Option<u64>,
    pub progress: Option<u64>,
    pub metadata: &'a [u8],
}

impl Grantor {
    pub(super) fn grant_all(
        &mut self,
        asker: &Asker<'_>,
        wish: &Wish<'_>,
        terms: &Terms<'_>,
    ) -> Result<Answer, Refusal> {
        // All or none: the numbers are there, or nothing is recorded.
        let last = self.next_number()?.get().checked_add(wish.asks.len() as u64 - 1);
        last.and_then(Number::new).ok_or(Refusal::TokensExhausted)?;
        self.give_capacity(wish);
        let mut grants = Vec::new();
        for (name, access) in wish.asks {
            let (max_hold, progress) = self.bounds_of(name, terms.max_hold_ms, terms.progress_ms);
            let wanted = Wanted {
                resource: name,
                session: if asker.waits_only { NONE } else { asker.session },
                holder: asker.holder,
                access: *access,
                ttl: wish.ttl,
                priority: terms.priority,
                max_hold,
                progress,
                metadata: terms.metadata,
            };
            let slot = self.grant(&wanted, None, None);
            self.hold_grew(self.table.lease(slot).party);
            if !wish.several {
                return Ok(Answer::Granted(self.grant_now(slot)));
            }
            grants.push(self.grant_now(slot));
        }
        Ok(Answer::GrantedAll(grants.into()))
    }

    /// Who holds more while it waits may inherit more, and may have closed a cycle.
    pub(super) fn hold_grew(&mut self, party: u32) {
        if !self.table.parties[party].waits.is_empty() {
            self.raises.push_back(party);
            self.settle_priorities(limits::EDGES_PER_STEP);
            self.cycles.suspect(party);
        }
    }

    /// The tighter of what is asked for and what the charter says.
    pub(super) fn bounds_of(
        &self,
        name: &str,
        max_hold: Option<u64>,
        progress: Option<u64>,
    ) -> (Option<u64>, Option<u64>) {
        let Some(charter) = self.table.charter(name) else {
            return (max_hold, progress);
        };
        let tighter = |asked: Option<u64>, rule: Option<u64>| match (asked, rule) {
            (Some(asked), Some(rule)) => Some(asked.min(rule)),
            (asked, rule) => asked.or(rule),
        };
        (tighter(max_hold, charter.max_hold_ms), tighter(progress, charter.progress_window()))
    }

    /// Puts a grant on record and tells those who watch. The caller has made sure that it fits.
    pub(super) fn grant(&mut self, wanted: &Wanted<'_>, waiter: Option<u32>, overlaps: Option<u32>) -> u32 {
        let number = self.next_number().expect("the caller asked for the last number needed");
        let (slot, reuse) = self.table.leases.next_place();
        let lease = LeaseId { slot, reuse };
        let own_slot = match (wanted.access, overlaps) {
            (_, Some(predecessor)) => self.table.lease(predecessor).slot(),
            (Access::Slot, None) => {
                let resource = self.table.resources.find(wanted.resource);
                resource.and_then(|at| self.table.resources.crowd(at)).map_or(0, |crowd| crowd.free_slot())
            }
            _ => 0,
        };
        self.record(&Record::Granted(Granted {
            lease,
            number,
            resource: wanted.resource,
            session: (wanted.session != NONE).then_some(wanted.session),
            holder: wanted.holder,
            access: wanted.access,
            slot: own_slot,
            ttl: wanted.ttl,
            priority: wanted.priority,
            waiter,
            overlaps,
            max_hold: wanted.max_hold,
            progress: wanted.progress,
            metadata: wanted.metadata,
        }));
        if self.watched {
            self.notify(None, Event::Granted { lease, number });
        }
        slot
    }

    /// A grant as its holder is told.
    pub(super) fn grant_now(&self, slot: u32) -> Grant {
        let lease = self.table.lease(slot);
        let current = self.current_now(slot);
        let ttl_ms = if lease.rides() {
            let session = self.table.parties[lease.party].session;
            u64::from(self.table.session(session).term.ttl)
        } else {
            u64::from(lease.term.ttl)
        };
        Grant {
            lease: self.table.lease_id(slot),
            number: lease.number(),
            reach: lease.reach(),
            ttl_ms,
            remaining_ms: current.remaining_ms,
            rung: self.rung,
            drain_ms: self.drain_period(self.table.resources.name(lease.resource)),
            overlaps_ms: current.overlaps_ms,
            depth: 1 + self.table.extra(slot).map_or(0, |extra| extra.depth),
            rotates: self.rotates(slot),
        }
    }

    /// A quarantine stops grants and nothing else.
    pub(super) fn check_quarantine(&self) -> Result<(), Refusal> {
        match self.table.quarantine {
            Some(quarantine) if quarantine.until > self.now() && !mutants::on(Mutant::NoQuarantine) => {
                let remaining = self.now().until(quarantine.until);
                Err(Refusal::Quarantined { remaining, rolled_back: quarantine.rolled_back })
            }
            _ => Ok(()),
        }
    }

    /// Whether a revoked resource is left to an operator: for revocations by authority, if the charter says so.
    pub(super) fn held_for_operator(&self, slot: u32, reason: Reason) -> bool {
        matches!(reason, Reason::Operator | Reason::Policy) && {
            let name = self.table.resources.name(self.table.lease(slot).resource);
            let rule = self.table.charter(name).map(|charter| charter.after_revocation);
            rule == Some(AfterRevocation::HoldForOperator)
        }
    }
}
