//! H1: a checkpoint is stored under the token of a current lease, and never below the one that stands.

use std::collections::BTreeMap;

use leasehold_core::payload::state::Fact;
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// Reads the records.
pub fn check(history: &History) -> Finding {
    let mut stands: BTreeMap<String, u64> = BTreeMap::new();
    walk(history, |at, ledger, met| {
        match met {
            Met::SetBack => stands.clear(),
            Met::Before(Record::State(Fact::Put { resource, token, .. })) => {
                let token = token.get();
                let held = ledger.leases.values().any(|lease| lease.number == token && lease.resource == **resource);
                if !held {
                    return broken("H1", at, format!("{resource} is written under {token}, which nobody holds"));
                }
                let before = stands.insert(resource.to_string(), token).unwrap_or(0);
                if token < before {
                    return broken("H1", at, format!("{resource} is written under {token} after {before}"));
                }
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    fn put(number: u64) -> Record<'static> {
        Record::State(Fact::Put { resource: "jobs/a".into(), token: n(number), key: "at".into(), bytes: [1].into() })
    }

    #[test]
    fn a_checkpoint_is_written_by_who_holds_and_never_backwards() {
        assert_eq!(check(&history([landed(&[granted(0, 5, "jobs/a"), put(5), put(5)])])), Ok(()));
        assert!(check(&history([landed(&[granted(0, 5, "jobs/a"), put(4)])])).is_err());
        let Record::Granted(mut successor) = granted(1, 6, "jobs/a") else { panic!("a grant") };
        successor.overlaps = Some(0);
        let back = [granted(0, 5, "jobs/a"), Record::Granted(successor), put(6), put(5)];
        assert_eq!(check(&history([landed(&back)])).unwrap_err().promise, "H1");
    }
}
