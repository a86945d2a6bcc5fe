//! N1: no renewal that came to a grantor is forgotten, however many came with it: each is decided before any that came later.

use std::collections::{BTreeSet, VecDeque};

use super::{Finding, broken};
use crate::history::{Event, History};

/// Reads what came and what was decided, of each reign apart.
pub fn check(history: &History) -> Finding {
    let mut reign = 0;
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let mut decided = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            Event::Arrived { op, generation, .. } => {
                if *generation > reign {
                    (reign, waiting, decided) = (*generation, VecDeque::new(), BTreeSet::new());
                }
                if *generation == reign && !decided.contains(op) && !waiting.contains(op) {
                    waiting.push_back(*op);
                }
            }
            Event::Decided { op, generation, .. } if *generation == reign => {
                decided.insert(*op);
                if let Some(place) = waiting.iter().position(|waits| waits == op) {
                    let earlier: Vec<u64> = waiting.drain(..=place).filter(|waits| waits != op).collect();
                    if let Some(forgotten) = earlier.first() {
                        return broken(
                            "N1",
                            *at,
                            format!("#{op} is decided, and #{forgotten}, which came before, is not"),
                        );
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    fn came(op: u64, generation: u64) -> Event {
        Event::Arrived { op, server: 0, generation }
    }

    #[test]
    fn every_renewal_is_decided_in_its_turn_unless_its_grantor_is_gone() {
        let decide = |op, generation| decides(op, generation, 0, current(5));
        assert_eq!(check(&history([came(1, 1), came(2, 1), decide(1, 1), decide(2, 1)])), Ok(()));
        assert_eq!(check(&history([came(1, 1), came(2, 2), decide(2, 2)])), Ok(()));
        assert_eq!(check(&history([came(1, 1), came(2, 1), decide(2, 1)])).unwrap_err().promise, "N1");
    }
}
