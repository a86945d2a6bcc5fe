//! F9: a fence decides alone: a target decides each write promptly, even when no server is available.

use std::collections::BTreeMap;

use super::{CheckFinding, broken};
use crate::clock::{MS, SimTime};
use crate::history::{History, HistoryEvent};

/// Time limit of a decision: much longer than a write, much shorter than an outage.
const DECISION_LIMIT: SimTime = 1_000 * MS;

/// Checks that every write that arrives is decided.
pub fn check(history: &History) -> CheckFinding {
    let mut open: BTreeMap<(u32, u64), SimTime> = BTreeMap::new();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::WriteArrived { target, id } => {
                open.entry((*target, *id)).or_insert(*at);
            }
            HistoryEvent::WriteDecided { target, id, .. } => {
                open.remove(&(*target, *id));
            }
            // Pending writes of a killed target are gone.
            HistoryEvent::TargetKilled { target, .. } => open.retain(|(other, _), _| other != target),
            _ => {}
        }
        if let Some(((target, id), since)) = open.iter().find(|(_, since)| **since + DECISION_LIMIT < *at) {
            return broken("F9", *at, format!("target {target} has not decided #{id}, which arrived at {since}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::n;
    use super::*;
    use crate::history::{PresentedWrite, TargetVerdict};

    #[test]
    fn a_slow_decision_is_found() {
        let reached = (0, HistoryEvent::WriteArrived { target: 0, id: 1 });
        let presented = PresentedWrite { number: n(5), incarnation: 1, valid: true };
        let decided = HistoryEvent::WriteDecided {
            target: 0,
            id: 1,
            actor: 8,
            presented,
            value: None,
            verdict: TargetVerdict::Applied,
        };
        let run = |at| History { events: vec![reached.clone(), (at, decided.clone())] };
        assert_eq!(check(&run(DECISION_LIMIT)), Ok(()));
        assert_eq!(check(&run(DECISION_LIMIT + 1)), Ok(()), "it has decided by then");
        let later = History {
            events: vec![
                reached.clone(),
                (DECISION_LIMIT + 1, HistoryEvent::Healed),
                (DECISION_LIMIT + 2, decided.clone()),
            ],
        };
        assert_eq!(check(&later).unwrap_err().promise, "F9");
    }
}
