//! F1, F2, F3, F7: tokens of applied writes never decrease at a target, across crashes and lost marks, and a sequenced target
//! applies no write twice. F4, F5, T6: a target accepts only tokens meant for it. T5: a strict target accepts only its adopted
//! incarnation.

use std::collections::{BTreeMap, BTreeSet};

use super::{CheckFinding, broken};
use crate::fenced_target::{SEQUENCED, STRICT};
use crate::history::{History, HistoryEvent, TargetVerdict};

/// Checks the log of every target.
pub fn check(history: &History) -> CheckFinding {
    tokens_never_decrease(history)?;
    only_valid_tokens(history)?;
    one_incarnation(history)?;
    nothing_while_lost(history)
}

/// Tokens of applied writes never decrease.
fn tokens_never_decrease(history: &History) -> CheckFinding {
    let mut logs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::WriteDecided { target, presented, value, verdict: TargetVerdict::Applied, .. } => {
                let log = logs.entry(*target).or_default();
                let number = presented.number.get();
                let highest = log.iter().max().copied().unwrap_or(0);
                if presented.valid && number < highest {
                    let what = value.map_or("a claim".to_owned(), |value| format!("the corrupted write {value}"));
                    return broken("F1", *at, format!("target {target} applied {what} under {number} after {highest}"));
                }
                if *target as usize == SEQUENCED && value.is_some_and(|value| !counted.insert((number, value))) {
                    return broken("F1", *at, format!("target {target} applied a write under {number} twice"));
                }
                // Every write keeps its position in the log; an invalid one says nothing about the order.
                log.push(if presented.valid { number } else { 0 });
            }
            HistoryEvent::TargetKilled { target, remaining } => {
                logs.entry(*target).or_default().truncate(*remaining);
                // Writes lost in the crash may be repeated.
                counted.clear();
            }
            // A lost mark loses the sequence too.
            HistoryEvent::MarkChanged { .. } => counted.clear(),
            _ => {}
        }
    }
    Ok(())
}

fn nothing_while_lost(history: &History) -> CheckFinding {
    let mut lost = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::MarkChanged { target, armed: None } => drop(lost.insert(*target)),
            HistoryEvent::MarkChanged { target, armed: Some(_) } => drop(lost.remove(target)),
            HistoryEvent::WriteDecided { target, presented, verdict: TargetVerdict::Applied, .. }
                if lost.contains(target) =>
            {
                let detail = format!("target {target} has lost its mark and applied {}", presented.number);
                return broken("F7", *at, detail);
            }
            _ => {}
        }
    }
    Ok(())
}

fn one_incarnation(history: &History) -> CheckFinding {
    let mut incarnations: Vec<u32> = Vec::new();
    let mut adopted = None;
    for (at, event) in &history.events {
        match event {
            HistoryEvent::WriteDecided { target, presented, verdict: TargetVerdict::Applied, .. }
                if *target as usize == STRICT =>
            {
                let follows = adopted.or(incarnations.last().copied());
                if follows.is_some_and(|follows| follows != presented.incarnation) {
                    let detail = format!(
                        "target {target} follows incarnation {follows:?} and applied a write of {}",
                        presented.incarnation
                    );
                    return broken("T5", *at, detail);
                }
                incarnations.push(presented.incarnation);
                adopted = None;
            }
            HistoryEvent::TargetKilled { target, remaining } if *target as usize == STRICT => {
                incarnations.truncate(*remaining)
            }
            HistoryEvent::Adopted { target, incarnation } if *target as usize == STRICT => adopted = Some(*incarnation),
            _ => {}
        }
    }
    Ok(())
}

fn only_valid_tokens(history: &History) -> CheckFinding {
    for (at, event) in &history.events {
        if let HistoryEvent::WriteDecided { target, presented, verdict: TargetVerdict::Applied, .. } = event
            && !presented.valid
        {
            return broken(
                "F4",
                *at,
                format!("target {target} applied {}, which is not valid there", presented.number),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Number;

    use super::*;
    use crate::history::PresentedWrite;

    fn write(number: u64, valid: bool) -> HistoryEvent {
        write_at(0, number, valid, 1)
    }

    fn write_at(target: u32, number: u64, valid: bool, incarnation: u32) -> HistoryEvent {
        let presented = PresentedWrite { number: Number::new(number).expect("a number"), incarnation, valid };
        HistoryEvent::WriteDecided {
            target,
            id: 1,
            actor: 8,
            presented,
            value: Some(1),
            verdict: TargetVerdict::Applied,
        }
    }

    fn history(events: impl IntoIterator<Item = HistoryEvent>) -> History {
        History { events: events.into_iter().enumerate().map(|(at, event)| (at as u64, event)).collect() }
    }

    #[test]
    fn increasing_and_equal_tokens_are_legal_and_a_decreasing_one_is_not() {
        assert_eq!(check(&history([write(3, true), write(3, true), write(5, true)])), Ok(()));
        let found = check(&history([write(3, true), write(5, true), write(4, true)])).unwrap_err();
        assert_eq!((found.promise, found.at), ("F1", 2));
    }

    #[test]
    fn only_writes_that_survive_a_crash_count() {
        let killed = |remaining| HistoryEvent::TargetKilled { target: 0, remaining };
        assert_eq!(check(&history([write(3, true), write(5, true), killed(1), write(4, true)])), Ok(()));
        assert!(check(&history([write(3, true), write(5, true), killed(2), write(4, true)])).is_err());
    }

    #[test]
    fn a_target_that_lost_its_mark_applies_nothing_until_it_is_armed() {
        let mark = |armed| HistoryEvent::MarkChanged { target: 0, armed };
        let armed = || mark(Number::new(3));
        assert_eq!(check(&history([mark(None), armed(), write(3, true)])), Ok(()));
        assert_eq!(check(&history([mark(None), write(3, true)])).unwrap_err().promise, "F7");
    }

    #[test]
    fn a_sequenced_target_applies_no_write_twice() {
        let sequenced = SEQUENCED as u32;
        assert_eq!(check(&history([write(3, true), write(3, true)])), Ok(()), "other targets accept a retry");
        let twice = history([write_at(sequenced, 3, true, 1), write_at(sequenced, 3, true, 1)]);
        assert_eq!(check(&twice).unwrap_err().promise, "F1");
    }

    #[test]
    fn a_strict_target_follows_its_adopted_incarnation() {
        let strict = STRICT as u32;
        let write = |incarnation| write_at(strict, 3, true, incarnation);
        let adopted = HistoryEvent::Adopted { target: strict, incarnation: 2 };
        assert_eq!(check(&history([write(1), adopted, write(2), write(2)])), Ok(()));
        assert_eq!(check(&history([write(1), write(2)])).unwrap_err().promise, "T5");
    }

    #[test]
    fn an_invalid_token_is_not_legal_however_high() {
        assert_eq!(check(&history([write(9, false)])).unwrap_err().promise, "F4");
    }
}
