//! What fences report, as one would keep it on a whiteboard: one row for each place.

use leasehold_core::command::Answer;
use leasehold_core::coverage::{Mode, Report};
use leasehold_core::refusal::{Refusal, What};
use leasehold_core::token::{Cluster, TokenError};

use super::asks::{Said, invalid, token};
use super::identity;
use super::model::{Name, Spec};

/// A place of a target: resource, target, slot.
pub type Place = (Name, Name, u32);

/// What is kept of it: its mode, how many zombies it refused, and the last of them with its mark and its holder.
pub type Row = (Mode, u64, Option<(u64, u64, String)>);

impl Spec {
    pub fn report(&mut self, cluster: Cluster, reports: &[Report<'static>]) -> Said {
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
            self.shown(&token(highest.get(), self.incarnation, true))?;
        }
        for report in reports {
            let place = (report.resource, report.target, report.slot);
            let holder = report.zombie.map(|zombie| {
                let of = |lease: &&super::model::Lease| {
                    lease.number == zombie.presented.get() && lease.resource == report.resource
                };
                self.leases.iter().find(of).map_or(zombie.holder, |lease| lease.actor.holder).to_owned()
            });
            let row = self.targets.entry(place).or_insert((report.mode, 0, None));
            row.0 = report.mode;
            if let Some((zombie, holder)) = report.zombie.zip(holder) {
                row.1 += zombie.times;
                row.2 = Some((zombie.presented.get(), zombie.mark.get(), holder));
                self.turn.zombies.push((report.target, zombie.presented.get()));
            }
        }
        Ok(Answer::Done)
    }

    pub fn forget(&mut self, resource: Name, target: Name) -> Said {
        let before = self.targets.len();
        self.targets.retain(|(of, name, _), _| (*of, *name) != (resource, target));
        if self.targets.len() == before { Err(Refusal::NotFound(What::Target)) } else { Ok(Answer::Done) }
    }
}
