//! Effects of time. Where the grantor has a choice (which resource it serves first, which cycle it reports), the spec
//! takes the choice from the journal and checks that it was allowed. When no work is left over, it checks that nothing
//! was missed.

use leasehold_core::charter::OnDeadlock;
use leasehold_core::lease::EndReason;
use leasehold_core::record::Record;
use leasehold_core::refusal::Refusal;

use super::deadlock_oracle::Queues;
use super::model::{Actor, Cause, Spec, Wait};

impl Spec {
    /// Assigns the journal's numbers to the waits that started in this turn.
    pub fn assign_wait_slots(&mut self, records: &[Record<'_>]) -> Result<(), String> {
        let slots: Vec<u32> = records
            .iter()
            .filter_map(|record| match record {
                Record::Waiting(waiting) => Some(waiting.waiter),
                _ => None,
            })
            .collect();
        if slots.len() != self.turn.new_waits.len() {
            return Err(format!("{} waits started, {} are recorded", self.turn.new_waits.len(), slots.len()));
        }
        for (order, slot) in self.turn.new_waits.clone().into_iter().zip(slots) {
            if let Some(wait) = self.waits.iter_mut().find(|wait| wait.order == order) {
                wait.slot = Some(slot);
            }
        }
        Ok(())
    }

    pub fn tick(&mut self, records: &[Record<'_>]) -> Result<(), String> {
        let decided = self.turn.granted.len();
        let chosen: Vec<u32> = records
            .iter()
            .filter_map(|record| match record {
                Record::Granted(granted) if granted.number.get() > self.counter => Some(granted.waiter),
                _ => None,
            })
            .collect::<Option<_>>()
            .ok_or("a tick granted something without a waiter")?;
        while let Some(order) = self.waits.iter().find(|wait| wait.until <= self.now).map(|wait| wait.order) {
            self.end_wait(order, &Refusal::Timeout);
        }
        let over = |spec: &Self, slot: &usize| {
            let session = &spec.sessions[*slot];
            !session.ended && spec.deadline(&session.lifetime) <= spec.now
        };
        while let Some(slot) = (0..self.sessions.len()).find(|slot| over(self, slot)) {
            self.end_session(slot as u32);
        }
        self.end_leases(&chosen);
        let mut granted = self.turn.granted.len() - decided;
        while granted < chosen.len() {
            let Some(wait) = self.by_slot(chosen[granted]).cloned() else {
                return Err(format!("an ended wait was granted (W3): slot {}", chosen[granted]));
            };
            if !self.is_next(&wait) {
                return Err(format!("a wait was granted out of order: {wait:?}"));
            }
            granted += wait.resources.len();
            self.grant_wait(wait.order, None);
        }
        self.allow_passing();
        self.deadlocks(records)?;
        self.allow_passing();
        Ok(())
    }

    /// A wait that only queue order blocks may overtake, if others wait for what its actor holds and no other
    /// overtaking would free it (W4). No wait needs to stay behind an unresolved deadlock.
    fn allow_passing(&mut self) {
        let (stuck, deadlocked) = (self.stuck(Queues::CountForAll), self.stuck(Queues::Ignored));
        let blockers = self.blockers_among(&stuck);
        let needed = |actor: &&Actor| !deadlocked.is_empty() || blockers.contains(actor);
        for actor in stuck.difference(&deadlocked).filter(needed) {
            self.waits.iter_mut().filter(|wait| wait.actor == *actor).for_each(|wait| wait.may_pass = true);
        }
    }

    fn by_slot(&self, slot: u32) -> Option<&Wait> {
        self.waits.iter().find(|wait| wait.slot == Some(slot))
    }

    /// Ends leases in the order of their deadlines. Among simultaneous ones, the grantor chooses the order: those
    /// whose named successors were granted first come first.
    fn end_leases(&mut self, chosen: &[u32]) {
        loop {
            let due = self.live().into_iter().filter(|i| self.lease_deadline(&self.leases[*i]).0 <= self.now);
            let next = due.min_by_key(|i| {
                let lease = &self.leases[*i];
                let successor = match lease.drain.map(|drain| drain.cause) {
                    Some(Cause::HandOff(_, to)) => self.successor(lease.resource, to, lease.access),
                    _ => None,
                };
                let slot = successor.and_then(|order| self.wait(order).slot);
                let granted = slot.and_then(|slot| chosen.iter().position(|other| *other == slot));
                (self.lease_deadline(lease).0, granted.unwrap_or(usize::MAX), *i)
            });
            let Some(i) = next else {
                return;
            };
            match self.lease_deadline(&self.leases[i]).1 {
                EndReason::HandedOff => self.end_drained(i),
                reason => self.end_lease(i, reason),
            }
        }
    }

    /// Checks D1 and D3 for every deadlock that the turn recorded.
    fn deadlocks(&mut self, records: &[Record<'_>]) -> Result<(), String> {
        let mut rest = records.iter();
        while let Some(record) = rest.next() {
            let Record::Deadlocked { cycle, policy, .. } = record else {
                continue;
            };
            self.deadlocks += 1;
            if *policy == OnDeadlock::Report.code() {
                self.is_cycle(cycle, None)?;
                continue;
            }
            if *policy == OnDeadlock::Revoke.code() {
                self.is_cycle(cycle, None)?;
                let ended = rest.clone().take_while(|record| matches!(record, Record::Ended { .. }));
                let mut holders = std::collections::BTreeSet::new();
                for record in ended {
                    if let Record::Ended { lease, reason: EndReason::Deadlock, .. } = record {
                        holders.insert(self.leases[*lease as usize].actor);
                        self.end_lease(*lease as usize, EndReason::Deadlock);
                    }
                }
                if holders.len() != 1 {
                    return Err(format!("{} victims of one deadlock (D3)", holders.len()));
                }
                continue;
            }
            let Some(Record::WaitEnded { waiter, refusal: Refusal::Deadlock(refused) }) = rest.next() else {
                return Err("a deadlock has no victim (D3)".to_owned());
            };
            let order = self.by_slot(*waiter).ok_or("an ended wait is the victim of a deadlock")?.order;
            if **refused != *cycle {
                return Err("the victim received another cycle (D3)".to_owned());
            }
            self.is_cycle(cycle, Some(order))?;
            self.end_wait(order, &Refusal::Deadlock(refused.clone()));
        }
        let refused =
            records.iter().filter(|record| matches!(record, Record::WaitEnded { refusal: Refusal::Deadlock(_), .. }));
        let found = records.iter().filter(|record| match record {
            Record::Deadlocked { policy, .. } => *policy == OnDeadlock::RefuseWait.code(),
            _ => false,
        });
        if refused.count() != found.count() {
            return Err("more waits were refused than deadlocks found (D3)".to_owned());
        }
        Ok(())
    }

    /// With no work left over, no grantable wait remains (W2), and no deadlock remains unless it is only reported
    /// (D2).
    pub fn check_settled(&self) -> Result<(), String> {
        if let Some(wait) = self.waits.iter().find(|wait| self.is_next(&Wait { may_pass: false, ..(*wait).clone() })) {
            return Err(format!("a wait that could be granted was not (W2): {wait:?}"));
        }
        let stuck = self.stuck(Queues::Ignored);
        // Behind a deadlock that is only reported, queue positions count, and a wait for several resources may have
        // another way out.
        let alone = |wait: &&Wait| self.waits.iter().filter(|other| other.actor == wait.actor).count() == 1;
        let passing = self.waits.iter().filter(|wait| stuck.is_empty() && wait.may_pass && self.is_next(wait));
        for wait in passing.filter(alone) {
            let mut without = self.clone();
            without.waits.iter_mut().filter(|other| other.actor == wait.actor).for_each(|other| other.may_pass = false);
            if without.stuck(Queues::Count).contains(&wait.actor) {
                return Err(format!("only queue order blocks a wait, and it may not overtake (W2): {wait:?}"));
            }
        }
        let reports =
            |wait: &&Wait| wait.resources.iter().any(|(name, _)| self.charter(name).deadlock == OnDeadlock::Report);
        // A deadlock that is only reported may hide others of the same actors.
        let reported = self.waits.iter().filter(|wait| stuck.contains(&wait.actor)).any(|wait| reports(&wait));
        let only_reported = reported && self.deadlocks > 0;
        if !stuck.is_empty() && !only_reported {
            return Err(format!("an undetected deadlock remains (D2): {stuck:?}"));
        }
        let live: u64 = self
            .live()
            .iter()
            .map(|i| match self.leases[*i].access {
                leasehold_core::lease::Access::Units(units) => u64::from(units),
                _ => 0,
            })
            .sum();
        if self.units.reserved != self.units.confirmed + self.units.released + live {
            return Err("the spec itself lost units (C2)".to_owned());
        }
        Ok(())
    }
}
