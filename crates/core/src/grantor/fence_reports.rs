//! Fence reports: which targets check tokens, and which zombies they refused (F6).

use std::collections::BTreeSet;

use super::Grantor;
use super::operator::check_comment;
use super::rollback_detection::{NumberOrigin, counts_from_anyone};
use super::table::lease::NONE;
use crate::access::{Caller, IdentityUsage, recorded_owner};
use crate::command::{Answer, Request, SessionEvent};
use crate::coverage::{
    CheckCounts, CoverageRecord, CoverageTable, FenceReport, Hole, TargetView, Zombie, check_target, target_views,
};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::name::{HolderName, Name};
use crate::record::Record;
use crate::refusal::{Limit, Refusal, RefusalSubject};
use crate::time::WallClock;
use crate::token::{Cluster, Number, TokenError};

impl Grantor {
    /// Accepts a batch of reports completely or not at all. Records only news: a target, its mode, a zombie.
    ///
    /// What a report says about numbers is evidence of a rollback only from the reporter that the charter of the target names
    /// (A9). Another identity may not report for such a target; for a target without a reporter it may, without that effect.
    pub(super) fn report(
        &mut self,
        request: &Request<'_>,
        cluster: Cluster,
        reports: &[FenceReport<'_>],
    ) -> Result<Answer, Refusal> {
        // Numbers of another cluster's fences mean nothing here (T6).
        if self.table.identity.is_none_or(|identity| identity.cluster != cluster) {
            return Err(Refusal::Token(TokenError::WrongCluster));
        }
        let (max, got) = (limits::REPORTS as u64, reports.len() as u64);
        if got > max {
            return Err(Refusal::Exhausted { limit: Limit::Reports, max, got });
        }
        reports.iter().try_for_each(check)?;
        if mutants::on(Mutant::FullTableHidesRollback) {
            self.check_new_targets(&request.caller, reports)?;
        }
        self.observe_reports(request, reports)?;
        // Only then, because a full table must not hide a rollback.
        self.check_new_targets(&request.caller, reports)?;
        let owner = recorded_owner(&request.caller)?;
        for report in reports {
            self.apply_report(owner, report);
        }
        Ok(Answer::Done)
    }

    /// Processes the numbers of reports as evidence of a rollback.
    fn observe_reports(&mut self, request: &Request<'_>, reports: &[FenceReport<'_>]) -> Result<(), Refusal> {
        let origins: Vec<_> = reports.iter().map(|report| self.origin_of(request, report)).collect();
        // What is no evidence comes first: it has no effect, and may be refused.
        for kind in [NumberOrigin::Unproven, NumberOrigin::Reported(request.caller.principal), NumberOrigin::Proven] {
            let alike = || reports.iter().zip(&origins).filter(|(_, known)| **known == kind).map(|(report, _)| report);
            let highest = alike().flat_map(|report| [report.highest, report.zombie.map(|zombie| zombie.mark)]);
            if let Some(highest) = highest.flatten().max() {
                self.observe_mark(highest, kind)?;
            }
            for zombie in alike().filter_map(|report| report.zombie) {
                self.observe_number(zombie.presented, kind)?;
            }
        }
        Ok(())
    }

    /// What the numbers of a report are: evidence from the reporter that the charter of the target names (A9), or where access is
    /// not restricted.
    fn origin_of<'a>(&self, request: &Request<'a>, report: &FenceReport<'_>) -> NumberOrigin<'a> {
        if counts_from_anyone(request) {
            NumberOrigin::Proven
        } else if self.reporter_of(report) == Some(request.caller.principal) {
            NumberOrigin::Reported(request.caller.principal)
        } else {
            NumberOrigin::Unproven
        }
    }

    /// The reporter that the charter of a target names.
    pub(super) fn reporter_of(&self, report: &FenceReport<'_>) -> Option<&str> {
        let charter = self.table.charter(report.resource)?;
        charter.targets.iter().find(|target| target.name == report.target)?.reporter.as_deref()
    }

