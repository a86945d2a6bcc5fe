//! A token from the future: this grantor's state was rolled back behind its back (T9).

use super::Grantor;
use crate::command::Event;
use crate::mutants::{self, Mutant};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::token::{Token, lift, plausible};

impl Grantor {
    /// A caller shows the highest token it has seen. One above the counter can only come from a life that this state has
    /// lost: lift above it, grant nothing for one maximum ttl, and say so, all on record before any answer.
    pub(super) fn shown(&mut self, token: &Token) -> Result<(), Refusal> {
        let identity = self.table.identity.expect("a serving grantor has an identity");
        let ours = token.cluster == identity.cluster && token.incarnation == identity.incarnation;
        if !ours || token.number.get() <= self.table.counter || mutants::on(Mutant::RollbackIgnored) {
            return Ok(());
        }
        if !plausible(token.number, self.table.wall) {
            return Err(Refusal::Implausible { shown: token.number });
        }
        // The clock may be ahead of what was shown; the next number must be above both.
        let lifted = lift(token.number.get(), self.table.wall).map_or(token.number.get(), |next| next.get() - 1);
        let length = if mutants::on(Mutant::RollbackNotQuarantined) { 0 } else { self.table.max_ttl() };
        let quarantine = self.now().plus(length);
        self.record(&Record::RolledBack { shown: token.number, counter: lifted, quarantine });
        self.quarantine_seen = false;
        self.notify(None, Event::RolledBack { shown: token.number });
        Ok(())
    }
}
