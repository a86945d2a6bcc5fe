//! Deadlock oracle: repeatedly removes every actor that can still make progress, with its leases. The rest is
//! deadlocked.

use std::collections::BTreeSet;

use leasehold_core::lease::Access;
use leasehold_core::refusal::Cycle;

use super::model::{Actor, Lease, Spec, Wait, units};

/// Whether queue positions count as blocking, or only held leases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    Count,
    /// Positions count even for waits that may overtake.
    CountForAll,
    Ignored,
}

impl Spec {
    /// The actors that no release by another actor can unblock.
    pub fn stuck(&self, queues: Queues) -> BTreeSet<Actor> {
        let mut stuck: BTreeSet<Actor> = self.waits.iter().map(|wait| wait.actor).collect();
        loop {
            let free: Vec<Actor> = stuck
                .iter()
                .copied()
                .filter(|actor| {
                    let mut waits = self.waits.iter().filter(|wait| wait.actor == *actor);
                    waits.any(|wait| self.can_be_satisfied(wait, &stuck, queues))
                })
                .collect();
            if free.is_empty() {
                return stuck;
            }
            stuck.retain(|actor| !free.contains(actor));
        }
    }

    /// Whether a wait could be satisfied if only the stuck actors kept their leases and queue positions.
    fn can_be_satisfied(&self, wait: &Wait, stuck: &BTreeSet<Actor>, queues: Queues) -> bool {
        wait.resources.iter().all(|(resource, access)| {
            let before = self.before(wait, resource);
            let nearest = before.iter().rev().find(|other| other.actor != wait.actor);
            let is_blocked = nearest.is_some_and(|other| stuck.contains(&other.actor));
            let may_pass = wait.may_pass && queues == Queues::Count;
            let in_order = queues == Queues::Ignored || may_pass || !is_blocked;
            in_order && self.is_available(resource, *access, stuck)
        })
    }

    /// The stuck actors whose leases block other stuck actors.
    pub fn blockers_among(&self, stuck: &BTreeSet<Actor>) -> BTreeSet<Actor> {
        let resources = self.waits.iter().filter(|wait| stuck.contains(&wait.actor)).flat_map(|wait| &wait.resources);
        let remaining = resources.filter(|(resource, access)| !self.is_available(resource, *access, stuck));
        remaining.flat_map(|(resource, _)| self.counted_on(resource)).map(|lease| lease.actor).collect()
    }

    fn is_available(&self, resource: &str, access: Access, stuck: &BTreeSet<Actor>) -> bool {
        let remaining: Vec<&Lease> =
            self.counted_on(resource).into_iter().filter(|lease| stuck.contains(&lease.actor)).collect();
        let used: u64 = remaining.iter().map(|lease| units(lease.access)).sum();
        match access {
            Access::Exclusive => remaining.is_empty(),
            Access::Shared => remaining.iter().all(|lease| lease.access == Access::Shared),
            // No actor can release committed units; only an operator can. So they are no deadlock.
            Access::Slot | Access::Units(_) => {
                let enough =
                    used + self.settings_of(resource).confirmed + units(access) <= u64::from(self.capacity(resource));
                remaining.iter().all(|lease| units(lease.access) > 0) && (used == 0 || enough)
            }
        }
    }

    /// Checks a reported cycle: each member is stuck and waits for what the next one holds. The victim's wait has the
    /// lowest own priority and is the youngest among those.
    pub fn is_cycle(&self, cycle: &Cycle, victim: Option<u64>) -> Result<(), String> {
        let stuck = self.stuck(Queues::Ignored);
        let candidates: Vec<Vec<&Wait>> = cycle
            .members
            .iter()
            .map(|member| {
                let waits = self.waits.iter().filter(|wait| stuck.contains(&wait.actor));
                let named = waits.filter(|wait| wait.actor.holder == member.holder);
                named.filter(|wait| wait.access_to(&member.waits_for).is_some()).collect()
            })
            .collect();
        let rank = |wait: &Wait| (wait.priority, std::cmp::Reverse(wait.order));
        let mut chains: Vec<Vec<&Wait>> = vec![Vec::new()];
        for waits in &candidates {
            chains = chains.iter().flat_map(|chain| waits.iter().map(|wait| [&chain[..], &[*wait]].concat())).collect();
            chains.retain(|chain| {
                let new: BTreeSet<Actor> = chain.iter().map(|wait| wait.actor).collect();
                new.len() == chain.len()
            });
        }
        let closes = |chain: &Vec<&Wait>| {
            (0..chain.len()).all(|i| {
                let next = chain[(i + 1) % chain.len()].actor;
                self.counted_on(&cycle.members[i].waits_for).iter().any(|lease| lease.actor == next)
            })
        };
        let real: Vec<&Vec<&Wait>> = chains.iter().filter(|chain| closes(chain)).collect();
        if real.is_empty() || cycle.length != cycle.members.len() as u64 {
            return Err(format!("the reported cycle does not exist: {cycle:?}; stuck: {stuck:?}"));
        }
        let has_victim =
            |chain: &&&Vec<&Wait>| chain.iter().min_by_key(|wait| rank(wait)).map(|wait| wait.order) == victim;
        if victim.is_some() && !real.iter().any(|chain| has_victim(&chain)) {
            return Err(format!("by the rule another member of {cycle:?} is the victim, not wait {victim:?}"));
        }
        Ok(())
    }
}