    /// Checks that the targets that report for the first time are within the limits.
    fn check_new_targets(&self, caller: &Caller<'_>, reports: &[FenceReport<'_>]) -> Result<(), Refusal> {
        let is_new =
            |report: &&FenceReport<'_>| self.table.coverage.get(report.resource, report.target, report.slot).is_none();
        let new: BTreeSet<_> =
            reports.iter().filter(is_new).map(|report| (report.resource, report.target, report.slot)).collect();
        self.table.coverage.check_capacity(new.len())?;
        if mutants::on(Mutant::TargetsNotCounted) {
            return Ok(());
        }
        self.check_identity_limits(caller, IdentityUsage::of_targets(new.len()))
    }

    fn apply_report(&mut self, reporter: Option<&str>, report: &FenceReport<'_>) {
        let FenceReport { resource, slot, target, mode, .. } = *report;
        let known = self.table.coverage.get(resource, target, slot).map(|status| status.mode);
        if known != Some(mode) {
            let owner = reporter.filter(|_| known.is_none()).map(Into::into);
            let (resource, target) = (resource.into(), target.into());
            self.record(&Record::Coverage(CoverageRecord::Reported { resource, slot, target, mode, owner }));
        }
        let at = WallClock(self.table.wall.0.saturating_sub(report.checked_ago_ms));
        let slots = self.check_counts.entry(resource.into()).or_default();
        let none = CheckCounts { checks: 0, refusals: 0, last: WallClock(0) };
        let counted = slots.entry((target.into(), slot)).or_insert(none);
        let before = counted.checks;
        counted.checks = counted.checks.saturating_add(report.checks);
        self.total_checks += u128::from(counted.checks - before);
        counted.refusals = counted.refusals.saturating_add(report.refusals);
        counted.last = counted.last.max(at);
        if let Some(refused) = report.zombie
            && !mutants::on(Mutant::ZombieNotReported)
        {
            let known = self.holder_of(resource, refused.presented);
            let holder = known.unwrap_or_else(|| refused.holder.to_owned());
            let (presented, mark, times) = (refused.presented, refused.mark, refused.times);
            self.record(&Record::Coverage(CoverageRecord::Zombie {
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
            self.notify(None, SessionEvent::Zombie(Box::new(zombie)));
        }
    }

    /// The holder that was granted this number on a resource, while it is known.
    fn holder_of(&self, resource: &str, number: Number) -> Option<String> {
        if let Some(end) = self.table.ended_leases.by_number(number.get()) {
            return (end.resource == resource).then_some(end.holder);
        }
        let target_slot = self.table.resources.find(resource)?;
        let sole = self.table.resources.sole(target_slot);
        let state = self.table.resources.state(target_slot).map_or(&[][..], |state| &state.leases);
        let mut live = state.iter().copied().take(limits::HOLDER_SEARCH).chain((sole != NONE).then_some(sole));
        let slot = live.find(|slot| self.table.lease(*slot).number() == number)?;
        Some(self.table.holder_name(self.table.lease(slot).actor).to_owned())
    }

    /// Removes a target that no longer exists; otherwise it would stay listed as a hole.
    pub(super) fn forget_target(&mut self, resource: &str, target: &str, comment: &str) -> Result<Answer, Refusal> {
        Name::parse(resource)?;
        check_target(target)?;
        check_comment(comment)?;
        if !self.table.coverage.targets_of(resource).any(|(name, _, _)| name == target) {
            return Err(Refusal::NotFound(RefusalSubject::Target));
        }
        let record =
            CoverageRecord::Forgotten { resource: resource.into(), target: target.into(), comment: comment.into() };
        self.record(&Record::Coverage(record));
        if let Some(slots) = self.check_counts.get_mut(resource) {
            let total = &mut self.total_checks;
            slots.retain(|(name, _), counted| {
                let stays = **name != *target;
                *total -= if stays { 0 } else { u128::from(counted.checks) };
                stays
            });
            if slots.is_empty() {
                self.check_counts.remove(resource);
            }
        }
        Ok(Answer::Done)
    }

    /// The targets of a resource, as declared and as reported, with their holes.
    pub fn targets(&self, resource: &str) -> Vec<TargetView> {
        let charter = self.table.charter(resource);
        target_views(resource, charter, &self.table.coverage, self.check_counts.get(resource))
    }

    /// Each kind of hole, and how many there are in all charters and reports. A declared target counts once for each charter: its
    /// fences of all resources below the prefix count together. An undeclared target counts once for each resource. A resource
    /// without charter and reports has no targets to count, so [`Hole::NoTarget`] stays zero. Takes constant time.
    pub fn coverage_holes(&self) -> impl Iterator<Item = (Hole, usize)> {
        Hole::ALL.into_iter().zip(self.table.holes.holes())
    }

    /// The table of reported targets.
    pub fn coverage(&self) -> &CoverageTable {
        &self.table.coverage
    }

    /// Number of tokens that fences checked, according to their reports in this tenure about targets that are not forgotten. Takes
    /// constant time.
    pub fn checks(&self) -> u64 {
        u64::try_from(self.total_checks).unwrap_or(u64::MAX)
    }
}

fn check(report: &FenceReport<'_>) -> Result<(), Refusal> {
    Name::parse(report.resource)?;
    check_target(report.target)?;
    if report.refusals > report.checks {
        return Err(Refusal::Invalid { field: "refusals", reason: "at most as many as checks" });
    }
    let Some(zombie) = &report.zombie else {
        return Ok(());
    };
    if zombie.presented >= zombie.mark {
        return Err(Refusal::Invalid { field: "presented", reason: "must be below the mark" });
    }
    if zombie.times == 0 {
        return Err(Refusal::Invalid { field: "times", reason: "at least 1" });
    }
    if !zombie.holder.is_empty() {
        HolderName::parse(zombie.holder)?;
    }
    Ok(())
}
