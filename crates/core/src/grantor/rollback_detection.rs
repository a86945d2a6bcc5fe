//! Rollback detection: a presented token above the counter proves that the state was rolled back (T9).

use super::Grantor;
use crate::command::SessionEvent;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::token::{Token, next_number, plausible};

impl Grantor {
    /// Processes the highest token that a caller has observed. A token above the counter was issued by a state that is lost:
    /// raise the counter above it, start a quarantine and notify, all recorded before any answer.
    pub(super) fn observe_token(&mut self, token: &Token) -> Result<(), Refusal> {
        let identity = self.table.identity.expect("a serving grantor has an identity");
        let ours = token.cluster == identity.cluster && token.incarnation == identity.incarnation;
        if !ours || token.number.get() <= self.table.counter || mutants::on(Mutant::RollbackIgnored) {
            return Ok(());
        }
        if !plausible(token.number, self.table.wall) {
            return Err(Refusal::Implausible { presented: token.number });
        }
        // The clock may be ahead of the token; the next number must be above both.
        let counter =
            next_number(token.number.get(), self.table.wall).map_or(token.number.get(), |next| next.get() - 1);
        let length = if mutants::on(Mutant::RollbackNotQuarantined) { 0 } else { self.quarantine_ms() };
        let quarantine = self.now().plus(length);
        self.record(&Record::RolledBack { presented: token.number, counter, quarantine });
        self.quarantine_seen = false;
        self.notify(None, SessionEvent::RolledBack { presented: token.number });
        Ok(())
    }
}
