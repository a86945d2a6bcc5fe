//! X1: when everything is healed, every request is answered, and somebody is granted something.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;

use super::{Finding, broken};
use crate::clock::{At, MS};
use crate::history::{Event, History};
use crate::world::QUIET;

/// How long a healed world needs until it must answer: to elect, to end what nobody renews, and to end a quarantine.
const SETTLED: At = 5_000 * MS;

/// Reads what was asked after the healing.
pub fn check(history: &History) -> Finding {
    let (Some(healed), Some((end, Event::Over { .. }))) = (history.healed(), history.events.last()) else {
        return Ok(());
    };
    let mut open = BTreeMap::new();
    let (mut asked, mut granted) = (0, 0);
    for (at, event) in &history.events {
        match event {
            Event::Asked { op, ask, .. } if *at > healed + SETTLED && *at + QUIET < *end => {
                asked += 1;
                open.insert(*op, (*at, ask.kind()));
            }
            Event::Answered { op, answer, .. } => {
                open.remove(op);
                granted += u32::from(*at > healed && matches!(answer, Answer::Granted(_) | Answer::GrantedAll(_)));
            }
            // A request belongs to its session: when that is over, its client has its answer.
            Event::GaveUp { op, why: "its session is over" } => {
                open.remove(op);
            }
            _ => {}
        }
    }
    if let Some((op, (at, kind))) = open.first_key_value() {
        return broken("X1", *at, format!("#{op} ({kind}) is never answered in a healed world"));
    }
    if asked > 30 && granted == 0 {
        return broken("X1", *end, "nobody is granted anything in a healed world");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::{answers, asked, grant};
    use super::*;

    fn run(events: Vec<(At, Event)>) -> History {
        let mut all = vec![(0, Event::Healed)];
        all.extend(events);
        all.push((20_000 * MS, Event::Over { served: None }));
        History { events: all }
    }

    #[test]
    fn an_answered_request_is_legal_and_one_that_is_forgotten_is_not() {
        assert_eq!(check(&run(vec![(6_000 * MS, asked(1)), (6_001 * MS, answers(1, grant(5)))])), Ok(()));
        assert_eq!(check(&run(vec![(6_000 * MS, asked(1))])).unwrap_err().promise, "X1");
        assert_eq!(check(&run(vec![(19_000 * MS, asked(1))])), Ok(()), "what was asked at the end may be open");
    }
}
