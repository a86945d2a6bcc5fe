//! F1, F2, F7: at every target the tokens of applied writes never fall, over crashes and lost marks; F4, F5, T6: and only
//! tokens that were meant for it get in.

use std::collections::BTreeMap;

use super::{Finding, broken};
use crate::history::{Event, History, Verdict};

/// Reads the log of every target.
pub fn check(history: &History) -> Finding {
    let mut logs: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            Event::Wrote { target, shown, value, verdict: Verdict::Applied, .. } => {
                let log = logs.entry(*target).or_default();
                let number = shown.number.get();
                if !shown.right {
                    return broken("F4", *at, format!("target {target} took {number}, which is not for it"));
                }
                let highest = log.iter().max().copied().unwrap_or(0);
                if number < highest {
                    let what = value.map_or("a claim".to_owned(), |value| format!("the corrupted write {value}"));
                    return broken("F1", *at, format!("target {target} took {what} under {number} after {highest}"));
                }
                log.push(number);
            }
            Event::TargetKilled { target, kept } => logs.entry(*target).or_default().truncate(*kept),
            _ => {}
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
        let shown = Shown { number: Number::new(number).expect("a number"), right };
        Event::Wrote { target: 0, who: 8, shown, value: Some(1), verdict: Verdict::Applied }
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
    fn a_token_for_elsewhere_is_not_legal_however_high() {
        assert_eq!(check(&history([wrote(9, false)])).unwrap_err().promise, "F4");
    }
}
