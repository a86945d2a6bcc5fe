//! R1: from a write's intent until it is over nobody begins to read or goes on to. R2: and it is done only when every reader
//! has dropped its copy or has had its time.

use std::collections::BTreeMap;

use leasehold_core::payload::cache::{Fact, Kind};
use leasehold_core::record::Record;
use leasehold_core::time::Millis;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// Who may use a copy of the cached key, and who is about to write it, as the records say.
#[derive(Clone, Debug, Default)]
pub struct Cached {
    /// Readers by number: their session, how long a copy lasts, and since when.
    readers: BTreeMap<u64, (Option<u32>, u64, Millis)>,
    intent: Option<(u64, Option<u32>)>,
}

impl Cached {
    /// Makes a fact true.
    pub fn apply(&mut self, fact: &Fact, time: Millis) {
        match fact {
            Fact::Read { lease, session, ttl_ms, .. } => {
                self.readers.insert(lease.get(), (session.map(|session| session.slot), *ttl_ms, time));
            }
            Fact::Renewed { lease } => {
                self.readers.get_mut(&lease.get()).into_iter().for_each(|reader| reader.2 = time);
            }
            Fact::Began { kind: Kind::Intent, number, session, .. } => {
                self.intent = Some((number.get(), session.map(|session| session.slot)));
            }
            Fact::Done { number } | Fact::Ended { number, .. } => {
                self.readers.remove(&number.get());
                self.intent = self.intent.filter(|(intent, _)| *intent != number.get());
            }
            Fact::Began { .. } | Fact::Forgotten { .. } => {}
        }
    }

    /// What a session read and meant to write is over with it.
    pub fn session_ended(&mut self, slot: u32) {
        self.readers.retain(|_, (session, ..)| *session != Some(slot));
        self.intent = self.intent.filter(|(_, session)| *session != Some(slot));
    }
}

/// Reads the records.
pub fn check(history: &History) -> Finding {
    walk(history, |at, ledger, met| {
        let Met::Before(Record::Cache(fact)) = met else { return Ok(()) };
        match (fact, ledger.cached.intent) {
            (Fact::Read { lease, .. } | Fact::Renewed { lease }, Some((intent, _))) => {
                broken("R1", at, format!("a copy is lent under {lease} while {intent} is about to write"))
            }
            (Fact::Done { number }, Some((intent, _))) if number.get() == intent => {
                let mut readers = ledger.cached.readers.iter();
                match readers.find(|(_, (_, ttl, since))| ledger.time < since.plus(*ttl)) {
                    Some((reader, _)) => {
                        broken("R2", at, format!("{intent} is written while {reader} may read its copy"))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Reason;

    use super::super::sample::*;
    use super::*;

    fn read(number: u64) -> Record<'static> {
        let (key, lease, reader) = ("cache/k".into(), n(number), "a".into());
        Record::Cache(Fact::Read { key, lease, session: None, reader, ttl_ms: 1_000 })
    }

    fn intends(number: u64) -> Record<'static> {
        let (key, kind, number, holder) = ("cache/k".into(), Kind::Intent, n(number), "b".into());
        Record::Cache(Fact::Began { key, kind, number, session: None, holder, ttl_ms: 1_000 })
    }

    fn done(number: u64) -> Record<'static> {
        Record::Cache(Fact::Done { number: n(number) })
    }

    #[test]
    fn nobody_begins_to_read_while_somebody_is_about_to_write() {
        assert_eq!(check(&history([landed(&[intends(5), done(5), read(6)])])), Ok(()));
        assert_eq!(check(&history([landed(&[intends(5), read(6)])])).unwrap_err().promise, "R1");
    }

    #[test]
    fn a_write_waits_until_copies_are_dropped_or_over() {
        let dropped = || Record::Cache(Fact::Ended { number: n(5), reason: Reason::Released });
        assert_eq!(check(&history([landed(&[read(5), intends(6), dropped(), done(6)])])), Ok(()));
        assert_eq!(check(&history([landed(&[read(5), intends(6)]), landed_at(1_000, &[done(6)])])), Ok(()));
        let early = history([landed(&[read(5), intends(6)]), landed_at(999, &[done(6)])]);
        assert_eq!(check(&early).unwrap_err().promise, "R2");
    }
}
