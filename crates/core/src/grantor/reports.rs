//! What fences tell the grantor: which targets check, and which zombies they refused (F6).

use std::collections::BTreeSet;

use super::Grantor;
use super::table::lease::NONE;
use crate::command::{Answer, Event};
use crate::coverage::{Checked, Coverage, Fact, Report, TargetView, Zombie, check_target, holes};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{HolderName, Name};
use crate::record::Record;
use crate::refusal::{Limit, Refusal, What};
use crate::time::Wall;
use crate::token::{Cluster, Number, Reach, Token, TokenError};

impl Grantor {
    /// All of a batch is taken in, or nothing. Only what is new goes on record: a target, its mode, a zombie.
    pub(super) fn report(&mut self, cluster: Cluster, reports: &[Report<'_>]) -> Result<Answer, Refusal> {
        // Fences of another cluster keep other numbers, which mean nothing here (T6).
        if self.table.identity.is_none_or(|identity| identity.cluster != cluster) {
            return Err(Refusal::Token(TokenError::WrongCluster));
        }
        let (max, got) = (limits::REPORTS as u64, reports.len() as u64);
        if got > max {
            return Err(Refusal::Exhausted { limit: Limit::Reports, max, got });
        }
        reports.iter().try_for_each(check)?;
        let place = |report: &Report<'_>| (report.resource.to_owned(), report.target.to_owned(), report.slot);
        let is_new =
            |report: &&Report<'_>| self.table.coverage.get(report.resource, report.target, report.slot).is_none();
        let new: BTreeSet<_> = reports.iter().filter(is_new).map(place).collect();
        self.table.coverage.has_room(new.len())?;
        let highest = reports.iter().flat_map(|report| [report.highest, report.zombie.map(|zombie| zombie.mark)]);
        if let Some(highest) = highest.flatten().max() {
            self.shown(&self.as_token(highest))?;
        }
        for report in reports {
            self.take_in(report);
        }
        Ok(Answer::Done)
    }

    fn take_in(&mut self, report: &Report<'_>) {
        let Report { resource, slot, target, mode, .. } = *report;
        if self.table.coverage.get(resource, target, slot).is_none_or(|seen| seen.mode != mode) {
            let fact = Fact::Reported { resource: resource.into(), slot, target: target.into(), mode };
            self.record(&Record::Coverage(fact));
        }
        let at = Wall(self.table.wall.0.saturating_sub(report.checked_ago_ms));
        let places = self.checked.entry(resource.into()).or_default();
        let none = Checked { checks: 0, refusals: 0, last: Wall(0) };
        let counted = places.entry((target.into(), slot)).or_insert(none);
        counted.checks = counted.checks.saturating_add(report.checks);
        counted.refusals = counted.refusals.saturating_add(report.refusals);
        counted.last = counted.last.max(at);
        if let Some(refused) = report.zombie
            && !mutants::on(Mutant::ZombieNotTold)
        {
            let known = self.holder_of(resource, refused.presented);
            let holder = known.unwrap_or_else(|| refused.holder.to_owned());
            let (presented, mark, times) = (refused.presented, refused.mark, refused.times);
            self.record(&Record::Coverage(Fact::Zombie {
                resource: resource.into(),
                slot,
                target: target.into(),
                presented,
                mark,
                times,
                holder: holder.as_str().into(),
            }));
            let (resource, target) = (resource.to_owned(), target.to_owned());
            let zombie = Zombie { resource, slot, target, holder, presented, mark, times };
            self.notify(None, Event::Zombie(Box::new(zombie)));
        }
    }

    /// Who was granted this number on a resource, while it is remembered.
    fn holder_of(&self, resource: &str, number: Number) -> Option<String> {
        if let Some(end) = self.table.ends.by_number(number.get()) {
            return (end.resource == resource).then_some(end.holder);
        }
        let place = self.table.resources.find(resource)?;
        let sole = self.table.resources.sole(place);
        let crowd = self.table.resources.crowd(place).map_or(&[][..], |crowd| &crowd.leases);
        let mut live = crowd.iter().copied().take(limits::HOLDERS_SOUGHT).chain((sole != NONE).then_some(sole));
        let slot = live.find(|slot| self.table.lease(*slot).number() == number)?;
        Some(self.table.holder_name(self.table.lease(slot).party).to_owned())
    }

    /// A fence keeps numbers, which are of this cluster; whatever life gave them out, the next grants must be above them.
    fn as_token(&self, number: Number) -> Token {
        let identity = self.table.identity.expect("a serving grantor has an identity");
        let (cluster, incarnation) = (identity.cluster, identity.incarnation);
        Token { cluster, incarnation, resource: [0; 8], reach: Reach::Slot(0), number }
    }

    /// An operator says that a target is no more: it would stand there as a hole for ever.
    pub(super) fn forget_target(&mut self, resource: &str, target: &str, why: &str) -> Result<Answer, Refusal> {
        Name::parse(resource)?;
        check_target(target)?;
        if why.len() > limits::REASON_BYTES {
            return Err(Refusal::Invalid { field: "reason", reason: "at most 512 bytes" });
        }
        if !self.table.coverage.of(resource).any(|(name, _, _)| name == target) {
            return Err(Refusal::NotFound(What::Target));
        }
        let fact = Fact::Forgotten { resource: resource.into(), target: target.into(), why: why.into() };
        self.record(&Record::Coverage(fact));
        if let Some(places) = self.checked.get_mut(resource) {
            places.retain(|(name, _), _| **name != *target);
            if places.is_empty() {
                self.checked.remove(resource);
            }
        }
        Ok(Answer::Done)
    }

    /// Every target of a resource, as declared and as reported, with the holes.
    pub fn targets(&self, resource: &str) -> Vec<TargetView> {
        let charter = self.table.charter(resource);
        holes(resource, charter, &self.table.coverage, self.checked.get(resource))
    }

    /// What was reported.
    pub fn coverage(&self) -> &Coverage {
        &self.table.coverage
    }

    /// How many tokens fences checked, as far as they reported since this tenure was opened.
    pub fn checks(&self) -> u64 {
        self.checked.values().flat_map(|places| places.values()).map(|counted| counted.checks).sum()
    }
}

fn check(report: &Report<'_>) -> Result<(), Refusal> {
    Name::parse(report.resource)?;
    check_target(report.target)?;
    if report.refusals > report.checks {
        return Err(Refusal::Invalid { field: "refusals", reason: "at most as many as checks" });
    }
    let Some(zombie) = &report.zombie else {
        return Ok(());
    };
    if zombie.presented >= zombie.mark {
        return Err(Refusal::Invalid { field: "presented", reason: "below the mark, or it was no zombie" });
    }
    if zombie.times == 0 {
        return Err(Refusal::Invalid { field: "times", reason: "at least 1" });
    }
    if !zombie.holder.is_empty() {
        HolderName::parse(zombie.holder)?;
    }
    Ok(())
}
