//! F1, F2, F3, F7: at every target the tokens of applied writes never fall, over crashes and lost marks, and where writes
//! are counted none is applied twice. F4, F5, T6: only tokens that were meant for it get in. T5: where it is strict, only
//! those of the life of the cluster that it follows.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, broken};
use crate::history::{Event, History, Verdict};
use crate::target::{COUNTS, STRICT};

/// Reads the log of every target.
pub fn check(history: &History) -> Finding {
    never_falls(history)?;
    nobody_elses(history)?;
    one_life(history)?;
    nothing_while_lost(history)
}

/// What was meant for a target and came too late, by the numbers of what it took before.
fn never_falls(history: &History) -> Finding {
    let mut logs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            Event::Wrote { target, shown, value, verdict: Verdict::Applied, .. } => {
                let log = logs.entry(*target).or_default();
                let number = shown.number.get();
                let highest = log.iter().max().copied().unwrap_or(0);
                if shown.right && number < highest {
                    let what = value.map_or("a claim".to_owned(), |value| format!("the corrupted write {value}"));
                    return broken("F1", *at, format!("target {target} took {what} under {number} after {highest}"));
                }
                if *target as usize == COUNTS && value.is_some_and(|value| !counted.insert((number, value))) {
                    return broken("F1", *at, format!("target {target} applied a write under {number} twice"));
                }
                // A place in the log for everything; what was not meant for it says nothing about the order.
                log.push(if shown.right { number } else { 0 });
            }
            Event::TargetKilled { target, kept } => {
                logs.entry(*target).or_default().truncate(*kept);
                // What it forgot with its crash may come again.
                counted.clear();
            }
            // A mark that was lost takes the count with it.
            Event::Mark { .. } => counted.clear(),
            _ => {}
        }
    }
    Ok(())
}

fn nothing_while_lost(history: &History) -> Finding {
    let mut lost = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            Event::Mark { target, armed: None } => drop(lost.insert(*target)),
            Event::Mark { target, armed: Some(_) } => drop(lost.remove(target)),
            Event::Wrote { target, shown, verdict: Verdict::Applied, .. } if lost.contains(target) => {
                let why = format!("target {target} has lost its mark and took {}", shown.number);
                return broken("F7", *at, why);
            }
            _ => {}
        }
    }
    Ok(())
}

fn one_life(history: &History) -> Finding {
    let mut lives: Vec<u32> = Vec::new();
    let mut told = None;
    for (at, event) in &history.events {
        match event {
            Event::Wrote { target, shown, verdict: Verdict::Applied, .. } if *target as usize == STRICT => {
                let follows = told.or(lives.last().copied());
                if follows.is_some_and(|follows| follows != shown.incarnation) {
                    let why = format!("target {target} follows {follows:?} and took one of {}", shown.incarnation);
                    return broken("T5", *at, why);
                }
                lives.push(shown.incarnation);
                told = None;
            }
            Event::TargetKilled { target, kept } if *target as usize == STRICT => lives.truncate(*kept),
            Event::Adopted { target, incarnation } if *target as usize == STRICT => told = Some(*incarnation),
            _ => {}
        }
    }
    Ok(())
}

fn nobody_elses(history: &History) -> Finding {
    for (at, event) in &history.events {
        if let Event::Wrote { target, shown, verdict: Verdict::Applied, .. } = event
            && !shown.right
        {
            return broken("F4", *at, format!("target {target} took {}, which is not for it", shown.number));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use leasehold_core::token::Number;

    use super::*;
    use crate::history::Shown;

    fn wrote(number: u64, right: bool) -> Event {
        wrote_at(0, number, right, 1)
    }

    fn wrote_at(target: u32, number: u64, right: bool, incarnation: u32) -> Event {
        let shown = Shown { number: Number::new(number).expect("a number"), incarnation, right };
        Event::Wrote { target, id: 1, who: 8, shown, value: Some(1), verdict: Verdict::Applied }
    }

    fn history(events: impl IntoIterator<Item = Event>) -> History {
        History { events: events.into_iter().enumerate().map(|(at, event)| (at as u64, event)).collect() }
    }

    #[test]
    fn rising_and_equal_tokens_are_legal_and_a_falling_one_is_not() {
        assert_eq!(check(&history([wrote(3, true), wrote(3, true), wrote(5, true)])), Ok(()));
        let found = check(&history([wrote(3, true), wrote(5, true), wrote(4, true)])).unwrap_err();
        assert_eq!((found.promise, found.at), ("F1", 2));
    }

    #[test]
    fn what_a_crash_took_back_binds_nobody_and_what_it_kept_does() {
        let killed = |kept| Event::TargetKilled { target: 0, kept };
        assert_eq!(check(&history([wrote(3, true), wrote(5, true), killed(1), wrote(4, true)])), Ok(()));
        assert!(check(&history([wrote(3, true), wrote(5, true), killed(2), wrote(4, true)])).is_err());
    }

    #[test]
    fn a_target_without_its_mark_takes_nothing_until_it_is_armed() {
        let mark = |armed| Event::Mark { target: 0, armed };
        let armed = || mark(Number::new(3));
        assert_eq!(check(&history([mark(None), armed(), wrote(3, true)])), Ok(()));
        assert_eq!(check(&history([mark(None), wrote(3, true)])).unwrap_err().promise, "F7");
    }

    #[test]
    fn where_writes_are_counted_none_is_applied_twice() {
        let counts = COUNTS as u32;
        assert_eq!(check(&history([wrote(3, true), wrote(3, true)])), Ok(()), "elsewhere a retry passes");
        let twice = history([wrote_at(counts, 3, true, 1), wrote_at(counts, 3, true, 1)]);
        assert_eq!(check(&twice).unwrap_err().promise, "F1");
    }

    #[test]
    fn a_strict_target_follows_whom_it_was_told_to_follow() {
        let strict = STRICT as u32;
        let writes = |incarnation| wrote_at(strict, 3, true, incarnation);
        let told = Event::Adopted { target: strict, incarnation: 2 };
        assert_eq!(check(&history([writes(1), told, writes(2), writes(2)])), Ok(()));
        assert_eq!(check(&history([writes(1), writes(2)])).unwrap_err().promise, "T5");
    }

    #[test]
    fn a_token_for_elsewhere_is_not_legal_however_high() {
        assert_eq!(check(&history([wrote(9, false)])).unwrap_err().promise, "F4");
    }
}
