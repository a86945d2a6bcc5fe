//! N1: a grantor drops no renewal under load: each is decided before those that arrived later.

use std::collections::{BTreeSet, VecDeque};

use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};

/// Checks arrivals and decisions of each generation.
pub fn check(history: &History) -> CheckFinding {
    let mut generation_now = 0;
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let mut decided = BTreeSet::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::Arrived { op, generation, .. } => {
                if *generation > generation_now {
                    (generation_now, waiting, decided) = (*generation, VecDeque::new(), BTreeSet::new());
                }
                if *generation == generation_now && !decided.contains(op) && !waiting.contains(op) {
                    waiting.push_back(*op);
                }
            }
            HistoryEvent::Decided { op, generation, .. } if *generation == generation_now => {
                decided.insert(*op);
                if let Some(index) = waiting.iter().position(|waits| waits == op) {
                    let earlier: Vec<u64> = waiting.drain(..=index).filter(|waits| waits != op).collect();
                    if let Some(forgotten) = earlier.first() {
                        return broken(
                            "N1",
                            *at,
                            format!("#{op} is decided before #{forgotten}, which arrived earlier"),
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
    use super::super::sample_histories::*;
    use super::*;

    fn arrived(op: u64, generation: u64) -> HistoryEvent {
        HistoryEvent::Arrived { op, server: 0, generation }
    }

    #[test]
    fn every_renewal_is_decided_in_order_of_arrival_within_a_generation() {
        let decide = |op, generation| decided(op, generation, 0, current(5));
        assert_eq!(check(&history([arrived(1, 1), arrived(2, 1), decide(1, 1), decide(2, 1)])), Ok(()));
        assert_eq!(check(&history([arrived(1, 1), arrived(2, 2), decide(2, 2)])), Ok(()));
        assert_eq!(check(&history([arrived(1, 1), arrived(2, 1), decide(2, 1)])).unwrap_err().promise, "N1");
    }
}
