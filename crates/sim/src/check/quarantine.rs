//! T5, T9: a restored or rolled-back cluster is above every number that was told, and grants nothing for one maximum ttl; and
//! a grantor that is shown a newer number than it knows says so on record before it answers.

use leasehold_core::record::Record;
use leasehold_core::time::Millis;

use super::ledger::{Met, walk};
use super::{Finding, broken, tokens};
use crate::history::{Event, History};
use crate::server::MAX_TTL;

/// Reads the records, what was shown, and what was told.
pub fn check(history: &History) -> Finding {
    let mut told = 0;
    let mut newer: Option<(u64, u64)> = None;
    let mut said = false;
    let wrong = history.has_wrong_clocks();
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Restored { counter, quarantine, .. }) => {
                if *counter < told && !wrong {
                    return broken("T5", at, format!("restored at {counter}, and {told} was told before"));
                }
                long_enough("T5", at, ledger.time, *quarantine)?;
            }
            Met::Before(Record::RolledBack { quarantine, .. }) => {
                said = true;
                long_enough("T9", at, ledger.time, *quarantine)?;
            }
            Met::Before(record) => {
                let given = tokens::numbers(record);
                if let Some(number) = given.first().filter(|_| ledger.time < ledger.quarantine) {
                    let why = format!(
                        "{number} is given out at {}, in a quarantine until {}",
                        ledger.time, ledger.quarantine
                    );
                    return broken("T5", at, why);
                }
            }
            Met::Batch => {
                if let Some((shown, _)) = newer.take_if(|(_, generation)| *generation == ledger.generation)
                    && !said
                {
                    return broken("T9", at, format!("{shown} was shown, which is newer, and nothing is said of it"));
                }
                said = false;
            }
            Met::SetBack => newer = None,
            Met::Other(Event::Newer { shown, generation }) => newer = Some((*shown, *generation)),
            Met::Other(Event::Answered { answer, .. }) => {
                told = tokens::granted(answer).into_iter().fold(told, u64::max);
            }
            _ => {}
        }
        Ok(())
    })
}

fn long_enough(promise: &'static str, at: u64, now: Millis, until: Millis) -> Finding {
    if until < now.plus(MAX_TTL) {
        return broken(promise, at, format!("the quarantine from {now} on ends at {until}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Incarnation;

    use super::super::sample::*;
    use super::*;

    fn restored(counter: u64, until: u64) -> Record<'static> {
        Record::Restored { incarnation: Incarnation(2), counter, quarantine: Millis(until) }
    }

    fn rolled_back(until: u64) -> Record<'static> {
        Record::RolledBack { shown: n(9), counter: 9, quarantine: Millis(until) }
    }

    #[test]
    fn a_restore_is_above_what_was_told_and_waits() {
        let run = |counter, until| history([answered(1, 5), landed(&[opened(2), restored(counter, until)])]);
        assert_eq!(check(&run(5, MAX_TTL)), Ok(()));
        assert_eq!(check(&run(4, MAX_TTL)).unwrap_err().promise, "T5");
        assert_eq!(check(&run(5, MAX_TTL - 1)).unwrap_err().promise, "T5");
        let granted_at = |time| history([landed(&[restored(5, MAX_TTL)]), landed_at(time, &[granted(0, 6, "jobs/a")])]);
        assert_eq!(check(&granted_at(MAX_TTL)), Ok(()));
        assert_eq!(check(&granted_at(MAX_TTL - 1)).unwrap_err().promise, "T5");
    }

    #[test]
    fn who_is_shown_a_newer_number_says_so_first() {
        let shown = || Event::Newer { shown: 9, generation: 1 };
        let begins = || landed(&[opened(1)]);
        assert_eq!(check(&history([begins(), shown(), landed(&[rolled_back(MAX_TTL)])])), Ok(()));
        assert_eq!(check(&history([begins(), shown(), landed(&[Record::Idle])])).unwrap_err().promise, "T9");
        assert_eq!(check(&history([begins(), shown(), landed(&[rolled_back(10)])])).unwrap_err().promise, "T9");
    }
}
