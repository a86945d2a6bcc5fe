//! Held leases, free capacity and ends of leases, recomputed from the lists.

use leasehold_core::charter::{AfterRevocation, Charter, TokenOnRenewal};
use leasehold_core::command::{Answer, CurrentLease, Grant};
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::refusal::{Cycle, CycleMember, Refusal};

use super::charters;
use super::model::{Actor, Drain, Lease, Name, ResourceSettings, Spec, lease_id, number, scope, units};

impl Spec {
    /// Indexes of all held leases.
    pub fn live(&self) -> Vec<usize> {
        (0..self.leases.len()).filter(|i| self.leases[*i].end.is_none()).collect()
    }

    pub fn live_on(&self, resource: &str) -> Vec<usize> {
        self.live().into_iter().filter(|i| self.leases[*i].resource == resource).collect()
    }

    /// Leases that count against the capacity: all except draining predecessors of overlap handoffs.
    pub fn counted_on(&self, resource: &str) -> Vec<&Lease> {
        self.live_on(resource).into_iter().map(|i| &self.leases[i]).filter(|lease| !lease.is_predecessor).collect()
    }

    pub fn leases_in(&self, session: u32) -> Vec<usize> {
        self.live().into_iter().filter(|i| self.leases[*i].actor.session == Some(session)).collect()
    }

    pub fn settings_of(&self, resource: &str) -> ResourceSettings {
        self.settings.get(resource).cloned().unwrap_or_default()
    }

    pub fn charter(&self, resource: &str) -> Charter {
        charters::of(resource).unwrap_or_default()
    }

    pub fn capacity_known(&self, resource: &str) -> Option<u32> {
        self.settings_of(resource).capacity.or(self.charter(resource).capacity)
    }

    pub fn capacity(&self, resource: &str) -> u32 {
        self.capacity_known(resource).unwrap_or(1)
    }

    /// Units in use.
    pub fn used(&self, resource: &str) -> u64 {
        self.counted_on(resource).into_iter().map(|lease| units(lease.access)).sum()
    }

    /// Whether an access fits now (L1, C1).
    pub fn fits(&self, resource: &str, access: Access) -> bool {
        let leases = self.counted_on(resource);
        let all = |kinds: &[Access]| leases.iter().all(|lease| kinds.contains(&lease.access));
        let settings = self.settings_of(resource);
        if settings.for_operator {
            return false;
        }
        let capacity = u64::from(self.capacity(resource));
        match access {
            Access::Exclusive => leases.is_empty(),
            Access::Shared => all(&[Access::Shared]),
            Access::Slot | Access::Units(_) => {
                let whole = leases.iter().any(|lease| units(lease.access) == 0);
                let slot_left = access != Access::Slot || u64::from(self.free_slot(resource)) < capacity;
                !whole && slot_left && self.used(resource) + settings.confirmed + units(access) <= capacity
            }
        }
    }

    pub fn free_slot(&self, resource: &str) -> u32 {
        let leases = self.counted_on(resource);
        let taken = |slot| leases.iter().any(|lease| lease.access == Access::Slot && lease.slot == slot);
        (0..).find(|slot| !taken(*slot)).expect("some slot is free")
    }

    /// Whether the resource has leases, waits or settings.
    pub fn is_known(&self, resource: &str) -> bool {
        !self.live_on(resource).is_empty() || self.is_waited_for(resource) || self.settings.contains_key(resource)
    }

    pub fn is_waited_for(&self, resource: &str) -> bool {
        self.waits.iter().any(|wait| wait.resources.iter().any(|(name, _)| *name == resource))
    }

    /// Forgets implicit settings of resources that have no leases and waits.
    pub fn forget_unused(&mut self) {
        let unused: Vec<Name> = self
            .settings
            .iter()
            .filter(|(name, settings)| {
                !settings.has_settings() && self.live_on(name).is_empty() && !self.is_waited_for(name)
            })
            .map(|(name, _)| *name)
            .collect();
        for name in unused {
            self.settings.remove(name);
        }
    }

    pub fn check_quarantine(&self) -> Result<(), Refusal> {
        match self.quarantine {
            Some((until, rolled_back)) if until > self.now => {
                Err(Refusal::Quarantined { remaining: until - self.now, rolled_back })
            }
            _ => Ok(()),
        }
    }

    pub fn reply(&mut self, tag: u64, answer: Answer) {
        self.turn.answers.entry(tag).or_default().push(answer);
    }

    /// Ends a lease. After a revocation the resource may be reserved for an operator.
    pub fn end_lease(&mut self, i: usize, reason: EndReason) {
        let resource = self.leases[i].resource;
        let authority = matches!(reason, EndReason::Operator | EndReason::Policy);
        if authority && self.charter(resource).after_revocation == AfterRevocation::HoldForOperator {
            self.settings.entry(resource).or_default().for_operator = true;
        }
        self.end_without_hold(i, reason);
    }

    /// Ends a lease without reserving the resource for an operator.
    pub fn end_without_hold(&mut self, i: usize, reason: EndReason) {
        let lease = &mut self.leases[i];
        // Whether a wait must overtake is decided again.
        let waits = self.waits.iter_mut().filter(|wait| wait.actor == lease.actor);
        waits.for_each(|wait| wait.may_pass = false);
        lease.end = Some(reason);
        self.turn.ended.insert((i as u32, lease.number, reason.code()));
        if let Access::Units(units) = lease.access {
            self.units.released += u64::from(units);
        }
        for other in &mut self.leases {
            if other.predecessor == Some(i) {
                other.predecessor = None;
            }
        }
        self.forget_unused();
    }

    /// The current lease as reported to its holder.
    pub fn current_lease(&self, i: usize) -> CurrentLease {
        let lease = &self.leases[i];
        let left = |drain: Option<Drain>| drain.map(|drain| drain.until.saturating_sub(self.now));
        CurrentLease {
            number: number(lease.number),
            remaining_ms: self.remaining(lease),
            drain_ms: left(lease.drain),
            overlaps_ms: lease.predecessor.map(|before| left(self.leases[before].drain).unwrap_or(0)),
        }
    }

    pub fn grant_of(&self, i: usize) -> Grant {
        let lease = &self.leases[i];
        let current = self.current_lease(i);
        let ttl_ms = match lease.actor.session {
            Some(session) if lease.follows_session => self.sessions[session as usize].lifetime.ttl,
            _ => lease.lifetime.ttl,
        };
        Grant {
            lease: lease_id(i),
            number: current.number,
            scope: scope(lease),
            ttl_ms,
            remaining_ms: current.remaining_ms,
            validity: Validity::Session,
            drain_ms: self.charter(lease.resource).handoff.unwrap_or_default().drain_ms,
            overlaps_ms: current.overlaps_ms,
            depth: 1 + lease.depth,
            rotates: self.charter(lease.resource).token_on_renewal == TokenOnRenewal::Rotate,
        }
    }

    /// A deadlock of one actor, which requests what only it could release.
    pub fn self_deadlock(&self, actor: Actor, resource: Name) -> Refusal {
        let member = CycleMember { holder: actor.holder.to_owned(), waits_for: resource.to_owned() };
        Refusal::Deadlock(Box::new(Cycle { members: vec![member], length: 1 }))
    }
}
