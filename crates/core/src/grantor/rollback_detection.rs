//! Rollback detection: a presented token that this journal never issued proves that the state was rolled back (T9). Where access is
//! restricted, only a proven token does (A9).

use super::Grantor;
use crate::command::{Command, Request, SessionEvent};
use crate::limits;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::time::WallClock;
use crate::token::{Number, Token, next_number, plausible};

impl Grantor {
    /// Processes the tokens that a request presents. An unproven one of a restricted caller has no effect; a command whose only
    /// purpose is to present it is refused.
    #[inline]
    pub(super) fn observe_tokens(&mut self, request: &Request<'_>, command: &Command<'_>) -> Result<(), Refusal> {
        // The secret of a lease covers cluster, incarnation, number and name, like a seal.
        let has_secret = |token: Token| request.proof.lease == Some(token.number);
        let presented = request.proven.presented || request.presented.is_some_and(has_secret);
        let tokens = [(request.observed, request.proven.observed), (request.presented, presented)].into_iter();
        for (token, proven) in tokens.filter_map(|(token, proven)| Some((token?, proven))) {
            let counts = proven || counts_from_anyone(request);
            let origin = if counts { NumberOrigin::Proven } else { NumberOrigin::Unproven };
            if !self.observe_token(&token, origin)? && matches!(command, Command::ObserveToken) {
                return Err(Refusal::Denied(NOT_PROVEN));
            }
        }
        Ok(())
    }

    /// Processes a token that a caller presents. One above the counter, or in a gap below it, was issued by a state that is lost:
    /// raise the counter above it, start a quarantine and notify, all recorded before any answer.
    fn observe_token(&mut self, token: &Token, origin: NumberOrigin<'_>) -> Result<bool, Refusal> {
        let identity = self.table.identity.expect("a serving grantor has an identity");
        if token.cluster == identity.cluster && token.incarnation == identity.incarnation {
            self.observe_number(token.number, origin)
        } else {
            Ok(true)
        }
    }

    /// Processes the number of a token that was presented to this cluster or to its fences. Returns false if it would prove a
    /// rollback, but does not count as evidence.
    pub(super) fn observe_number(&mut self, number: Number, origin: NumberOrigin<'_>) -> Result<bool, Refusal> {
        let suspected = mutants::on(Mutant::IssuedNumberSuspected) && number.get() < self.table.counter;
        if (self.table.gaps.contains(number.get()) || suspected) && !mutants::on(Mutant::RollbackIgnored) {
            return Ok(self.roll_back(number, origin));
        }
        self.observe_mark(number, origin)
    }

    /// Processes the mark of a fence. Whichever incarnation issued it, later grants must be above it. An operator may arm a mark in
    /// a gap, so only one above the counter proves a rollback.
    pub(super) fn observe_mark(&mut self, number: Number, origin: NumberOrigin<'_>) -> Result<bool, Refusal> {
        if number.get() <= self.table.counter || mutants::on(Mutant::RollbackIgnored) {
            return Ok(true);
        }
        if !plausible(number, self.table.wall) {
            return Err(Refusal::Implausible { presented: number });
        }
        Ok(self.roll_back(number, origin))
    }

    /// Number of presented tokens that proved a rollback since the tenure was opened.
    pub fn rollback_proofs(&self) -> u64 {
        self.rollback_evidence.proofs
    }

    /// The evidence of a rollback since the tenure was opened.
    pub fn rollback_evidence(&self) -> RollbackEvidence {
        self.rollback_evidence
    }

    /// Records the rollback that `presented` proves. Nothing that anyone could have made up stops the cluster (A9): it is only
    /// counted. The state is rolled back only between two tenures, so one quarantine covers everything that was lost: a reporter
    /// starts one in a tenure, and its later numbers raise the counter.
    fn roll_back(&mut self, presented: Number, origin: NumberOrigin<'_>) -> bool {
        self.rollback_evidence.last = Some(presented);
        let repeated =
            matches!(origin, NumberOrigin::Reported(reporter) if self.quarantine_reporters.contains(reporter));
        let near = plausible(presented, WallClock(self.table.wall.0.saturating_sub(limits::REPEATED_REPORT_MARGIN)));
        let has_effect = origin != NumberOrigin::Unproven && (near || !repeated);
        if !has_effect && !mutants::on(Mutant::AnybodyLifts) {
            self.rollback_evidence.unproven += 1;
            return false;
        }
        if let NumberOrigin::Reported(reporter) = origin {
            self.quarantine_reporters.insert(reporter.into());
        }
        // The clock may be ahead of the token; the next number must be above both.
        let known = presented.get().max(self.table.counter);
        let counter = next_number(known, self.table.wall).map_or(known, |next| next.get() - 1);
        // An operator who waived the quarantine answers for the holders that are lost, as long as it would have lasted.
        let waived = self.table.waived_until > self.now();
        let starts_none = waived || (repeated && !mutants::on(Mutant::ReporterStopsForever));
        let starts_none = starts_none || mutants::on(Mutant::RollbackNotQuarantined);
        let length = if starts_none { 0 } else { self.quarantine_ms() };
        // Evidence never shortens a quarantine, for example one that began before the longest ttl was lowered.
        let running = self.table.quarantine.map_or(self.now(), |quarantine| quarantine.until);
        let running = if mutants::on(Mutant::EvidenceShortensQuarantine) { self.now() } else { running };
        let quarantine = self.now().plus(length).max(running);
        self.record(&Record::RolledBack { presented, counter, quarantine });
        self.rollback_evidence.proofs += 1;
        self.rollback_evidence.repeated += u64::from(repeated);
        self.quarantine_seen = false;
        self.notify(None, SessionEvent::RolledBack { presented });
        true
    }
}

/// Where a number that this journal never issued comes from, which decides what it proves (A9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberOrigin<'a> {
    /// Anyone could have made it up.
    Unproven,
    /// The reporter that the charter of a target names.
    Reported(&'a str),
    /// A proven token, or any caller where access is not restricted.
    Proven,
}

/// Presented numbers that this journal never issued, since the tenure was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollbackEvidence {
    /// Those that proved a rollback.
    pub proofs: u64,
    /// Those of them from a reporter that had started a quarantine in this tenure: they raised the counter only.
    pub repeated: u64,
    /// Those that had no effect, because the caller did not prove them, or because they are of such a reporter and far ahead (A9).
    pub unproven: u64,
    /// The last one of either kind.
    pub last: Option<Number>,
}

/// Whether an unproven token of this caller counts: only where access is not restricted, so that anyone may do anything.
#[inline]
pub(super) const fn counts_from_anyone(request: &Request<'_>) -> bool {
    request.caller.rights.is_unrestricted()
}

const NOT_PROVEN: &str = "the token is no evidence of a rollback, because it is not sealed by a key of this cluster; \
    present the sealed text together with its resource";
