//! G1: who must show progress and shows none loses its lease, however often it renews and whoever reigns.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::never_endless::latest;
use super::terms::{Key, Term, Terms};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::history::{Event, History};

/// Reads the records against the progress that was shown.
pub fn check(history: &History) -> Finding {
    let mut terms = Terms::new(false);
    let mut shown: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut recorded: BTreeMap<u64, u64> = BTreeMap::new();
    walk(history, |at, ledger, met| {
        match met {
            Met::After(record @ Record::Opened { .. }) => {
                terms.record(ledger, record);
                // A new grantor knows what is on record; what its predecessor saw beyond that counts again.
                highest.clone_from(&recorded);
            }
            Met::After(Record::Progressed { lease, at }) => {
                recorded.extend(ledger.leases.get(lease).map(|lease| (lease.number, *at)));
            }
            Met::After(Record::Granted(granted)) => {
                if let Some(window) = granted.progress {
                    let term = Term { ttl: window, generation: ledger.generation, time: ledger.time };
                    terms.of.insert(Key::Lease(granted.number.get()), term);
                }
            }
            Met::SetBack => {
                terms.set_back();
                highest.clear();
                recorded.clear();
            }
            Met::Batch => {
                for lease in ledger.leases.values().filter(|lease| lease.progress.is_some()) {
                    let Some(term) = terms.of.get(&Key::Lease(lease.number)) else { continue };
                    let latest = latest(&terms, ledger, term);
                    if ledger.time > latest {
                        let why = format!("{} shows no progress until {latest} and is held", lease.number);
                        return broken("G1", at, why);
                    }
                }
            }
            Met::Other(Event::Asked { op, ask: Ask::Renew { held, progress: Some(progress) }, .. }) => {
                shown.insert(*op, (held.number.get(), *progress));
            }
            Met::Other(Event::Decided { op, generation, time, answer: Answer::Current(_), .. }) => {
                let Some((number, progress)) = shown.get(op) else { return Ok(()) };
                // What a deposed grantor saw, its successor did not.
                if *generation == ledger.generation
                    && *progress > highest.get(number).copied().unwrap_or(0)
                    && let Some(term) = terms.of.get_mut(&Key::Lease(*number))
                {
                    (term.generation, term.time) = (*generation, *time);
                    highest.insert(*number, *progress);
                }
            }
            Met::Other(event @ Event::Stood { .. }) => terms.event(event),
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Number;

    use super::super::sample::*;
    use super::*;
    use crate::ask::Known;

    fn held() -> Event {
        let Record::Granted(mut grant) = granted(0, 5, "work/w") else { panic!("a grant") };
        grant.progress = Some(1_000);
        landed_at(100, &[opened(1), Record::Granted(grant)])
    }

    fn shows(op: u64, progress: u64, time: u64) -> [Event; 2] {
        let held = Known { lease: id(0), number: Number::new(5).expect("a number"), session: None };
        let ask = Ask::Renew { held, progress: Some(progress) };
        [Event::Asked { op, who: 8, ask }, decides(op, 1, time, current(5))]
    }

    #[test]
    fn who_moves_on_keeps_its_lease_and_who_only_renews_does_not() {
        let idle = |time| landed_at(time, &[Record::Idle]);
        let run = |again| {
            history([held()].into_iter().chain(shows(1, 1, 900)).chain(shows(2, again, 1_800)).chain([idle(2_700)]))
        };
        assert_eq!(check(&run(2)), Ok(()));
        assert_eq!(check(&run(1)).unwrap_err().promise, "G1");
    }
}
