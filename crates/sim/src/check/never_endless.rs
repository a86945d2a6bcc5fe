//! L9: what nobody renews ends, over stalls and failovers, within its bound; L10: and nothing lasts for ever.

use leasehold_core::command::Answer;
use leasehold_core::limits::TURN_NORMAL;
use leasehold_core::time::Millis;

use super::ledger::{Ledger, Met, walk};
use super::terms::{Key, Term, Terms, ends};
use super::{Finding, broken};
use crate::history::{Event, History};
use crate::server::MAX_TTL;

/// A turn may be as late as this without counting as a stall, and the one after it too.
const SLACK: u64 = 3 * TURN_NORMAL;

/// Reads the records against what was decided.
pub fn check(history: &History) -> Finding {
    let mut terms = Terms::new(false);
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(record) => {
                for key in ends(ledger, record) {
                    let Some(term) = terms.of.get(&key) else { continue };
                    let latest = latest(&terms, ledger, term);
                    if ledger.time > latest {
                        let why = format!("{key:?} ends at {}, after {latest}", ledger.time);
                        return broken("L9", at, why);
                    }
                }
            }
            Met::After(record) => terms.record(ledger, record),
            Met::SetBack => terms.set_back(),
            Met::Other(Event::Over { served: Some(served) }) => {
                ledger.time = *served;
                for lease in ledger.leases.values() {
                    let Some(term) = terms.of.get(&Key::Lease(lease.number)) else { continue };
                    if *served > latest(&terms, ledger, term) {
                        return broken("L9", at, format!("{} is still held at {served}", lease.number));
                    }
                }
            }
            Met::Other(event) => {
                if let Event::Told { time, answer, .. } = event {
                    bounded(ledger, *time, answer).or_else(|why| broken("L10", at, why))?;
                }
                terms.event(event);
            }
            Met::Batch => {}
        }
        Ok(())
    })
}

pub(super) fn latest(terms: &Terms, ledger: &Ledger, term: &Term) -> Millis {
    let base = terms.base(term, ledger.generation);
    let credit = terms.stood_since(ledger.generation, base).min(term.ttl);
    // What was credited in the tenure of the renewal stays used, and cannot be more than a ttl in all.
    let credit = if term.generation == ledger.generation { credit } else { term.ttl };
    base.plus(term.ttl + credit + SLACK + terms.stood_at(ledger.generation, ledger.time))
}

/// Whether what is told to be held has an end that its maximum allows.
fn bounded(ledger: &Ledger, now: Millis, answer: &Answer) -> Result<(), String> {
    let (number, remaining) = match answer {
        Answer::Granted(grant) => (grant.number, grant.remaining_ms),
        Answer::Current(current) => (current.number, current.remaining_ms),
        _ => return Ok(()),
    };
    // Up to one ttl of credit on top of a ttl.
    if remaining > 2 * MAX_TTL {
        return Err(format!("{number} is told to last for {remaining} ms"));
    }
    let lease = ledger.leases.values().find(|lease| lease.number == number.get());
    let end = lease.and_then(|lease| Some(lease.granted.plus(lease.max_hold?)));
    match end {
        Some(end) if now.plus(remaining) > end => {
            Err(format!("{number} is told to last until {}, beyond its maximum hold {end}", now.plus(remaining)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::lease::Reason;
    use leasehold_core::record::Record;

    use super::super::sample::*;
    use super::*;

    fn end() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: Reason::Ttl, hold: false, why: "" }
    }

    #[test]
    fn an_end_within_a_turn_of_the_deadline_is_legal_and_one_much_later_is_not() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), landed_at(1_200, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), landed_at(2_000, &[end()])])).unwrap_err().promise, "L9");
    }

    #[test]
    fn every_opening_extends_only_what_was_heard_before_it() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let opening = |generation, time| landed_at(time, &[opened(generation)]);
        let legal = history([grant(), opening(2, 600), landed_at(1_650, &[end()])]);
        assert_eq!(check(&legal), Ok(()));
        let again = [opening(3, 1_100), opening(4, 1_600), opening(5, 2_100), opening(6, 2_600)];
        let endless = history([grant(), opening(2, 600)].into_iter().chain(again).chain([landed_at(3_600, &[end()])]));
        assert_eq!(check(&endless).unwrap_err().promise, "L9");
    }

    #[test]
    fn what_is_told_to_last_for_ever_is_found() {
        let Answer::Granted(mut forever) = grant(5) else { panic!("a grant") };
        forever.remaining_ms = u64::MAX;
        let told = history([asked(1), tells(1, 1, 0, Answer::Granted(forever))]);
        assert_eq!(check(&told).unwrap_err().promise, "L10");
    }
}
