//! H1: small state, for example a checkpoint, is stored under the token of a current lease, and never below the token of the stored one.

use std::collections::BTreeMap;

use leasehold_core::payload::state::StateRecord;
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Checks the records.
pub fn check(history: &History) -> CheckFinding {
    let mut last_token: BTreeMap<String, u64> = BTreeMap::new();
    walk(history, |at, model, step| {
        match step {
            WalkStep::JournalReverted => last_token.clear(),
            WalkStep::Before(Record::State(StateRecord::Put { resource, token, .. })) => {
                let token = token.get();
                let held = model.leases.values().any(|lease| lease.number == token && lease.resource == **resource);
                if !held {
                    return broken("H1", at, format!("{resource} is written under {token}, which is not held"));
                }
                let before = last_token.insert(resource.to_string(), token).unwrap_or(0);
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
    use super::super::sample_histories::*;
    use super::*;

    fn put(number: u64) -> Record<'static> {
        Record::State(StateRecord::Put {
            resource: "jobs/a".into(),
            token: n(number),
            owner: None,
            key: "at".into(),
            bytes: [1].into(),
        })
    }

    #[test]
    fn a_checkpoint_is_written_under_a_held_token_that_never_decreases() {
        assert_eq!(check(&history([batch(&[granted(0, 5, "jobs/a"), put(5), put(5)])])), Ok(()));
        assert!(check(&history([batch(&[granted(0, 5, "jobs/a"), put(4)])])).is_err());
        let Record::Granted(mut successor) = granted(1, 6, "jobs/a") else { panic!("a grant") };
        successor.overlaps = Some(0);
        let back = [granted(0, 5, "jobs/a"), Record::Granted(successor), put(6), put(5)];
        assert_eq!(check(&history([batch(&back)])).unwrap_err().promise, "H1");
    }
}
