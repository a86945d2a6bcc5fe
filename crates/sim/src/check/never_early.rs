//! L2: nothing ends for want of renewal before its last renewal as told, plus its ttl, plus what its grantor stood still
//! (L12); and no holder with a good clock believes that it holds what has ended so.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;
use leasehold_core::lease::Reason;
use leasehold_core::refusal::Refusal;
use leasehold_core::time::Millis;

use super::ledger::{Met, walk};
use super::terms::{Terms, ends};
use super::{Finding, broken};
use crate::ask::Ask;
use crate::fault::Fault;
use crate::history::{Event, History};

/// Reads the records against what was told, and the acts of holders against the records.
pub fn check(history: &History) -> Finding {
    let mut terms = Terms::new(true);
    let mut honest_servers = true;
    let mut asked = BTreeMap::new();
    let mut stood = (0, Millis(0));
    // Numbers up to here were given out before the journal was set back: what was told about them is lost.
    let mut lost = 0;
    let mut highest = 0;
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(record) => {
                for key in ends(ledger, record) {
                    let Some(term) = terms.of.get(&key) else { continue };
                    let base = terms.base(term, ledger.generation);
                    let same = term.generation == ledger.generation;
                    let stood = if same { terms.stood_since(ledger.generation, base).min(term.ttl) } else { 0 };
                    let deadline = base.plus(term.ttl + stood);
                    if ledger.time < deadline {
                        let promise = if stood > 0 && ledger.time >= base.plus(term.ttl) { "L12" } else { "L2" };
                        let why = format!("{key:?} ends at {}, before its deadline {deadline}", ledger.time);
                        return broken(promise, at, why);
                    }
                }
            }
            Met::After(record) => {
                terms.record(ledger, record);
                highest = ledger.numbers.keys().next_back().copied().unwrap_or(0).max(highest);
            }
            Met::SetBack => {
                terms.set_back();
                lost = highest;
            }
            Met::Other(Event::Struck { fault: Fault::WildServer, .. }) => honest_servers = false,
            Met::Other(Event::Acts { who, number, honest: true }) if honest_servers && number.get() > lost => {
                // After a rollback a session that was opened since is another's, under the same id; whoever still uses it
                // is stopped by the fence alone.
                if let Some(reason @ (Reason::Ttl | Reason::Session | Reason::MaxHold | Reason::HandedOff)) =
                    ledger.ended.get(&number.get())
                    && (*reason != Reason::Session || lost == 0)
                {
                    let why = format!("actor {who} believes that it holds under {number}, which ended: {reason}");
                    return broken("L2", at, why);
                }
            }
            Met::Other(event @ Event::Stood { generation, time, .. }) => {
                stood = (*generation, *time);
                terms.event(event);
            }
            Met::Other(Event::Asked { op, ask: Ask::Renew { held, .. }, .. }) => {
                asked.insert(*op, held.number.get());
                terms.event(&Event::Asked { op: *op, who: 0, ask: Ask::Renew { held: *held, progress: None } });
            }
            // What waited at the door of a grantor that stood still is heard before anything ends.
            Met::Other(Event::Decided {
                op,
                generation,
                time,
                answer: Answer::Refused(Refusal::Lost(Reason::Ttl)),
                ..
            }) => {
                let waits = asked.get(op).filter(|number| ledger.leases.values().any(|lease| lease.number == **number));
                if let Some(number) =
                    waits.filter(|_| stood == (*generation, *time) && *generation == ledger.generation)
                {
                    return broken("L12", at, format!("{number} is refused its renewal by a grantor that stood still"));
                }
            }
            Met::Other(event) => terms.event(event),
            Met::Batch => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::Record;

    use super::super::sample::*;
    use super::*;

    fn end() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: Reason::Ttl, hold: false, why: "" }
    }

    #[test]
    fn an_end_at_the_deadline_is_legal_and_one_before_it_is_not() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), landed_at(1_100, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), landed_at(1_099, &[end()])])).unwrap_err().promise, "L2");
    }

    #[test]
    fn a_renewal_that_was_told_moves_the_deadline_and_one_that_was_not_told_does_not() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let told =
            history([grant(), asked_to_renew(1, 0, 5), tells(1, 1, 600, current(5)), landed_at(1_200, &[end()])]);
        assert_eq!(check(&told).unwrap_err().promise, "L2");
        let decided =
            history([grant(), asked_to_renew(1, 0, 5), decides(1, 1, 600, current(5)), landed_at(1_200, &[end()])]);
        assert_eq!(check(&decided), Ok(()));
    }

    #[test]
    fn a_grantor_that_stood_still_gives_the_time_back() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let stood = || Event::Stood { server: 0, generation: 1, time: Millis(900), ms: 400 };
        assert_eq!(check(&history([grant(), stood(), landed_at(1_500, &[end()])])), Ok(()));
        assert_eq!(check(&history([grant(), stood(), landed_at(1_300, &[end()])])).unwrap_err().promise, "L12");
    }

    #[test]
    fn who_waited_at_the_door_of_a_stalled_grantor_is_heard() {
        let begins = || [landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]), asked_to_renew(1, 0, 5)].into_iter();
        let stood = Event::Stood { server: 0, generation: 1, time: Millis(2_000), ms: 900 };
        let lost = || decides(1, 1, 2_000, Answer::Refused(Refusal::Lost(Reason::Ttl)));
        assert_eq!(check(&history(begins().chain([lost()]))), Ok(()));
        assert_eq!(check(&history(begins().chain([stood, lost()]))).unwrap_err().promise, "L12");
    }

    #[test]
    fn who_believes_in_a_lease_that_ran_out_is_found_unless_its_clock_is_wrong() {
        let grant = || landed_at(100, &[opened(1), granted(0, 5, "jobs/a")]);
        let acts = |honest| Event::Acts { who: 8, number: n(5), honest };
        assert_eq!(check(&history([grant(), acts(true), landed_at(1_100, &[end()])])), Ok(()));
        assert!(check(&history([grant(), landed_at(1_100, &[end()]), acts(true)])).is_err());
        assert_eq!(check(&history([grant(), landed_at(1_100, &[end()]), acts(false)])), Ok(()));
    }
}
