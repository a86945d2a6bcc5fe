//! Fence reports: one row per slot of a target.

use leasehold_core::command::Answer;
use leasehold_core::coverage::{FenceMode, FenceReport};
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::token::{Cluster, TokenError};

use super::command_effects::{SpecResult, invalid, token};
use super::identity;
use super::model::{Name, Spec};

/// A slot of a target: resource, target, slot.
pub type FenceSlot = (Name, Name, u32);

/// Its mode, the number of refused zombies, and the last zombie with number, mark and holder.
pub type FenceRow = (FenceMode, u64, Option<(u64, u64, String)>);

impl Spec {
    pub fn report(&mut self, cluster: Cluster, reports: &[FenceReport<'static>]) -> SpecResult {
        if cluster != identity::CLUSTER {
            return Err(Refusal::Token(TokenError::WrongCluster));
        }
        for report in reports {
            if report.refusals > report.checks {
                return Err(invalid("refusals"));
            }
            if report.zombie.is_some_and(|zombie| zombie.presented >= zombie.mark) {
                return Err(invalid("presented"));
            }
        }
        let numbers = reports.iter().flat_map(|report| [report.highest, report.zombie.map(|zombie| zombie.mark)]);
        if let Some(highest) = numbers.flatten().max() {
            self.observe_mark(highest)?;
        }
        for zombie in reports.iter().filter_map(|report| report.zombie) {
            self.observe_token(&token(zombie.presented.get(), self.incarnation, true))?;
        }
        for report in reports {
            let key = (report.resource, report.target, report.slot);
            let holder = report.zombie.map(|zombie| {
                let of = |lease: &&super::model::Lease| {
                    lease.number == zombie.presented.get() && lease.resource == report.resource
                };
                self.leases.iter().find(of).map_or(zombie.holder, |lease| lease.actor.holder).to_owned()
            });
            let row = self.targets.entry(key).or_insert((report.mode, 0, None));
            row.0 = report.mode;
            if let Some((zombie, holder)) = report.zombie.zip(holder) {
                row.1 += zombie.times;
                row.2 = Some((zombie.presented.get(), zombie.mark.get(), holder));
                self.turn.zombies.push((report.target, zombie.presented.get()));
            }
        }
        Ok(Answer::Done)
    }

    pub fn forget(&mut self, resource: Name, target: Name) -> SpecResult {
        let before = self.targets.len();
        self.targets.retain(|(of, name, _), _| (*of, *name) != (resource, target));
        if self.targets.len() == before { Err(Refusal::NotFound(RefusalSubject::Target)) } else { Ok(Answer::Done) }
    }
}
