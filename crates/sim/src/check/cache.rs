//! R1: from a write intent until its end, no reader starts or renews. R2: the write completes only after every reader has
//! dropped its copy or its copy has expired.

use leasehold_core::payload::cache::CacheRecord;
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    walk(history, |at, model, step| {
        let WalkStep::Before(Record::Cache(record)) = step else { return Ok(()) };
        match (record, model.cached.intent) {
            (CacheRecord::Read { lease, .. } | CacheRecord::Renewed { lease }, Some((intent, _))) => {
                broken("R1", at, format!("a copy is granted under {lease} during the write intent {intent}"))
            }
            (CacheRecord::Done { number }, Some((intent, _))) if number.get() == intent => {
                let mut readers = model.cached.readers.iter();
                match readers.find(|(_, (_, ttl, since))| model.time < since.plus(*ttl)) {
                    Some((reader, _)) => broken("R2", at, format!("{intent} commits while {reader} may read its copy")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::EndReason;
    use leasehold_core::payload::cache::OwnerKind;

    use super::super::sample_histories::*;
    use super::*;

    fn read(number: u64) -> Record<'static> {
        let (key, lease, reader) = ("cache/k".into(), n(number), "a".into());
        Record::Cache(CacheRecord::Read { key, lease, session: None, owner: None, reader, ttl_ms: 1_000 })
    }

    fn intends(number: u64) -> Record<'static> {
        let (key, kind, number, holder) = ("cache/k".into(), OwnerKind::Intent, n(number), "b".into());
        Record::Cache(CacheRecord::Began { key, kind, number, session: None, owner: None, holder, ttl_ms: 1_000 })
    }

    fn done(number: u64) -> Record<'static> {
        Record::Cache(CacheRecord::Done { number: n(number) })
    }

    #[test]
    fn no_reader_starts_during_a_write_intent() {
        assert_eq!(check(&history([batch(&[intends(5), done(5), read(6)])])), Ok(()));
        assert_eq!(check(&history([batch(&[intends(5), read(6)])])).unwrap_err().promise, "R1");
    }

    #[test]
    fn a_write_waits_until_copies_are_dropped_or_expired() {
        let dropped = || Record::Cache(CacheRecord::Ended { number: n(5), reason: EndReason::Released });
        assert_eq!(check(&history([batch(&[read(5), intends(6), dropped(), done(6)])])), Ok(()));
        assert_eq!(check(&history([batch(&[read(5), intends(6)]), batch_at(1_000, &[done(6)])])), Ok(()));
        let early = history([batch(&[read(5), intends(6)]), batch_at(999, &[done(6)])]);
        assert_eq!(check(&early).unwrap_err().promise, "R2");
    }
}
