//! Rollback detection: a presented token that this journal never issued proves that the state was rolled back (T9).

use super::Grantor;
use crate::command::{Request, SessionEvent};
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::token::{Number, Token, next_number, plausible};

impl Grantor {
    /// Processes the tokens that a request presents.
    pub(super) fn observe_tokens(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        request.observed.iter().chain(&request.presented).try_for_each(|token| self.observe_token(token))
    }

    /// Processes a token that a caller presents. One above the counter, or in a gap below it, was issued by a state that is lost:
    /// raise the counter above it, start a quarantine and notify, all recorded before any answer.
    fn observe_token(&mut self, token: &Token) -> Result<(), Refusal> {
        let identity = self.table.identity.expect("a serving grantor has an identity");
        if token.cluster == identity.cluster && token.incarnation == identity.incarnation {
            self.observe_number(token.number)
        } else {
            Ok(())
        }
    }

    /// Processes the number of a token that was presented to this cluster or to its fences.
    pub(super) fn observe_number(&mut self, number: Number) -> Result<(), Refusal> {
        let suspected = mutants::on(Mutant::IssuedNumberSuspected) && number.get() < self.table.counter;
        if (self.table.gaps.contains(number.get()) || suspected) && !mutants::on(Mutant::RollbackIgnored) {
            self.roll_back(number);
            return Ok(());
        }
        self.observe_mark(number)
    }

    /// Processes the mark of a fence. Whichever incarnation issued it, later grants must be above it. An operator may arm a mark in
    /// a gap, so only one above the counter proves a rollback.
    pub(super) fn observe_mark(&mut self, number: Number) -> Result<(), Refusal> {
        if number.get() <= self.table.counter || mutants::on(Mutant::RollbackIgnored) {
            return Ok(());
        }
        if !plausible(number, self.table.wall) {
            return Err(Refusal::Implausible { presented: number });
        }
        self.roll_back(number);
        Ok(())
    }

    /// Number of presented tokens that proved a rollback since the tenure was opened.
    pub fn rollback_proofs(&self) -> u64 {
        self.rollback_proofs
    }

    fn roll_back(&mut self, presented: Number) {
        // The clock may be ahead of the token; the next number must be above both.
        let known = presented.get().max(self.table.counter);
        let counter = next_number(known, self.table.wall).map_or(known, |next| next.get() - 1);
        // An operator who waived the quarantine answers for the holders that are lost, as long as it would have lasted.
        let waived = self.table.waived_until > self.now();
        let length = if waived || mutants::on(Mutant::RollbackNotQuarantined) { 0 } else { self.quarantine_ms() };
        let quarantine = self.now().plus(length);
        self.record(&Record::RolledBack { presented, counter, quarantine });
        self.rollback_proofs += 1;
        self.quarantine_seen = false;
        self.notify(None, SessionEvent::RolledBack { presented });
    }
}
